/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks on unlike devices in one communicator. Of these, PoCL's is a real one,
 * whose kernels run on the processor; CUDA's and HIP's are mocks, and what
 * passes here says nothing about a GPU.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/trial.h"

struct cast {
	const char *device[4]; /* of rank r % 4 */
	void (*run)(struct job_rank *me, struct gadget *g);
	const void *arg;
};

/* ---- ranks ---- */

/* A rank whose device is none of this machine is one of the host. */
static void act(struct job_rank *me)
{
	const struct cast *cast = me->arg;
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	struct gadget g;

	gadget_open(&g, cast->device[me->rank % 4]);
	config.device = g.name;
	me->arg = cast->arg;
	JOB_TRY(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
					     me->rank, &config));
	cast->run(me, &g);
	job_barrier();
	JOB_CHECK(!gadget_hangs(&g), "%d calls would have waited for a stream",
		  gadget_hangs(&g));
	gadget_close(&g);
}

static void play(const struct cast *cast, int ranks)
{
	job_run(&(struct job){.run = act,
			      .arg = cast,
			      .ranks = ranks,
			      .bare = true,
			      .timeout_s = 60});
}

static void on_gadget(struct trial t, const struct job_rank *me,
		      struct gadget *g)
{
	t.gadget = g->accel->work ? g : NULL;
	trial_run(t, me);
}

static uint64_t staged(dicomm_comm_t comm)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};

	JOB_TRY(dicomm_comm_stats(comm, &stats));
	return stats.bytes_staged;
}

/* ---- two ranks ---- */

static void sum(struct job_rank *me, struct gadget *g)
{
	on_gadget((struct trial){.kind = TRIAL_ALLREDUCE,
				 .type = DICOMM_FLOAT32,
				 .op = DICOMM_SUM,
				 .count = 1000},
		  me, g);
	JOB_CHECK(staged(me->comm) == 4000, "%llu bytes were staged",
		  (unsigned long long)staged(me->comm));
}

START_TEST(a_host_and_a_device_reduce_together)
{
	play(&(struct cast){.device = {"host", "cuda:0"}, .run = sum}, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("devices");
	TCase *tcase = tcase_create("devices");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, a_host_and_a_device_reduce_together);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
