/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data whose reduction is known. Inputs are made such that every partial result
 * is exact, in whatever order it is computed and however often it is rounded to
 * its type. So one different bit is an error. There is one exception: the
 * average of floats over a number of ranks that is not a power of two has a
 * bound on its rounding error.
 *
 * A pattern is a table of VERIFY_PERIOD elements. Each element of a buffer is
 * an element of the table. Each period of a buffer starts elsewhere in the
 * table, so data that arrives in the wrong place is detected, whatever the
 * distance. Filling and checking run at the speed of memcpy and memcmp.
 */
#ifndef DICOMM_PERFTEST_OPERATION_VERIFY_H
#define DICOMM_PERFTEST_OPERATION_VERIFY_H

#include "perftest/operation/type.h"

#define VERIFY_PERIOD 1021 /* a prime, so no chunk size is a multiple of it */

struct verify_pattern {
	const struct type *type;
	bool exact;
	/* The table, twice in a row, so that a period is contiguous. */
	uint64_t bits[2 * VERIFY_PERIOD]; /* used as an array of the type */
	double tolerance[VERIFY_PERIOD];
};

/* Makes a pattern of random bits: data that is only moved must arrive, whatever
 * it is. */
void verify_data(struct verify_pattern *p, const struct type *t, uint64_t seed);
/* Make the patterns of what a rank contributes to a reduction, and of the
 * result. */
void verify_input(struct verify_pattern *p, const struct type *t,
		  enum reduction r, uint64_t seed, int rank, int ranks);
void verify_output(struct verify_pattern *p, const struct type *t,
		   enum reduction r, uint64_t seed, int ranks);
/* Returns the scalar of a rank's mulsum operator: 1 or 2. */
int verify_scalar(int rank);

/* Writes elements base ... base + count - 1 of the pattern. */
void verify_fill(const struct verify_pattern *p, void *at, size_t base,
		 size_t count);
/* Returns how many of `count` elements differ from the pattern. */
size_t verify_wrong(const struct verify_pattern *p, const void *at, size_t base,
		    size_t count);

#endif
