/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds out whether two elements lie at one place in memory. The places of a
 * box are its offset plus a multiple of each stride. So they overlap if an
 * equation of bounded integers has a solution. The result is exact for any
 * strides.
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

/* Most steps of the search for all calls of a caller; each call uses some. */
#define OVERLAP_STEPS (1L << 24)

/* Two elements of one box, which is not empty and ends below 2^63. */
enum overlap overlap_within(const dicomm_box_t *box, int axes, long *steps);
/* An element of one box and an element of the other. */
enum overlap overlap_between(const dicomm_box_t *a, const dicomm_box_t *b,
			     int axes, long *steps);

#endif
