/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics of times. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perftest/base/stats.h"

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

static double percentile(const double *sorted, size_t n, size_t percent)
{
	size_t rank = (n * percent + 99) / 100;

	return sorted[rank > 0 ? rank - 1 : 0];
}

int stats_compute(struct stats *s, const double *times, size_t n)
{
	double *sorted = malloc(n * sizeof(*sorted));
	double sum = 0, squares = 0;

	if (!sorted)
		return -1;
	memcpy(sorted, times, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare);
	for (size_t i = 0; i < n; i++)
		sum += sorted[i];
	s->min = sorted[0];
	s->max = sorted[n - 1];
	s->avg = sum / (double)n;
	s->p50 = percentile(sorted, n, 50);
	s->p95 = percentile(sorted, n, 95);
	s->p99 = percentile(sorted, n, 99);
	for (size_t i = 0; i < n; i++)
		squares += (sorted[i] - s->avg) * (sorted[i] - s->avg);
	s->stdev = sqrt(squares / (double)n);
	free(sorted);
	return 0;
}

static int bin_of(double t, double lowest, double per_doubling)
{
	return (int)floor((log2(t) - lowest) * per_doubling);
}

void stats_histogram(struct stats_histogram *h, const double *times, size_t n)
{
	double min = times[0], max = times[0];
	double per_doubling = 4;
	double lowest;

	for (size_t i = 1; i < n; i++) {
		min = times[i] < min ? times[i] : min;
		max = times[i] > max ? times[i] : max;
	}
	if (log2(max / min) > 6)
		per_doubling = 1;
	memset(h, 0, sizeof(*h));
	lowest = floor(log2(min) * per_doubling) / per_doubling;
	h->bins = bin_of(max, lowest, per_doubling) + 1;
	if (h->bins > STATS_BINS)
		h->bins = STATS_BINS;
	for (int b = 0; b <= h->bins; b++)
		h->from[b] = exp2(lowest + b / per_doubling);
	for (size_t i = 0; i < n; i++) {
		int b = bin_of(times[i], lowest, per_doubling);

		b = b < 0 ? 0 : b >= h->bins ? h->bins - 1 : b;
		/* The logarithm may be rounded across the edge that is
		 * printed. */
		if (b > 0 && times[i] < h->from[b])
			b--;
		else if (b + 1 < h->bins && times[i] >= h->from[b + 1])
			b++;
		h->count[b]++;
	}
}
