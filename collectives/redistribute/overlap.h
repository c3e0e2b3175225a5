/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Are there two elements in one place of memory? The places of a box are its
 * offset plus a multiple of each stride, so this asks whether an equation of
 * bounded integers has a solution. The answer is exact for any strides.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_OVERLAP_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_OVERLAP_H

#include "dicomm.h"

enum overlap {
	OVERLAP_NONE,
	OVERLAP_SOME,
	/* The strides are such that an answer would take too long. */
	OVERLAP_UNKNOWN
};

/* Steps of the search that a caller can afford; each call uses some up. */
#define OVERLAP_STEPS (1L << 24)

/* Two elements of one box, which is not empty and ends below 2^63. */
enum overlap overlap_within(const dicomm_box_t *box, int axes, long *steps);
/* An element of one and one of the other. */
enum overlap overlap_between(const dicomm_box_t *a, const dicomm_box_t *b,
			     int axes, long *steps);

#endif
