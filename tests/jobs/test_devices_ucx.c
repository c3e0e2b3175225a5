// SPDX-License-Identifier: BSD-3-Clause
/*
 * Ranks on unlike devices whose data UCX takes from the memory of one and
 * brings to that of the other, over TCP. The devices are mocks, and so is what
 * UCX knows of them: what passes here says nothing about a GPU. A host that
 * touches the memory of a device dies.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mock/ucx_devices.h"
#include "tests/support/cast.h"
#include "tests/support/puts.h"
#include "tests/support/runner.h"
#include "transports/ucx/load.h"

/* ---- UCX takes them ---- */

static void sum_direct(struct job_rank *me, struct gadget *g)
{
	char text[4096];

	cast_sum_direct(me, g, text, sizeof(text));
	JOB_CHECK(strstr(text, "rdma by ucx: memory of ") &&
			  strstr(text, ", over TCP through host memory of its "
				       "own"),
		  "%s", text);
}

START_TEST(data_between_unlike_devices_is_not_staged)
{
	const char *const pairs[][2] = {
		{"host", "hip:1"}, {"hip:0", "hip:1"}, {"cuda:0", "hip:0"}};

	/* As users name them; this one leaves them out. */
	if (_i)
		setenv("UCX_TLS", "tcp,cuda,rocm", 1);
	ucx_devices_play(true);
	cast_play(&(struct cast){.device = {pairs[_i][0], pairs[_i][1]},
				 .run = sum_direct,
				 .staging = "never"},
		  2);
}
END_TEST

/* Each operation, from one element to many slices; of what kernels do, less,
 * for their interpreter is slow. */
static void everything(struct job_rank *me, struct gadget *g)
{
	const size_t counts[] = {1, 100003};
	struct trial t = {.type = DICOMM_INT32, .op = DICOMM_SUM};

	gadget_delay(g, 300);
	for (int k = 0; k < TRIAL_KINDS; k++)
		for (int c = 0; c < 2; c++) {
			t.kind = (enum trial_kind)k;
			t.seed++;
			t.count = counts[c];
			if (trial_reduces(t.kind) && c)
				t.count /= 20;
			t.root = trial_rooted(t.kind) ? (int)t.seed % me->ranks
						      : 0;
			t.in_place = trial_can_be_in_place(t.kind) &&
				     (k / 2 + c) % 2;
			cast_trial(t, me, g);
		}
	JOB_CHECK(!cast_staged(me), "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
}

START_TEST(every_operation_is_direct)
{
	ucx_devices_play(true);
	cast_play(&(struct cast){.device = {"host", "cuda:0", "hip:0"},
				 .run = everything,
				 .staging = "never"},
		  3);
}
END_TEST

/* ---- buffers of users ---- */

static void announce(struct job_rank *me, struct gadget *g)
{
	static const enum trial_kind kinds[] = {TRIAL_SENDRECV, TRIAL_BROADCAST,
						TRIAL_ALLTOALLV};
	struct trial t = {.type = DICOMM_INT32};

	for (unsigned i = 0; i < 6; i++) {
		uint64_t with, without;

		t.kind = kinds[i / 2];
		t.count = i % 2 ? 100003 : 20;
		t.seed = i;
		t.announced = false;
		without = cast_copied(t, me, g);
		t.announced = true;
		with = cast_copied(t, me, g);
		JOB_CHECK(without && !with,
			  "%s of %zu: copied %llu bytes, announced %llu",
			  trial_name(t.kind), t.count,
			  (unsigned long long)without,
			  (unsigned long long)with);
	}
	JOB_CHECK(!cast_staged(me), "staged");
}

START_TEST(announced_buffers_are_not_copied)
{
	ucx_devices_play(true);
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0"},
				 .run = announce,
				 .staging = "never"},
		  2);
}
END_TEST

/* UCX brings bytes from the memory of one device to the window on another. */
START_TEST(nothing_of_a_put_is_staged)
{
	ucx_devices_play(true);
	cast_play(&(struct cast){.device = {_i ? "host" : "cuda:0", "hip:0"},
				 .run = puts_run,
				 .arg = puts_directly,
				 .staging = "never"},
		  2);
}
END_TEST

START_TEST(nothing_comes_after_an_abort)
{
	ucx_devices_play(true);
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0"},
				 .run = cast_give_up,
				 .staging = "never"},
		  2);
}
END_TEST

/* ---- it does not ---- */

static void sum_staged(struct job_rank *me, struct gadget *g)
{
	char text[4096];

	cast_sum(me, g);
	JOB_CHECK(cast_staged(me) == 4000, "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
	JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", 1000, DICOMM_FLOAT32,
				    text, sizeof(text)));
	JOB_CHECK(strstr(text, me->arg), "%s", text);
}

/* As UCX is here, where a map fails, and one that copies memory of CUDA only
 * where the caller has a context. */
static const struct {
	const char *device, *why;
	bool plays, maps, old;
} refusals[] = {
	{"hip:0", "memory of hip:0 (ucx: UCX ", .plays = false},
	{"hip:0", "memory of hip:0 (ucx: ucp_mem_map of rocm: ", .plays = true},
	{"cuda:0", "only in threads with a CUDA context", true, true, true},
};

START_TEST(what_ucx_does_not_take_is_staged)
{
	if (refusals[_i].plays)
		ucx_devices_play(refusals[_i].maps);
	if (refusals[_i].old)
		ucx.needs_no_context = false;
	cast_play(&(struct cast){.device = {"host", refusals[_i].device},
				 .run = sum_staged,
				 .arg = refusals[_i].why},
		  2);
}
END_TEST

static void be_refused(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	struct gadget g;
	const char *text;

	gadget_open(&g, me->rank ? "cuda:0" : "host");
	config.device = g.name;
	config.staging = "never";
	JOB_REFUSED(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
						 me->rank, &config),
		    DICOMM_ERR_NO_PATH,
		    "between rank 0 (host) and rank 1 (cuda:0)");
	text = dicomm_get_last_error(NULL);
	JOB_CHECK(strstr(text, "takes no memory of cuda: it was built without, "
			       "or UCX_TLS (tcp,cuda) leaves that out"),
		  "%s", text);
	gadget_close(&g);
}

START_TEST(staging_never_names_what_ucx_lacks)
{
	setenv("UCX_TLS", "tcp,cuda", 1);
	job_run(&(struct job){.run = be_refused, .ranks = 2, .bare = true});
}
END_TEST

int main(void)
{
	TCase *test_case = tcase_create("devices_ucx");
	Suite *suite = suite_create("devices_ucx");

	if (job_has_thread_sanitizer()) {
		printf("the thread sanitizer does not see the locks of UCX\n");
		return 77;
	}
	if (!cast_has("cuda:0") || !cast_has("hip:0"))
		return 77;
	setenv("DICOMM_TRANSPORTS", "ucx", 1);
	tcase_set_timeout(test_case, 60);
	tcase_add_loop_test(test_case,
			    data_between_unlike_devices_is_not_staged, 0, 3);
	tcase_add_test(test_case, every_operation_is_direct);
	tcase_add_test(test_case, announced_buffers_are_not_copied);
	tcase_add_loop_test(test_case, nothing_of_a_put_is_staged, 0, 2);
	tcase_add_test(test_case, nothing_comes_after_an_abort);
	tcase_add_loop_test(test_case, what_ucx_does_not_take_is_staged, 0,
			    sizeof(refusals) / sizeof(*refusals));
	tcase_add_test(test_case, staging_never_names_what_ucx_lacks);
	suite_add_tcase(suite, test_case);
	return runner_main(suite);
}
