/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes on the command line, and the steps of a sweep. */
#include <check.h>
#include <stdint.h>

#include "perftest/base/size.h"
#include "tests/support/runner.h"

START_TEST(suffixes_are_powers_of_1024)
{
	static const struct {
		const char *text;
		size_t bytes;
	} cases[] = {
		{"0", 0},
		{"8", 8},
		{"1k", 1024},
		{"32K", 32 << 10},
		{"1.5M", 3 << 19},
		{"1G", 1 << 30},
		{"2GB", 2ull << 30},
		{"4MiB", 4 << 20},
		{"64B", 64},
		{"1T", 1ull << 40},
		{"512 K", 512 << 10},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t bytes = 1;

		ck_assert_msg(size_parse(cases[i].text, &bytes), "%s",
			      cases[i].text);
		ck_assert_uint_eq(bytes, cases[i].bytes);
	}
}
END_TEST

START_TEST(what_is_no_size_is_refused)
{
	static const char *const cases[] = {"",    "x",   "-1",    "1X", "1Kx",
					    "nan", "inf", "1e300", "K"};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t bytes = 77;

		ck_assert_msg(!size_parse(cases[i], &bytes), "%s", cases[i]);
		ck_assert_uint_eq(bytes, 77);
	}
}
END_TEST

START_TEST(zero_times_a_factor_goes_to_one_element)
{
	ck_assert_uint_eq(size_next(0, 1024, 2, 0, 4), 4);
	ck_assert_uint_eq(size_next(4, 1024, 2, 0, 4), 8);
	ck_assert_uint_eq(size_next(0, 3, 2, 0, 4), 0);
}
END_TEST

START_TEST(a_sweep_ends_at_its_maximum)
{
	ck_assert_uint_eq(size_next(512, 1024, 2, 0, 4), 1024);
	ck_assert_uint_eq(size_next(1024, 1024, 2, 0, 4), 0);
	ck_assert_uint_eq(size_next(1000, 1024, 0, 24, 4), 1024);
	ck_assert_uint_eq(size_next(1000, 1024, 1, 25, 4), 0);
	ck_assert_uint_eq(size_next(1000, 1024, 0, 0, 4), 0);
}
END_TEST

START_TEST(a_sweep_does_not_overflow)
{
	ck_assert_uint_eq(size_next(SIZE_MAX / 2, SIZE_MAX, 3, 0, 4), 0);
	ck_assert_uint_eq(size_next(SIZE_MAX - 1, SIZE_MAX, 0, 2, 4), 0);
}
END_TEST

START_TEST(sizes_are_printed_with_three_digits)
{
	char text[32];

	size_print(text, sizeof(text), 0);
	ck_assert_str_eq(text, "0.00 B");
	size_print(text, sizeof(text), 1536);
	ck_assert_str_eq(text, "1.50 KB");
	size_print(text, sizeof(text), 48.0 * 1024 * 1024);
	ck_assert_str_eq(text, "48.0 MB");
	size_print(text, sizeof(text), 2048.0 * 1024 * 1024 * 1024);
	ck_assert_str_eq(text, "2048 GB");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("perf_size");
	TCase *tests = tcase_create("size");

	tcase_add_test(tests, suffixes_are_powers_of_1024);
	tcase_add_test(tests, what_is_no_size_is_refused);
	tcase_add_test(tests, zero_times_a_factor_goes_to_one_element);
	tcase_add_test(tests, a_sweep_ends_at_its_maximum);
	tcase_add_test(tests, a_sweep_does_not_overflow);
	tcase_add_test(tests, sizes_are_printed_with_three_digits);
	suite_add_tcase(suite, tests);
	return runner_main(suite);
}
