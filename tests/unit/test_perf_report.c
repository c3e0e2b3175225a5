/* SPDX-License-Identifier: BSD-3-Clause */
/* The table is that of nccl-tests 2.19, character by character. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "perftest/report/report.h"
#include "tests/support/runner.h"

static void check_number(int width, double value, const char *expected)
{
	char text[64];

	report_number(text, sizeof(text), width, value);
	ck_assert_str_eq(text, expected);
}

START_TEST(numbers_have_as_many_decimals_as_fit)
{
	check_number(7, 50, "  50.00");
	check_number(7, 0, "   0.00");
	check_number(7, 1234.567, "1234.57");
	check_number(7, 12345.67, "12345.7");
	check_number(7, 123456.7, " 123457");
	check_number(7, 1234567, "1234567");
	check_number(7, 12345678, "1.2e+07");
	check_number(7, 9999.996, "10000.0");
	check_number(6, 36.7, " 36.70");
	check_number(6, 999.994, "999.99");
	check_number(6, 999.996, "1000.0");
	check_number(6, 12345.6, " 12346");
	check_number(6, 1234567, " 1e+06");
}
END_TEST

/* Where stdout goes meanwhile. */
static FILE *captured;
static int saved = -1;

static void capture_begin(void)
{
	fflush(stdout);
	captured = tmpfile();
	saved = dup(STDOUT_FILENO);
	ck_assert_ptr_nonnull(captured);
	ck_assert_int_ge(dup2(fileno(captured), STDOUT_FILENO), 0);
}

static void capture_expect(const char *expected)
{
	char text[8192];
	size_t n;

	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	rewind(captured);
	n = fread(text, 1, sizeof(text) - 1, captured);
	text[n] = '\0';
	fclose(captured);
	ck_assert_str_eq(text, expected);
}

static struct options options(void)
{
	return (struct options){
		.op = operation_find("allreduce"),
		.threads = 1,
		.devices = 1,
		.min_bytes = 8,
		.max_bytes = 1 << 20,
		.step_bytes = 1 << 20,
		.iters = 20,
		.agg_iters = 1,
		.warmup_iters = 1,
		.checks = 1,
	};
}

static const struct report_row row = {
	.size = 1048576,
	.count = 262144,
	.type = "float",
	.reduction = "sum",
	.root = -1,
	.out_of_place = {.time_us = 50,
			 .algorithm_gbs = 20.97,
			 .bus_gbs = 36.70,
			 .checked = true,
			 .stats = {.min = 40e-6,
				   .max = 60e-6,
				   .avg = 50e-6,
				   .p50 = 51e-6,
				   .p99 = 59e-6,
				   .stdev = 5e-6}},
	.in_place = {.time_us = 50,
		     .algorithm_gbs = 20.97,
		     .bus_gbs = 36.70,
		     .checked = true,
		     .stats = {.min = 41e-6,
			       .max = 61e-6,
			       .avg = 50e-6,
			       .p50 = 52e-6,
			       .p99 = 60e-6,
			       .stdev = 10e-6}},
};

START_TEST(the_head_says_what_is_run)
{
	struct options o = options();
	char expected[1024];

	snprintf(expected, sizeof(expected),
		 "# dicomm-perf version %d.%d.%d nccl-headers=%d "
		 "nccl-library=12345\n"
		 "# Collective test starting: all_reduce_perf\n"
		 "# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576 step: "
		 "1048576(bytes) warmup iters: 1 iters: 20 agg iters: 1 "
		 "validation: 1 graph: 0 unalign: 0\n"
		 "#\n",
		 DICOMM_VERSION_MAJOR, DICOMM_VERSION_MINOR,
		 DICOMM_VERSION_PATCH, DICOMM_VERSION);
	capture_begin();
	report_head(&o, 12345);
	capture_expect(expected);
	o.step_factor = 2;
	capture_begin();
	report_head(&o, 12345);
	memcpy(strstr(expected, "1048576(bytes)"), "2(factor) ", 10);
	memmove(strstr(expected, "(factor) ") + 9, strstr(expected, "warmup"),
		strlen(strstr(expected, "warmup")) + 1);
	capture_expect(expected);
}
END_TEST

START_TEST(a_device_has_a_line)
{
	struct report_device d = {.rank = 3,
				  .group = 1,
				  .pid = 4711,
				  .device = 0,
				  .host = "node7",
				  .pci = "0000:00:00",
				  .info = "host GenuineIntel"};

	capture_begin();
	report_devices(&d, 1);
	capture_expect("# Using devices\n"
		       "#  Rank  3 Group  1 Pid   4711 on      node7 device  0 "
		       "[0000:00:00] host GenuineIntel\n");
}
END_TEST

START_TEST(rows_stand_under_their_heads)
{
	struct options o = options();

	capture_begin();
	report_table_head(&o);
	report_row(&o, &row);
	capture_expect(
		"#\n"
		"#                                                             "
		" "
		"out-of-place                       in-place          \n"
		"#       size         count      type   redop    root     time "
		" "
		" algbw   busbw  #wrong     time   algbw   busbw  #wrong \n"
		"#        (B)    (elements)                               (us) "
		" "
		"(GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         \n"
		"     1048576        262144     float     sum      -1    50.00 "
		" "
		" 20.97   36.70       0    50.00   20.97   36.70       0\n");
}
END_TEST

START_TEST(an_unchecked_row_is_one_column_narrower)
{
	struct options o = options();
	struct report_row unchecked = row;

	unchecked.out_of_place.checked = false;
	unchecked.in_place.checked = false;
	capture_begin();
	report_row(&o, &unchecked);
	capture_expect(
		"     1048576        262144     float     sum      -1    50.00 "
		" "
		" 20.97   36.70    N/A    50.00   20.97   36.70    N/A\n");
}
END_TEST

START_TEST(single_iterations_have_columns)
{
	struct options o = options();

	o.per_iter = 1;
	capture_begin();
	report_table_head(&o);
	report_row(&o, &row);
	capture_expect(
		"#\n"
		"#                                                             "
		" "
		"   out-of-place (+ per-iteration)                             "
		" "
		"  in-place (+ per-iteration)\n"
		"#       size         count      type   redop    root     time "
		" "
		" algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%    "
		" "
		"time   algbw   busbw  #wrong    i_min    i_max    i_p99    "
		"i_cv% \n"
		"#        (B)    (elements)                               (us) "
		" "
		"(GB/s)  (GB/s)             (us)     (us)     (us)      (%)    "
		" "
		"(us)  (GB/s)  (GB/s)             (us)     (us)     (us)      "
		"(%) \n"
		"     1048576        262144     float     sum      -1    50.00 "
		" "
		" 20.97   36.70       0    40.00    60.00    59.00    10.00    "
		"50.00   20.97   36.70       0    41.00    61.00    60.00    "
		"20.00\n");
}
END_TEST

START_TEST(statistics_follow_the_classic_columns)
{
	struct options o = options();

	o.stats = 1;
	capture_begin();
	report_row(&o, &row);
	capture_expect(
		"     1048576        262144     float     sum      -1    50.00 "
		" "
		" 20.97   36.70       0    50.00   20.97   36.70       0    "
		"40.00    50.00    60.00    51.00    59.00    41.00    50.00   "
		" "
		"61.00    52.00    60.00\n");
}
END_TEST

START_TEST(the_foot_sums_up)
{
	struct options o = options();
	struct report_end end = {.average_bus_gbs = 36.7, .least_bus_gbs = -1};

	capture_begin();
	report_foot(&o, &end);
	report_close("");
	capture_expect("# Out of bounds values : 0 OK\n"
		       "# Avg bus bandwidth    : 36.7 \n"
		       "#\n"
		       "# Collective test concluded: all_reduce_perf\n"
		       "#\n"
		       "\n");
	end.failed_checks = 2;
	end.least_bus_gbs = 50;
	capture_begin();
	report_foot(&o, &end);
	report_close("broken");
	capture_expect("# Out of bounds values : 2 FAILED\n"
		       "# Avg bus bandwidth    : 36.7 FAILED\n"
		       "#\n"
		       "# Collective test concluded: all_reduce_perf\n"
		       "#\n"
		       "# error: broken\n");
	end.least_bus_gbs = 40; /* nine tenths are enough */
	end.failed_checks = 0;
	capture_begin();
	report_foot(&o, &end);
	capture_expect("# Out of bounds values : 0 OK\n"
		       "# Avg bus bandwidth    : 36.7 OK\n"
		       "#\n"
		       "# Collective test concluded: all_reduce_perf\n");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("perf_report");
	TCase *tests = tcase_create("report");

	tcase_add_test(tests, numbers_have_as_many_decimals_as_fit);
	tcase_add_test(tests, the_head_says_what_is_run);
	tcase_add_test(tests, a_device_has_a_line);
	tcase_add_test(tests, rows_stand_under_their_heads);
	tcase_add_test(tests, an_unchecked_row_is_one_column_narrower);
	tcase_add_test(tests, single_iterations_have_columns);
	tcase_add_test(tests, statistics_follow_the_classic_columns);
	tcase_add_test(tests, the_foot_sums_up);
	suite_add_tcase(suite, tests);
	return runner_main(suite);
}
