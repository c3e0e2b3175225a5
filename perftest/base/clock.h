/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The clock of all measurements.
 */
#ifndef DICOMM_PERFTEST_BASE_CLOCK_H
#define DICOMM_PERFTEST_BASE_CLOCK_H

#include <time.h>

/* Returns seconds since some moment. The clock is never set back. */
static inline double clock_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
