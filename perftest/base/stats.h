/* SPDX-License-Identifier: BSD-3-Clause */
/* What a set of times looks like: extremes, percentiles, histogram. */
#ifndef DICOMM_PERFTEST_BASE_STATS_H
#define DICOMM_PERFTEST_BASE_STATS_H

#include <stddef.h>

struct stats {
	double min, max, avg, p50, p95, p99, stdev;
};

/* n > 0. Percentiles are by nearest rank: the smallest of the times that at
 * least so many per cent do not exceed. -1 if out of memory. */
int stats_compute(struct stats *s, const double *times, size_t n);

#define STATS_BINS 96

/* Bins of equal width on a logarithmic scale. */
struct stats_histogram {
	int bins;
	double from[STATS_BINS + 1]; /* bin b holds from[b] <= t < from[b+1] */
	size_t count[STATS_BINS];
};

/* Four bins for each doubling, or one where that would be too many. n > 0,
 * times > 0. */
void stats_histogram(struct stats_histogram *h, const double *times, size_t n);

#endif
