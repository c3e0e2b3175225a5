/* SPDX-License-Identifier: BSD-3-Clause */
/* Many more ranks than cores meet, compute and end within a minute. With
 * DICOMM_TEST_LONG=1 they are 512. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/support/trial.h"

#define LIMIT_S 60

static void run(struct job_rank *me)
{
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_INT64,
			  .op = DICOMM_SUM,
			  .count = 1000};
	dicomm_stats_t stats = {.size = sizeof(stats)};

	trial_run(t, me);
	JOB_TRY(dicomm_barrier(me->comm, NULL));
	/* Paths are made as they are needed, not to everybody. */
	JOB_TRY(dicomm_comm_stats(me->comm, &stats));
	JOB_CHECK(stats.connected_peers < 32, "%d peers",
		  (int)stats.connected_peers);
}

static int many(void)
{
	const char *text = getenv("DICOMM_TEST_LONG");

	return text && !strcmp(text, "1") ? 512 : 64;
}

START_TEST(many_processes_are_ranks)
{
	job_run(&(struct job){
		.run = run, .ranks = many(), .timeout_s = LIMIT_S});
}
END_TEST

START_TEST(many_threads_are_ranks)
{
	job_run(&(struct job){.run = run,
			      .ranks = 64,
			      .threads = true,
			      .timeout_s = LIMIT_S});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("many ranks");
	TCase *tcase = tcase_create("many ranks");

	tcase_set_timeout(tcase, LIMIT_S + 5);
	tcase_add_test(tcase, many_processes_are_ranks);
	tcase_add_test(tcase, many_threads_are_ranks);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
