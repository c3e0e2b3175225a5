/* SPDX-License-Identifier: BSD-3-Clause */
/* A copy of a box between two places that have different strides, with as few
 * axes as possible. All units are elements. */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_STRIDED_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_STRIDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

struct strided_axis {
	/* n: elements; from, to: strides in the two places. */
	int64_t n, from, to;
};

struct strided {
	int64_t from, to; /* the first element in the two places */
	uint64_t n;       /* number of elements */
	int naxes;
	struct strided_axis axis[DICOMM_AXES]; /* outermost first */
};

/* Describes the copy of [lo, hi) of a tensor. Each place is a box that contains
 * [lo, hi). If it is NULL, the place holds only [lo, hi), contiguous in
 * row-major order. */
void strided_make(struct strided *s, int axes, const int64_t *lo,
		  const int64_t *hi, const dicomm_box_t *from,
		  const dicomm_box_t *to);
/* Returns true if the elements are contiguous, in the same order, in both
 * places. */
bool strided_is_run(const struct strided *s);

/* Calls fn for each run of elements that are contiguous in both places. Stops
 * at the first status that is not DICOMM_SUCCESS, and returns it. */
typedef dicomm_result_t strided_fn(void *ctx, int64_t from, int64_t to,
				   uint64_t n);
dicomm_result_t strided_runs(const struct strided *s, strided_fn *fn,
			     void *ctx);
/* Does the copy in host memory. `elem` is the size of an element in bytes. */
void strided_copy(const struct strided *s, size_t elem, const void *from,
		  void *to);

#endif
