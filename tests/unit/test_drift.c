/* SPDX-License-Identifier: BSD-3-Clause */
/* Which times of operations tell that links have changed. */
#include <check.h>

#include "src/links/drift.h"
#include "tests/support/runner.h"

static struct drift_watch watch;

static void set_up(void)
{
	drift_watch_init(&watch, 0);
}

/* A batch in which all operations took as long. */
static bool batch(uint32_t took)
{
	uint32_t all[DRIFT_BATCH];

	for (int i = 0; i < DRIFT_BATCH; i++)
		all[i] = took;
	return drift_watch_batch(&watch, all, true);
}

/* Batches of `took` until it is time to measure; 0: never. */
static int batches_until(uint32_t took)
{
	for (int i = 1; i < 1000; i++)
		if (batch(took))
			return i;
	return 0;
}

START_TEST(steady_times_are_no_news)
{
	static const uint32_t noise[] = {256, 200, 340, 256, 380, 180, 300};

	for (int i = 0; i < 700; i++)
		ck_assert(!batch(noise[i % 7]));
}
END_TEST

START_TEST(the_first_batch_does_not_count)
{
	ck_assert(!batch(100000));
	ck_assert_int_eq(batches_until(256), 0);
}
END_TEST

/* 20 operations are enough, wherever in a batch a link drops. */
START_TEST(slower_and_faster_is_noticed)
{
	static const uint32_t now[] = {8 * 256, 500, 100, 256 / 8};

	batch(256);
	batch(256);
	ck_assert_int_eq(batches_until(now[_i]), 2);
	ck_assert_int_le((2 + 1) * DRIFT_BATCH + 1, 20);
}
END_TEST

/* Nor need there be anything usual, where times can be expected: 12 operations
 * are enough. */
START_TEST(slower_from_the_start_is_noticed)
{
	drift_watch_init(&watch, 256);
	ck_assert_int_eq(batches_until(512), 1 + 2);
	drift_watch_measured(&watch, _i);
	/* What is wrong with it now is not the links. */
	ck_assert_int_eq(batches_until(512), 0);
	ck_assert_int_eq(batches_until(1024), 2);
}
END_TEST

/* Nor is the first change the last one. */
START_TEST(slower_than_expected_after_a_change_is_noticed)
{
	drift_watch_init(&watch, 256);
	batch(256);
	batch(256);
	ck_assert_int_eq(batches_until(512), 2);
	drift_watch_measured(&watch, true);
	ck_assert_int_eq(batches_until(512), 2);
	drift_watch_measured(&watch, true);
	ck_assert_int_eq(batches_until(512), 0);
}
END_TEST

/* Links may well be better than they are predicted to be. */
START_TEST(faster_from_the_start_is_usual)
{
	drift_watch_init(&watch, 256);
	ck_assert_int_eq(batches_until(64), 0);
	ck_assert_int_eq(batches_until(128), 2);
}
END_TEST

START_TEST(one_late_operation_is_not_enough)
{
	uint32_t took[DRIFT_BATCH] = {256, 256, 256, 100000};

	for (int i = 0; i < 100; i++)
		ck_assert(!drift_watch_batch(&watch, took, true));
	/* Nor one batch. */
	ck_assert(!batch(100000));
	ck_assert(!batch(256));
	ck_assert(!batch(100000));
}
END_TEST

START_TEST(what_may_not_be_done_is_done_later)
{
	uint32_t slow[DRIFT_BATCH] = {2560, 2560, 2560, 2560};

	batch(256);
	batch(256);
	for (int i = 0; i < 10; i++)
		ck_assert(!drift_watch_batch(&watch, slow, false));
	ck_assert(drift_watch_batch(&watch, slow, true));
}
END_TEST

/* Something else than the links makes operations slow: ask ever less. */
START_TEST(measuring_in_vain_makes_patient)
{
	int before = 2, n;

	batch(256);
	for (int i = 0; i < 10; i++) {
		batch(256);
		n = batches_until(2560);
		ck_assert_int_eq(n, before);
		drift_watch_measured(&watch, false);
		before = n < 64 ? 2 * n : 64;
	}
	batch(256);
	batches_until(2560);
	drift_watch_measured(&watch, true);
	/* What was unusual is usual by the new table. */
	batch(2560);
	ck_assert_int_eq(batches_until(2560), 0);
	ck_assert_int_eq(batches_until(256), 2);
}
END_TEST

/* What was in vain long ago is forgotten. */
START_TEST(calm_makes_impatient_again)
{
	batch(256);
	for (int i = 0; i < 3; i++) {
		batch(256);
		batches_until(2560);
		drift_watch_measured(&watch, false);
	}
	ck_assert_uint_eq(watch.patience, 16);
	ck_assert_int_eq(batches_until(256), 0);
	ck_assert_int_eq(batches_until(2560), 2);
}
END_TEST

START_TEST(extremes_are_numbers_as_others)
{
	batch(0);
	batch(0);
	ck_assert_int_eq(batches_until(UINT32_MAX), 2);
	drift_watch_measured(&watch, true);
	batch(UINT32_MAX);
	ck_assert_int_eq(batches_until(0), 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("drift");
	TCase *tc = tcase_create("all");

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, steady_times_are_no_news);
	tcase_add_test(tc, the_first_batch_does_not_count);
	tcase_add_loop_test(tc, slower_and_faster_is_noticed, 0, 4);
	tcase_add_loop_test(tc, slower_from_the_start_is_noticed, 0, 2);
	tcase_add_test(tc, slower_than_expected_after_a_change_is_noticed);
	tcase_add_test(tc, faster_from_the_start_is_usual);
	tcase_add_test(tc, one_late_operation_is_not_enough);
	tcase_add_test(tc, what_may_not_be_done_is_done_later);
	tcase_add_test(tc, measuring_in_vain_makes_patient);
	tcase_add_test(tc, calm_makes_impatient_again);
	tcase_add_test(tc, extremes_are_numbers_as_others);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
