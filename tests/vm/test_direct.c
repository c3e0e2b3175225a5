// SPDX-License-Identifier: BSD-3-Clause
/*
 * Ranks on unlike devices, whose data a NIC takes from the memory of one and
 * brings to that of the other. The devices are mocks, and so is the module by
 * which the NIC reaches them: what passes here says nothing about a GPU. A host
 * that touches the memory of a device dies. Runs in the virtual machines of
 * tests/vm/run only.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mock/peer_memory.h"
#include "tests/support/cast.h"
#include "tests/support/puts.h"
#include "tests/support/runner.h"
#include "tests/support/vm.h"

static struct vm vm;

/* ---- direct ---- */

static void sum_direct(struct job_rank *me, struct gadget *g)
{
	char text[4096];

	cast_sum_direct(me, g, text, sizeof(text));
	JOB_CHECK(!g->accel->work == !peer_memory_flushes(), "%d flushes on %s",
		  (int)peer_memory_flushes(), g->name);
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
	JOB_CHECK(!cast_staged(me), "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
}

START_TEST(every_operation_is_direct)
{
	cast_play(&(struct cast){.device = {"host", "cuda:0", "hip:0"},
				 .run = everything,
				 .staging = "never"},
		  3);
}
END_TEST

/* ---- buffers of users ---- */

/* Sizes of one slice and of many. Of what is reduced a device takes in its part
 * in a stage, from where it reduces it. */
static void announce(struct job_rank *me, struct gadget *g)
{
	static const enum trial_kind kinds[] = {
		TRIAL_SENDRECV, TRIAL_BROADCAST, TRIAL_ALLGATHER,
		TRIAL_ALLTOALL, TRIAL_GATHER,    TRIAL_SCATTER,
		TRIAL_ALLTOALLV};
	struct trial t = {.type = DICOMM_INT32};
	char text[4096];

	gadget_delay(g, 300);
	for (unsigned i = 0; i < 14; i++) {
		uint64_t with, without;

		t.kind = kinds[i / 2];
		t.count = i % 2 ? 100003 : 20;
		t.seed = i;
		t.root = (int)i % me->ranks;
		t.announced = false;
		without = cast_copied(t, me, g);
		t.announced = true;
		with = cast_copied(t, me, g);
		if (!g->accel->work)
			continue;
		JOB_CHECK(without && !with,
			  "%s of %zu: copied %llu bytes, announced %llu",
			  trial_name(t.kind), t.count,
			  (unsigned long long)without,
			  (unsigned long long)with);
	}
	t.kind = TRIAL_ALLREDUCE;
	t.op = DICOMM_SUM;
	t.count = 30001;
	for (t.seed = 50; t.seed < 54; t.seed++)
		cast_trial(t, me, g);
	JOB_CHECK(!cast_staged(me), "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
	JOB_TRY(dicomm_comm_explain(me->comm, "broadcast", 1000, DICOMM_INT32,
				    text, sizeof(text)));
	JOB_CHECK(!g->accel->work == !strstr(text,
					     "in place, without a copy on the "
					     "device: 0 buffers, 0 bytes"),
		  "%s", text);
	JOB_CHECK(!g->accel->work == !peer_memory_flushes(), "%d flushes",
		  (int)peer_memory_flushes());
}

START_TEST(announced_buffers_are_not_copied)
{
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0", "host"},
				 .run = announce,
				 .staging = "never"},
		  2 + _i);
}
END_TEST

#define SOME ((size_t)300000)

/* Send from rank 0 to rank 1 what that then has to find there. */
static void pass(const struct job_rank *me, struct gadget *g, uint8_t *device,
		 uint8_t seed, uint64_t copies)
{
	uint8_t *host = gadget_host(g, SOME);
	uint64_t before = cast_stats(me).bytes_copied;

	for (size_t i = 0; i < SOME; i++)
		host[i] = me->rank ? 0xee : (uint8_t)(i * 7 + i / 256 + seed);
	gadget_copy(g, device, host, SOME);
	if (me->rank)
		JOB_TRY(dicomm_recv(device, SOME, DICOMM_UINT8, 0, me->comm,
				    g->native));
	else
		JOB_TRY(dicomm_send(device, SOME, DICOMM_UINT8, 1, me->comm,
				    g->native));
	gadget_copy(g, host, device, SOME);
	gadget_wait(g);
	for (size_t i = 0; i < SOME; i++)
		JOB_CHECK(host[i] == (uint8_t)(i * 7 + i / 256 + seed),
			  "message %u: byte %zu is %02x", seed, i, host[i]);
	JOB_CHECK(cast_stats(me).bytes_copied - before == copies,
		  "message %u: %llu bytes were copied", seed,
		  (unsigned long long)(cast_stats(me).bytes_copied - before));
	gadget_host_free(g, host);
}

/* Memory of the driver, which the user frees though it is announced. */
static void replace(struct job_rank *me, struct gadget *g)
{
	uint8_t *old = gadget_alloc(g, SOME), *new;
	void *handle, *again;

	gadget_delay(g, 300);
	pass(me, g, old, 1, SOME);
	JOB_TRY(dicomm_comm_register(me->comm, old, SOME, &handle));
	pass(me, g, old, 2, 0);
	gadget_free(g, old);
	new = gadget_alloc(g, SOME);
	JOB_CHECK(new == old, "%p is freed, but %p allocated", (void *)old,
		  (void *)new);
	pass(me, g, new, 3, SOME);
	JOB_TRY(dicomm_comm_register(me->comm, new, SOME, &again));
	pass(me, g, new, 4, 0);
	JOB_TRY(dicomm_comm_deregister(me->comm, handle));
	pass(me, g, new, 5, 0);
	gadget_free(g, new);
	new = gadget_alloc(g, SOME);
	/* It is announced anew before its former key was of use. */
	JOB_TRY(dicomm_comm_register(me->comm, new, SOME, &handle));
	pass(me, g, new, 6, 0);
	JOB_TRY(dicomm_comm_deregister(me->comm, again));
	pass(me, g, new, 7, 0);
	JOB_TRY(dicomm_comm_deregister(me->comm, handle));
	pass(me, g, new, 8, SOME);
	gadget_free(g, new);
}

START_TEST(nothing_is_reached_by_a_stale_key)
{
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0"},
				 .run = replace,
				 .staging = "never"},
		  2);
}
END_TEST

/* Of the library's memory nothing needs to be announced. */
static void allocate(struct job_rank *me, struct gadget *g)
{
	void *old, *new;

	gadget_delay(g, 300);
	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &old, SOME));
	pass(me, g, old, 1, 0);
	JOB_TRY(dicomm_mem_free(old));
	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &new, SOME));
	JOB_CHECK(new == old, "%p is freed, but %p allocated", old, new);
	pass(me, g, new, 2, 0);
	pass(me, g, new, 3, 0);
	JOB_TRY(dicomm_mem_free(new));
}

START_TEST(memory_of_the_library_is_not_copied)
{
	cast_play(&(struct cast){.device = {"hip:0", "cuda:0"},
				 .run = allocate,
				 .staging = "never"},
		  2);
}
END_TEST

static void put(struct job_rank *me, struct gadget *g)
{
	puts_run(me, g);
	JOB_CHECK(!g->accel->work == !peer_memory_flushes(), "%d flushes on %s",
		  (int)peer_memory_flushes(), g->name);
}

START_TEST(nothing_of_a_put_is_staged)
{
	cast_play(&(struct cast){.device = {_i ? "host" : "cuda:0", "hip:0"},
				 .run = put,
				 .arg = puts_directly,
				 .staging = "never"},
		  2);
}
END_TEST

/* What the NIC writes to the window of rank 1 gets there no sooner than it is
 * flushed; no signal may count before. */
static void put_late(struct job_rank *me, struct gadget *g)
{
	uint8_t *at = puts_alloc(g, SOME), *host = puts_host(g, SOME);
	dicomm_wait_signal_desc_t awaited = {.count = 1};
	dicomm_window_t win;

	peer_memory_lags(me->rank == 1);
	JOB_TRY(dicomm_comm_window_register(me->comm, at, SOME, &win, 0));
	for (int round = 1; round < 9; round++) {
		if (me->rank == 0) {
			memset(host, round, SOME);
			gadget_copy(g, at, host, SOME);
			JOB_TRY(dicomm_put_signal(at, SOME, DICOMM_UINT8, 1,
						  win, 0, 0, 0, 0, me->comm,
						  g->native));
			gadget_wait(g);
		} else {
			JOB_TRY(dicomm_wait_signal(1, &awaited, me->comm,
						   g->native));
			puts_fetch(g, host, at, SOME);
			job_check_bytes(host, SOME, (uint8_t)round, "put");
		}
		job_barrier();
	}
	JOB_CHECK(!me->rank == !peer_memory_flushes(), "%d flushes",
		  (int)peer_memory_flushes());
	JOB_TRY(dicomm_comm_window_deregister(me->comm, win));
	puts_host_free(g, host);
	puts_free(g, at);
}

START_TEST(no_signal_counts_before_the_flush)
{
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0"},
				 .run = put_late,
				 .staging = "never"},
		  2);
}
END_TEST

START_TEST(nothing_comes_after_an_abort)
{
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0"},
				 .run = cast_give_up,
				 .staging = "never"},
		  2);
}
END_TEST

/* What is explained in a process is what it sees itself. */
static void see_both(void)
{
	char why[256];

	JOB_CHECK(gadget_exists("cuda:0", why, sizeof(why)) &&
			  gadget_exists("hip:0", why, sizeof(why)),
		  "%s", why);
}

static void describe(struct job_rank *me)
{
	dicomm_adapter_info_t a;
	struct gadget g;
	char text[1024];
	int direct = 0;

	see_both();
	gadget_open(&g, "hip:0");
	for (int i = 0; dicomm_adapter_info(i, &a) == DICOMM_SUCCESS; i++)
		direct +=
			a.direct && !strcmp(a.device, "hip:0") &&
			!strcmp(a.adapter, "rxe0:1") &&
			!strcmp(a.transport, "verbs") &&
			!strncmp(a.how, "peer memory (no dma-buf: rxe0: ", 31);
	JOB_CHECK(direct == 1, "hip:0 and rxe0 were described %d times",
		  direct);
	/* It is tried, as a communicator does. */
	JOB_TRY(dicomm_explain_devices("cuda:0", "hip:0", text, sizeof(text)));
	JOB_CHECK(!strncmp(text,
			   "rdma by verbs: peer memory (no dma-buf: ", 40) &&
			  strstr(text, "; not ipc: cuda and hip do not map "),
		  "%s", text);
	JOB_TRY(dicomm_explain_devices("host", "hip:0", text, sizeof(text)));
	JOB_CHECK(!strncmp(text, me->arg, strlen(me->arg)), "%s", text);
	gadget_close(&g);
	JOB_CHECK(!gadget_live(&g), "%d things of the driver were not freed",
		  gadget_live(&g));
}

START_TEST(adapters_are_described)
{
	/* Not all memory of the host can be mapped: a wire takes all. */
	static const struct {
		const char *way, *transports, *staging;
	} settings[] = {
		{"mapped, ", "DICOMM_TRANSPORTS=", "DICOMM_STAGING=auto"},
		{"rdma by verbs: peer memory ",
		 "DICOMM_TRANSPORTS=", "DICOMM_STAGING=never"},
		{"rdma by verbs: peer memory ", "DICOMM_TRANSPORTS=verbs",
		 "DICOMM_STAGING=auto"}};

	job_run(&(struct job){
		.run = describe,
		.arg = settings[_i].way,
		.ranks = 1,
		.bare = true,
		.env = {settings[_i].transports, settings[_i].staging}});
}
END_TEST

/* ---- not direct ---- */

static void sum_staged(struct job_rank *me, struct gadget *g)
{
	cast_sum(me, g);
	JOB_CHECK(cast_staged(me) == 4000, "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
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
	char ways[1024];
	const char *text;

	see_both();
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
	JOB_TRY(dicomm_explain_devices("hip:0", "host", ways, sizeof(ways)));
	JOB_CHECK(strstr(ways, "; not mapped: no transport of one machine"),
		  "%s", ways);
	JOB_TRY(dicomm_explain_devices("hip:0", "cuda:0", ways, sizeof(ways)));
	JOB_CHECK(!strncmp(ways, "staged; not ipc: ", 17) &&
			  strstr(ways,
				 "; not rdma: no transport reaches the memory "
				 "of hip:0 (verbs: ") &&
			  strstr(ways,
				 vm.iwarp ? "over iWARP" : "no peer memory: "),
		  "%s", ways);
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
	tcase_add_loop_test(t, adapters_are_described, 0, 3);
	tcase_add_test(t, every_operation_is_direct);
	tcase_add_loop_test(t, announced_buffers_are_not_copied, 0, 2);
	tcase_add_test(t, nothing_is_reached_by_a_stale_key);
	tcase_add_test(t, memory_of_the_library_is_not_copied);
	tcase_add_test(t, nothing_comes_after_an_abort);
}

static void add_windows(TCase *t)
{
	tcase_add_test(t, no_signal_counts_before_the_flush);
	tcase_add_loop_test(t, nothing_of_a_put_is_staged, 0, 2);
}

int main(void)
{
	TCase *test_case = tcase_create("direct");
	TCase *windows = tcase_create("windows");
	Suite *suite = suite_create("direct");

	if (!vm_find(&vm))
		return 77;
	if (!cast_has("cuda:0") || !cast_has("hip:0"))
		return 77;
	setenv("DICOMM_TRANSPORTS", "verbs", 1);
	tcase_set_timeout(test_case, 60);
	tcase_add_test(test_case, staging_never_names_what_the_nic_said);
	tcase_add_test(test_case, what_the_nic_does_not_take_is_staged);
	tcase_set_timeout(windows, 60);
	if (!vm.iwarp) {
		add_direct(test_case);
		add_windows(windows);
	}
	suite_add_tcase(suite, test_case);
	suite_add_tcase(suite, windows);
	return runner_main(suite);
}
