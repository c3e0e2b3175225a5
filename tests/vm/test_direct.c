// SPDX-License-Identifier: BSD-3-Clause
/*
 * Ranks on unlike devices, whose data a NIC takes from the memory of one and
 * brings to that of the other. The devices are mocks, and so is the module by
 * which the NIC reaches them: what passes here says nothing about a GPU. A host
 * that touches the memory of a device dies. Runs in the virtual machines of
 * tests/vm/run only.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mock/peer_memory.h"
#include "tests/support/cast.h"
#include "tests/support/runner.h"
#include "tests/support/vm.h"

static struct vm vm;

static dicomm_stats_t stats_of(const struct job_rank *me)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};

	JOB_TRY(dicomm_comm_stats(me->comm, &stats));
	return stats;
}

static void sum(struct job_rank *me, struct gadget *g)
{
	cast_trial((struct trial){.kind = TRIAL_ALLREDUCE,
				  .type = DICOMM_FLOAT32,
				  .op = DICOMM_SUM,
				  .count = 1000},
		   me, g);
}

/* ---- direct ---- */

/* Of two ranks, each receives the other's input once. */
static void sum_direct(struct job_rank *me, struct gadget *g)
{
	dicomm_stats_t stats;
	char text[4096];

	sum(me, g);
	stats = stats_of(me);
	JOB_CHECK(stats.bytes_staged == 0 && stats.bytes_direct == 4000 &&
			  stats.bytes_rdma == 4000,
		  "staged %d, direct %d, by rdma %d", (int)stats.bytes_staged,
		  (int)stats.bytes_direct, (int)stats.bytes_rdma);
	JOB_CHECK(!g->accel->work == !peer_memory_flushes(), "%d flushes on %s",
		  (int)peer_memory_flushes(), g->name);
	JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", 1000, DICOMM_FLOAT32,
				    text, sizeof(text)));
	JOB_CHECK(strstr(text, "rdma by verbs: peer memory (no dma-buf: "),
		  "%s", text);
}

START_TEST(data_between_unlike_devices_is_not_staged)
{
	const char *const pairs[][2] = {
		{"host", "hip:1"}, {"hip:0", "hip:1"}, {"cuda:0", "hip:0"}};

	/* By itself, for shared memory leads to neither. */
	if (_i == 2)
		unsetenv("DICOMM_TRANSPORTS");
	cast_play(&(struct cast){.device = {pairs[_i][0], pairs[_i][1]},
				 .run = sum_direct,
				 .staging = "never"},
		  2);
}
END_TEST

/* Each operation, from one element to many slices; of what kernels do, less,
 * for their interpreter is slow there. */
static void everything(struct job_rank *me, struct gadget *g)
{
	static const dicomm_datatype_t types[] = {DICOMM_INT32, DICOMM_BFLOAT16,
						  DICOMM_UINT8, DICOMM_FLOAT64};
	static const dicomm_redop_t ops[] = {DICOMM_SUM, DICOMM_MAX,
					     DICOMM_AVG};
	const size_t counts[] = {1, 30001};
	struct trial t = {.kind = TRIAL_ALLREDUCE};

	gadget_delay(g, 300);
	for (int k = 0; k < TRIAL_KINDS; k++)
		for (int c = 0; c < 2; c++) {
			t.kind = (enum trial_kind)k;
			t.seed++;
			t.type = types[(k + c) % 4];
			t.op = ops[(k + c) % 3];
			t.count = counts[c];
			if (trial_reduces(t.kind) && c)
				t.count /= 10;
			if (trial_rooted(t.kind))
				t.root = (int)t.seed % me->ranks;
			t.in_place = trial_can_be_in_place(t.kind) &&
				     (k / 2 + c) % 2;
			t.skew = t.seed % 5;
			cast_trial(t, me, g);
		}
	t = (struct trial){
		.kind = TRIAL_SENDRECV, .type = DICOMM_INT32, .count = 700007};
	cast_trial(t, me, g);
	JOB_CHECK(!cast_staged(me->comm), "%llu bytes were staged",
		  (unsigned long long)cast_staged(me->comm));
}

START_TEST(every_operation_is_direct)
{
	cast_play(&(struct cast){.device = {"host", "cuda:0", "hip:0"},
				 .run = everything,
				 .staging = "never"},
		  3);
}
END_TEST

static void describe(struct job_rank *me)
{
	dicomm_adapter_info_t a;
	struct gadget g;
	int direct = 0;

	(void)me;
	gadget_open(&g, "hip:0");
	for (int i = 0; dicomm_adapter_info(i, &a) == DICOMM_SUCCESS; i++)
		direct +=
			a.direct && !strcmp(a.device, "hip:0") &&
			!strcmp(a.adapter, "rxe0:1") &&
			!strcmp(a.transport, "verbs") &&
			!strncmp(a.how, "peer memory (no dma-buf: rxe0: ", 31);
	JOB_CHECK(direct == 1, "hip:0 and rxe0 were described %d times",
		  direct);
	gadget_close(&g);
	JOB_CHECK(!gadget_live(&g), "%d things of the driver were not freed",
		  gadget_live(&g));
}

START_TEST(adapters_are_described)
{
	job_run(&(struct job){.run = describe, .ranks = 1, .bare = true});
}
END_TEST

/* ---- not direct ---- */

static void sum_staged(struct job_rank *me, struct gadget *g)
{
	sum(me, g);
	JOB_CHECK(cast_staged(me->comm) == 4000, "%llu bytes were staged",
		  (unsigned long long)cast_staged(me->comm));
	JOB_CHECK(!peer_memory_flushes(), "flushed");
}

START_TEST(what_the_nic_does_not_take_is_staged)
{
	peer_memory_works(0);
	cast_play(
		&(struct cast){.device = {"host", "hip:0"}, .run = sum_staged},
		2);
}
END_TEST

static void be_refused(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	struct gadget g;
	const char *text;

	gadget_open(&g, me->rank ? "hip:0" : "host");
	config.device = g.name;
	config.staging = "never";
	JOB_REFUSED(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
						 me->rank, &config),
		    DICOMM_ERR_NO_PATH,
		    "between rank 0 (host) and rank 1 (hip");
	text = dicomm_get_last_error(NULL);
	JOB_CHECK(strstr(text, vm.iwarp ? "over iWARP" : "no peer memory: "),
		  "%s", text);
	gadget_close(&g);
}

START_TEST(staging_never_names_what_the_nic_said)
{
	peer_memory_works(0);
	job_run(&(struct job){.run = be_refused, .ranks = 2, .bare = true});
}
END_TEST

static void add_direct(TCase *t)
{
	tcase_add_loop_test(t, data_between_unlike_devices_is_not_staged, 0, 3);
	tcase_add_test(t, adapters_are_described);
	tcase_add_test(t, every_operation_is_direct);
}

int main(void)
{
	TCase *test_case = tcase_create("direct");
	Suite *suite = suite_create("direct");

	if (!vm_find(&vm))
		return 77;
	if (!cast_has("cuda:0") || !cast_has("hip:0"))
		return 77;
	setenv("DICOMM_TRANSPORTS", "verbs", 1);
	tcase_set_timeout(test_case, 60);
	tcase_add_test(test_case, staging_never_names_what_the_nic_said);
	tcase_add_test(test_case, what_the_nic_does_not_take_is_staged);
	if (!vm.iwarp)
		add_direct(test_case);
	suite_add_tcase(suite, test_case);
	return runner_main(suite);
}
