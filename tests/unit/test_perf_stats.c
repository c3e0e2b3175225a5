/* SPDX-License-Identifier: BSD-3-Clause */
/* Percentiles and histograms of times. */
#include <check.h>
#include <stdlib.h>

#include "perftest/base/stats.h"
#include "tests/support/runner.h"

/* 1 ... n, in an order that is not sorted. */
static double *shuffled(size_t n)
{
	double *t = calloc(n, sizeof(*t));

	ck_assert_ptr_nonnull(t);
	for (size_t i = 0; i < n; i++)
		t[i] = (double)(i * 37 % n + 1);
	return t;
}

START_TEST(percentiles_are_by_nearest_rank)
{
	static const struct {
		size_t n;
		double p50, p95, p99;
	} cases[] = {
		{1, 1, 1, 1},         {2, 1, 2, 2},      {3, 2, 3, 3},
		{20, 10, 19, 20},     {100, 50, 95, 99}, {101, 51, 96, 100},
		{200, 100, 190, 198},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double *t = shuffled(cases[i].n);
		struct stats s;

		ck_assert_int_eq(stats_compute(&s, t, cases[i].n), 0);
		ck_assert_double_eq(s.min, 1);
		ck_assert_double_eq(s.max, (double)cases[i].n);
		ck_assert_double_eq(s.p50, cases[i].p50);
		ck_assert_double_eq(s.p95, cases[i].p95);
		ck_assert_double_eq(s.p99, cases[i].p99);
		free(t);
	}
}
END_TEST

START_TEST(mean_and_deviation_are_of_all_times)
{
	const double t[] = {2, 4, 4, 4, 5, 5, 7, 9};
	struct stats s;

	ck_assert_int_eq(stats_compute(&s, t, 8), 0);
	ck_assert_double_eq(s.avg, 5);
	ck_assert_double_eq(s.stdev, 2);
}
END_TEST

static void check_histogram(const double *t, size_t n)
{
	struct stats_histogram h;
	size_t sum = 0;

	stats_histogram(&h, t, n);
	ck_assert_int_ge(h.bins, 1);
	ck_assert_int_le(h.bins, STATS_BINS);
	for (int b = 0; b < h.bins; b++) {
		size_t inside = 0;

		ck_assert_double_lt(h.from[b], h.from[b + 1]);
		for (size_t i = 0; i < n; i++)
			inside += t[i] >= h.from[b] && t[i] < h.from[b + 1];
		ck_assert_uint_eq(h.count[b], inside);
		sum += h.count[b];
	}
	ck_assert_uint_eq(sum, n);
	ck_assert_uint_gt(h.count[0], 0);
	ck_assert_uint_gt(h.count[h.bins - 1], 0);
}

START_TEST(a_histogram_counts_every_time_in_its_bin)
{
	double t[4096];

	for (size_t i = 0; i < 4096; i++)
		t[i] = 1e-6 * (double)(i * 37 % 4096 + 1);
	for (size_t n = 1; n <= 4096; n = 2 * n + 1)
		check_histogram(t, n);
	/* on the edges of bins */
	for (size_t i = 0; i < 40; i++)
		t[i] = 1.0 / (double)(1ull << i);
	for (size_t n = 1; n <= 40; n++)
		check_histogram(t, n);
}
END_TEST

START_TEST(a_histogram_of_equal_times_has_one_bin)
{
	const double t[] = {3e-6, 3e-6, 3e-6};
	struct stats_histogram h;

	stats_histogram(&h, t, 3);
	ck_assert_int_eq(h.bins, 1);
	ck_assert_uint_eq(h.count[0], 3);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("perf_stats");
	TCase *tests = tcase_create("stats");

	tcase_add_test(tests, percentiles_are_by_nearest_rank);
	tcase_add_test(tests, mean_and_deviation_are_of_all_times);
	tcase_add_test(tests, a_histogram_counts_every_time_in_its_bin);
	tcase_add_test(tests, a_histogram_of_equal_times_has_one_bin);
	suite_add_tcase(suite, tests);
	return runner_main(suite);
}
