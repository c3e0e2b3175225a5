/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics of a set of times: extremes, percentiles, histogram. */
#ifndef DICOMM_PERFTEST_BASE_STATS_H
#define DICOMM_PERFTEST_BASE_STATS_H

#include <stddef.h>

struct stats {
	double min, max, avg, p50, p95, p99, stdev;
};

/* Computes the statistics of n > 0 times. A percentile is the smallest time
 * that is at least as large as that percentage of all times (nearest rank).
 * Returns -1 if there is no memory. */
int stats_compute(struct stats *s, const double *times, size_t n);

#define STATS_BINS 96

/* Bins of equal width on a logarithmic scale. */
struct stats_histogram {
	int bins;
	double from[STATS_BINS + 1]; /* bin b holds from[b] <= t < from[b+1] */
	size_t count[STATS_BINS];
};

/* Makes four bins per doubling, or one if that would be too many. n and all
 * times must be above 0. */
void stats_histogram(struct stats_histogram *h, const double *times, size_t n);

#endif
