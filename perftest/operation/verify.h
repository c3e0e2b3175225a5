/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data whose result is known. Inputs are made so that every partial result, in
 * whatever order and however often it is rounded to its type, is exact; so one
 * differing bit is an error. The one exception, the average of floats over a
 * number of ranks that is no power of two, has a bound on the rounding error.
 *
 * A pattern is a table of VERIFY_PERIOD elements. Element i of a buffer is an
 * element of the table; each period starts elsewhere in it, so that data which
 * lands in the wrong place by any distance differs. Filling and checking run
 * at the speed of memcpy and memcmp.
 */
#ifndef DICOMM_PERFTEST_OPERATION_VERIFY_H
#define DICOMM_PERFTEST_OPERATION_VERIFY_H

#include "perftest/operation/type.h"

#define VERIFY_PERIOD 1021 /* a prime: no chunk size is a multiple of it */

struct verify_pattern {
	const struct type *type;
	bool exact;
	/* The table twice in a row, so that a period is contiguous. */
	uint64_t bits[2 * VERIFY_PERIOD]; /* as an array of type */
	double tolerance[VERIFY_PERIOD];
};

/* Random bits: what is only moved must arrive whatever it is. */
void verify_data(struct verify_pattern *p, const struct type *t, uint64_t seed);
/* What rank contributes to a reduction, and what comes out. */
void verify_input(struct verify_pattern *p, const struct type *t,
		  enum reduction r, uint64_t seed, int rank, int ranks);
void verify_output(struct verify_pattern *p, const struct type *t,
		   enum reduction r, uint64_t seed, int ranks);
/* The scalar of a rank's mulsum operator: 1 or 2. */
int verify_scalar(int rank);

/* Elements base ... base + count - 1 of the pattern. */
void verify_fill(const struct verify_pattern *p, void *at, size_t base,
		 size_t count);
/* How many of count elements differ from them? */
size_t verify_wrong(const struct verify_pattern *p, const void *at, size_t base,
		    size_t count);

#endif
