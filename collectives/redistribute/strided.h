/* SPDX-License-Identifier: BSD-3-Clause */
/* A copy of a box between two places with strides of their own, with as few
 * axes as there have to be. Units are elements. */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_STRIDED_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_STRIDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

struct strided_axis {
	int64_t n, from, to; /* elements, and strides of both places */
};

struct strided {
	int64_t from, to; /* the first element in both places */
	uint64_t n;       /* elements in all */
	int naxes;
	struct strided_axis axis[DICOMM_AXES]; /* outermost first */
};

/* A place: a box that has [lo, hi) of its tensor; or NULL: [lo, hi) itself in
 * row-major order without gaps. */
void strided_make(struct strided *s, int axes, const int64_t *lo,
		  const int64_t *hi, const dicomm_box_t *from,
		  const dicomm_box_t *to);
/* Is it without gaps and in one order in both places? */
bool strided_is_run(const struct strided *s);

/* Call fn for each run: elements that follow each other in both places. Stops
 * at the first status that is not SUCCESS. */
typedef dicomm_result_t strided_fn(void *ctx, int64_t from, int64_t to,
				   uint64_t n);
dicomm_result_t strided_runs(const struct strided *s, strided_fn *fn,
			     void *ctx);
/* Copy in host memory. */
void strided_copy(const struct strided *s, size_t elem, const void *from,
		  void *to);

#endif
