/* SPDX-License-Identifier: BSD-3-Clause */
/* From init to destroy: options, waiting and not waiting, communicators made
 * from others, and nothing left behind. */
#include <check.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/leaks.h"
#include "tests/support/residue.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"
#include "tests/support/trial.h"
#include "transports/transport.h"

#define MANY 300
#define BAD DICOMM_ERR_INVALID_ARGUMENT
#define USAGE DICOMM_ERR_INVALID_USAGE

static dicomm_result_t state_of(dicomm_comm_t comm)
{
	dicomm_result_t status;

	JOB_TRY(dicomm_comm_get_async_error(comm, &status));
	return status;
}

/* Poll until it is no longer in progress. */
static dicomm_result_t settle(dicomm_comm_t comm, double seconds)
{
	dicomm_result_t status = job_settled(DICOMM_IN_PROGRESS, comm, seconds);

	JOB_CHECK(status != DICOMM_IN_PROGRESS, "in progress for %.0f s",
		  seconds);
	return status;
}

/* ---- init ---- */

static void bad_init(struct job_rank *me)
{
	dicomm_unique_id_t id = {"no id at all"}, good = job_id();
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	const char *devices[3] = {"host", "toaster", "host"};
	static dicomm_comm_t many[65537];
	char name[2000] = "";
	dicomm_comm_t old = (dicomm_comm_t)(void *)&config, comm = old;
	dicomm_comm_t comms[3] = {old, old, old};

	(void)me;
	JOB_REFUSED(dicomm_comm_init_rank(NULL, 1, good, 0), BAD,
		    "comm is NULL");
	JOB_REFUSED(dicomm_comm_init_rank(&comm, 0, good, 0), BAD, "nranks 0");
	JOB_REFUSED(dicomm_comm_init_rank(&comm, -3, good, 0), BAD,
		    "nranks -3");
	JOB_REFUSED(dicomm_comm_init_rank(&comm, 2, good, 2), BAD,
		    "rank 2: not in 0 .. 1");
	JOB_REFUSED(dicomm_comm_init_rank(&comm, 2, good, -1), BAD, "rank -1");
	JOB_REFUSED(dicomm_comm_init_rank(&comm, 2, id, 0), BAD, "id");
	memset(&id, 'x', sizeof(id));
	JOB_REFUSED(dicomm_comm_init_rank(&comm, 2, id, 0), BAD, "id");
	config.magic = 0;
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, good, 0, &config),
		    BAD, "not initialised");
	config = (dicomm_config_t)DICOMM_CONFIG_INITIALIZER;
	config.device = "toaster";
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, good, 0, &config),
		    BAD, "device toaster");
	config.device = NULL;
	config.staging = "sometimes";
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, good, 0, &config),
		    BAD, "staging sometimes");
	config.staging = "never";
	config.lanes = 9;
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, good, 0, &config),
		    BAD, "lanes 9: not in 1 .. 8");
	config.lanes = DICOMM_UNDEFINED_INT;
	config.timeout_ms = -1;
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, good, 0, &config),
		    BAD, "timeout_ms -1: negative");
	config.timeout_ms = DICOMM_UNDEFINED_INT;
	config.blocking = 7;
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, good, 0, &config),
		    BAD, "blocking 7: neither 0 nor 1");
	config.blocking = DICOMM_UNDEFINED_INT;
	config.deterministic = 99;
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, good, 0, &config),
		    BAD, "deterministic 99: neither 0 nor 1");
	config.deterministic = DICOMM_UNDEFINED_INT;
	config.size = SIZE_MAX;
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, good, 0, &config),
		    BAD, "size 18446744073709551615");
	config.size = sizeof(config);
	memset(name, 'a', sizeof(name) - 1);
	config.name = name;
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, good, 0, &config),
		    BAD, "1999 bytes");
	config.name = "two\nlines";
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, good, 0, &config),
		    BAD, "name: byte 3");
	config.name = NULL;
	JOB_REFUSED(dicomm_comm_init_rank(&comm, INT_MAX, good, 0), BAD,
		    "nranks 2147483647: more than 65536");
	JOB_REFUSED(dicomm_comm_init_all(many, 65537, NULL), BAD,
		    "ndev 65537: more than 65536");
	config.transports = "pigeon";
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, good, 0, &config),
		    BAD, "pigeon");
	JOB_CHECK(!comm, "a failed init left a handle");
	JOB_REFUSED(dicomm_comm_init_all(NULL, 1, NULL), BAD, "comms is NULL");
	JOB_REFUSED(dicomm_comm_init_all(comms, 0, NULL), BAD, "ndev 0");
	JOB_REFUSED(dicomm_comm_init_all(comms, 3, devices), BAD, "toaster");
	JOB_CHECK(!comms[0] && !comms[1] && !comms[2],
		  "a failed init_all left handles");
	JOB_REFUSED(dicomm_comm_init_env(NULL), BAD, "comm is NULL");
	/* And after all that: */
	JOB_TRY(dicomm_comm_init_rank(&comm, 1, job_id(), 0));
	trial_works(comm, 0, 1);
	JOB_TRY(dicomm_comm_destroy(comm));
}

START_TEST(a_bad_init_is_refused)
{
	job_run(&(struct job){.run = bad_init, .ranks = 1, .bare = true});
}
END_TEST

static void from_environment(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t comm = NULL;
	dicomm_result_t status;

	config.transports = "pigeon";
	JOB_REFUSED(dicomm_comm_init_env_config(&comm, &config), BAD, "pigeon");
	config.transports = "shm";
	config.blocking = 0;
	status = dicomm_comm_init_env_config(&comm, &config);
	JOB_CHECK(status == DICOMM_IN_PROGRESS, "status %d", (int)status);
	JOB_TRY(settle(comm, 10));
	trial_works(comm, me->rank, me->ranks);
	JOB_TRY(dicomm_comm_destroy(comm));
}

START_TEST(ranks_of_a_launcher_may_have_options)
{
	job_run(&(struct job){.run = from_environment,
			      .ranks = 1,
			      .bare = true,
			      .env = {"DICOMM_RANK=0", "DICOMM_SIZE=1"}});
}
END_TEST

/* On one machine nothing needs it, but the user has asked for it. */
static void no_such_file(struct job_rank *me)
{
	dicomm_comm_t comm;

	JOB_REFUSED(dicomm_comm_init_rank(&comm, me->ranks, job_id(), me->rank),
		    BAD, "no_such_file.json");
	JOB_CHECK(!strstr(dicomm_get_last_error(NULL), "comm rank"), "\"%s\"",
		  dicomm_get_last_error(NULL));
}

START_TEST(a_missing_topology_file_is_named)
{
	job_run(&(struct job){
		.run = no_such_file,
		.ranks = 1,
		.bare = true,
		.env = {"DICOMM_TOPO_FILE=/tmp/no_such_file.json"}});
}
END_TEST

/* Each rank looks for all others, so this is no place for a list. */
static void many_here(struct job_rank *me)
{
	static dicomm_comm_t comms[MANY];
	static int32_t in[MANY], out[MANY];
	const int n = job_is_sanitized() ? 60 : MANY;

	(void)me;
	JOB_TRY(dicomm_comm_init_all(comms, n, NULL));
	JOB_TRY(dicomm_group_start());
	for (int r = 0; r < n; r++) {
		in[r] = r;
		JOB_TRY(dicomm_allreduce(&in[r], &out[r], 1, DICOMM_INT32,
					 DICOMM_SUM, comms[r], NULL));
	}
	JOB_TRY(dicomm_group_end());
	for (int r = 0; r < n; r++)
		JOB_CHECK(out[r] == n * (n - 1) / 2, "rank %d has %d", r,
			  out[r]);
	JOB_TRY(dicomm_group_start());
	for (int r = 0; r < n; r++)
		JOB_TRY(dicomm_comm_destroy(comms[r]));
	JOB_TRY(dicomm_group_end());
}

START_TEST(a_process_may_have_many_ranks)
{
	job_run(&(struct job){.run = many_here, .ranks = 1, .bare = true});
}
END_TEST

static void default_devices(struct job_rank *me)
{
	dicomm_comm_t comms[2];

	(void)me;
	JOB_REFUSED(dicomm_comm_init_all(comms, 2, NULL), BAD,
		    "device toaster");
}

START_TEST(init_all_takes_the_default_device)
{
	job_run(&(struct job){.run = default_devices,
			      .ranks = 1,
			      .bare = true,
			      .env = {"DICOMM_DEVICE=toaster"}});
}
END_TEST

/* The options are the caller's again when the call returns. */
static void options(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	char device[] = "host", name[] = "blue", wires[] = "^none";
	dicomm_unique_id_t id = job_id();
	dicomm_comm_t comm, same;
	const char *of;

	strcpy(wires, "shm");
	config.device = device;
	config.name = name;
	config.transports = wires;
	config.timeout_ms = 5000;
	config.lanes = 2;
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_comm_init_rank_config(&comm, me->ranks, id, me->rank,
					     &config));
	memset(device, 'X', strlen(device));
	memset(name, 'X', strlen(name));
	memset(wires, 'X', strlen(wires));
	memset(&config, 0, sizeof(config));
	JOB_TRY(dicomm_group_end());
	trial_works(comm, me->rank, me->ranks);
	JOB_TRY(dicomm_comm_device(comm, &of));
	JOB_CHECK(!strcmp(of, "host"), "device %s", of);

	config = (dicomm_config_t)DICOMM_CONFIG_INITIALIZER;
	strcpy(name, "grey");
	config.name = name;
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_comm_split(comm, 0, 0, &same, &config));
	memset(&config, 0, sizeof(config));
	memset(name, 0, sizeof(name));
	JOB_TRY(dicomm_group_end());
	trial_works(same, me->rank, me->ranks);
	JOB_TRY(dicomm_comm_destroy(same));
	JOB_TRY(dicomm_comm_destroy(comm));
}

START_TEST(options_are_copied)
{
	job_run(&(struct job){.run = options, .ranks = 2, .bare = true});
}
END_TEST

static void unlike_options(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t comm = NULL;

	config.deterministic = me->rank > 0;
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, me->ranks, job_id(),
						 me->rank, &config),
		    USAGE, "deterministic");
	JOB_CHECK(!comm, "a failed init gave a handle");
}

START_TEST(unlike_options_are_named)
{
	job_run(&(struct job){.run = unlike_options, .ranks = 3, .bare = true});
}
END_TEST

/* The caller's own way to meet. */
static int gathers; /* of this process */

static dicomm_result_t over_board(const void *mine, void *all, size_t len,
				  void *ctx)
{
	gathers++;
	return job_gather(mine, all, len, ctx);
}

static dicomm_result_t no_way(const void *mine, void *all, size_t len,
			      void *ctx)
{
	(void)mine;
	(void)all;
	(void)len;
	(void)ctx;
	return DICOMM_ERR_SYSTEM;
}

static void own_bootstrap(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_unique_id_t none = {""};
	dicomm_comm_t comm, half;

	config.bootstrap.allgather = over_board;
	config.bootstrap.ctx = me;
	JOB_TRY(dicomm_comm_init_rank_config(&comm, me->ranks, none, me->rank,
					     &config));
	/* Who is in it does not hear that another rank has failed. */
	JOB_CHECK(gathers == 1, "%d all-gathers of the caller", gathers);
	trial_works(comm, me->rank, me->ranks);
	/* A part of the ranks could not all gather. */
	JOB_TRY(dicomm_comm_split(comm, me->rank % 2, 0, &half, NULL));
	trial_works(half, me->rank / 2, (me->ranks + 1 - me->rank % 2) / 2);
	JOB_TRY(dicomm_comm_destroy(half));
	JOB_TRY(dicomm_comm_destroy(comm));
	config.bootstrap.allgather = no_way;
	JOB_CHECK(dicomm_comm_init_rank_config(&comm, me->ranks, none, me->rank,
					       &config) == DICOMM_ERR_SYSTEM,
		  "an allgather that fails does not fail init");
}

START_TEST(the_caller_may_bring_his_own_bootstrap)
{
	for (int n = 1; n <= 4; n++)
		job_run(&(struct job){
			.run = own_bootstrap, .ranks = n, .bare = true});
}
END_TEST

/* ---- threads of the library's own ---- */

static _Atomic int masked; /* all-gathers with signals blocked */

static dicomm_result_t look_at_mask(const void *mine, void *all, size_t len,
				    void *ctx)
{
	sigset_t mask;

	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	if (sigismember(&mask, SIGTERM) == 1)
		atomic_fetch_add(&masked, 1);
	return job_gather(mine, all, len, ctx);
}

static void begin_elsewhere(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_unique_id_t none = {""};
	dicomm_comm_t comm;

	config.bootstrap.allgather = look_at_mask;
	config.bootstrap.ctx = me;
	config.blocking = *(const int *)me->arg;
	if (config.blocking)
		JOB_TRY(dicomm_group_start());
	JOB_CHECK(
		dicomm_comm_init_rank_config(&comm, me->ranks, none, me->rank,
					     &config) ==
			(config.blocking ? DICOMM_SUCCESS : DICOMM_IN_PROGRESS),
		"init: %s", dicomm_get_last_error(NULL));
	if (config.blocking)
		JOB_TRY(dicomm_group_end());
	JOB_CHECK(settle(comm, 10) == DICOMM_SUCCESS, "init failed: %s",
		  dicomm_get_last_error(comm));
	JOB_CHECK(atomic_load(&masked) == 1,
		  "a thread of the library takes the program's signals");
	JOB_TRY(dicomm_comm_destroy(comm));
}

START_TEST(who_meets_in_the_background_takes_no_signals)
{
	job_run(&(struct job){
		.run = begin_elsewhere, .arg = &_i, .ranks = 1, .bare = true});
}
END_TEST

/* ---- not waiting ---- */

static void patient(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_unique_id_t id = job_id();
	dicomm_comm_t comm, part;
	int32_t a = 1, b = 0;

	config.blocking = 0;
	if (me->rank)
		job_barrier(); /* rank 0 has looked */
	JOB_CHECK(dicomm_comm_init_rank_config(&comm, me->ranks, id, me->rank,
					       &config) == DICOMM_IN_PROGRESS,
		  "init did not return at once");
	if (me->rank == 0) {
		JOB_CHECK(state_of(comm) == DICOMM_IN_PROGRESS, "ready alone");
		JOB_REFUSED(dicomm_allreduce(&a, &b, 1, DICOMM_INT32,
					     DICOMM_SUM, comm, NULL),
			    USAGE, "still being initialised");
		JOB_REFUSED(dicomm_comm_finalize(comm), USAGE,
			    "still being initialised");
		JOB_REFUSED(dicomm_comm_shrink(comm, NULL, 0, &part, NULL),
			    USAGE, "still being initialised");
		job_barrier();
	}
	JOB_CHECK(settle(comm, 10) == DICOMM_SUCCESS, "init failed: %s",
		  dicomm_get_last_error(comm));
	trial_works(comm, me->rank, me->ranks);

	/* The options of the old communicator: not waiting either. */
	JOB_CHECK(dicomm_comm_split(comm, 0, -me->rank, &part, NULL) ==
			  DICOMM_IN_PROGRESS,
		  "split did not return at once");
	JOB_CHECK(settle(part, 10) == DICOMM_SUCCESS, "split failed: %s",
		  dicomm_get_last_error(part));
	trial_works(part, me->ranks - 1 - me->rank, me->ranks);
	JOB_TRY(dicomm_comm_destroy(part));

	JOB_CHECK(dicomm_comm_finalize(comm) == DICOMM_IN_PROGRESS,
		  "finalize did not return at once");
	JOB_CHECK(settle(comm, 10) == DICOMM_SUCCESS, "finalize failed");
	JOB_REFUSED(dicomm_allreduce(&a, &b, 1, DICOMM_INT32, DICOMM_SUM, comm,
				     NULL),
		    USAGE, "finalized");
	JOB_TRY(dicomm_comm_destroy(comm));
}

START_TEST(init_split_and_finalize_may_go_on_in_the_background)
{
	job_run(&(struct job){.run = patient, .ranks = 3, .bare = true});
}
END_TEST

/* The others never come; whoever gives up is free at once. */
static void impatient(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	double begin = job_seconds();
	dicomm_comm_t comm;

	config.blocking = 0;
	for (int i = 0; i < 3; i++) {
		JOB_CHECK(dicomm_comm_init_rank_config(&comm, 2, job_id(),
						       me->rank, &config) ==
				  DICOMM_IN_PROGRESS,
			  "init did not return at once");
		job_sleep_ms(20 * i);
		JOB_CHECK(state_of(comm) == DICOMM_IN_PROGRESS, "alone");
		if (i == 1) {
			JOB_TRY(dicomm_comm_abort(comm));
			JOB_CHECK(settle(comm, 10) == DICOMM_ERR_ABORTED,
				  "abort shows as %d", (int)state_of(comm));
		}
		JOB_TRY(dicomm_comm_destroy(comm));
	}
	JOB_CHECK(job_seconds() - begin < 5 + starved_s(), "took %.1f s",
		  job_seconds() - begin);
}

START_TEST(an_init_can_be_given_up)
{
	job_run(&(struct job){.run = impatient, .ranks = 1, .bare = true});
}
END_TEST

static void finalized(struct job_rank *me)
{
	int32_t a = 1, b = 0;
	char text[100];
	void *handle;
	dicomm_comm_t part = me->comm;
	dicomm_redop_t op;
	int n;

	trial_works(me->comm, me->rank, me->ranks);
	JOB_TRY(dicomm_comm_finalize(me->comm));
	JOB_REFUSED(dicomm_comm_finalize(me->comm), USAGE, "finalized");
	JOB_REFUSED(dicomm_allreduce(&a, &b, 1, DICOMM_INT32, DICOMM_SUM,
				     me->comm, NULL),
		    USAGE, "finalized");
	JOB_REFUSED(dicomm_barrier(me->comm, NULL), USAGE, "finalized");
	JOB_REFUSED(dicomm_comm_split(me->comm, 0, 0, &part, NULL), USAGE,
		    "finalized");
	JOB_CHECK(!part, "a failed split left a handle");
	JOB_REFUSED(dicomm_comm_register(me->comm, &a, 4, &handle), USAGE,
		    "finalized");
	JOB_REFUSED(dicomm_redop_create_premulsum(&op, &a, DICOMM_INT32,
						  DICOMM_SCALAR_HOST_IMMEDIATE,
						  me->comm),
		    USAGE, "finalized");
	JOB_REFUSED(dicomm_comm_explain(me->comm, "allreduce", 1, DICOMM_INT8,
					text, sizeof(text)),
		    USAGE, "finalized");
	JOB_TRY(dicomm_comm_count(me->comm, &n));
	JOB_CHECK(state_of(me->comm) == DICOMM_SUCCESS, "state");
}

START_TEST(after_finalize_only_queries_are_left)
{
	job_run(&(struct job){.run = finalized, .ranks = 2});
}
END_TEST

/* A rank may leave while another has yet to receive what it sent, and the ranks
 * of one thread leave one after the other. */
static void leaves_first(struct job_rank *me)
{
	int32_t *many = calloc(100000, sizeof(*many));

	JOB_CHECK(many, "out of memory");
	if (me->rank == 0) {
		many[99999] = 77;
		JOB_TRY(dicomm_send(&many[99999], 1, DICOMM_INT32, 1, me->comm,
				    NULL));
		JOB_TRY(dicomm_send(many, 100000, DICOMM_INT32, 1, me->comm,
				    NULL));
	} else {
		job_sleep_ms(150);
		JOB_TRY(dicomm_recv(&many[0], 1, DICOMM_INT32, 0, me->comm,
				    NULL));
		JOB_CHECK(many[0] == 77, "received %d", many[0]);
		JOB_TRY(dicomm_recv(many, 100000, DICOMM_INT32, 0, me->comm,
				    NULL));
		JOB_CHECK(many[99999] == 77, "received %d", many[99999]);
	}
	free(many);
}

START_TEST(what_was_sent_arrives_though_the_sender_leaves)
{
	job_run(&(struct job){.run = leaves_first, .ranks = 2});
	job_run(&(struct job){
		.run = leaves_first, .ranks = 2, .threads = true});
}
END_TEST

/* A rank that leaves, too, has yet to do what it has queued. */
static void leaves_with_others(struct job_rank *me)
{
	int32_t value = me->rank, got[2] = {-1, -1};
	dicomm_stream_t stream;

	if (me->rank != 1) {
		if (me->rank == 2)
			job_sleep_ms(1000);
		JOB_TRY(dicomm_send(&value, 1, DICOMM_INT32, 1, me->comm,
				    NULL));
		JOB_TRY(dicomm_comm_finalize(me->comm));
		return;
	}
	JOB_TRY(dicomm_host_stream_create(&stream));
	JOB_TRY(dicomm_recv(&got[0], 1, DICOMM_INT32, 2, me->comm, stream));
	JOB_TRY(dicomm_recv(&got[1], 1, DICOMM_INT32, 0, me->comm, stream));
	JOB_TRY(dicomm_comm_finalize(me->comm));
	JOB_TRY(dicomm_host_stream_destroy(stream));
	JOB_CHECK(got[0] == 2 && got[1] == 0, "received %d and %d", got[0],
		  got[1]);
}

START_TEST(what_was_sent_arrives_though_all_leave)
{
	job_run(&(struct job){.run = leaves_with_others, .ranks = 3});
	job_run(&(struct job){
		.run = leaves_with_others, .ranks = 3, .threads = true});
}
END_TEST

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The others may need the core to come to what they have yet to receive. */
static void leaves_long(struct job_rank *me)
{
	double begin = job_seconds(), cpu = cpu_seconds(), all;
	int32_t value = 0;

	if (me->rank) {
		job_sleep_ms(1000);
		JOB_TRY(dicomm_recv(&value, 1, DICOMM_INT32, 0, me->comm,
				    NULL));
		return;
	}
	JOB_TRY(dicomm_send(&value, 1, DICOMM_INT32, 1, me->comm, NULL));
	JOB_TRY(dicomm_comm_finalize(me->comm));
	all = job_seconds() - begin;
	cpu = cpu_seconds() - cpu;
	JOB_CHECK(cpu < all / 3, "%.0f of %.0f ms on a core", cpu * 1e3,
		  all * 1e3);
}

START_TEST(who_leaves_gives_the_core_away)
{
	job_run(&(struct job){.run = leaves_long, .ranks = 2});
}
END_TEST

/* A rank that has received all may compute for long: who leaves does not wait
 * for its next call. By a collective, and by calls that the engine runs. */
static void leaves_who_computes(struct job_rank *me)
{
	const int other = !me->rank;
	int32_t mine = me->rank, theirs = -1;

	for (int i = 0; i < 3; i++) {
		if (*(const int *)me->arg) {
			JOB_TRY(dicomm_group_start());
			JOB_TRY(dicomm_send(&mine, 1, DICOMM_INT32, other,
					    me->comm, NULL));
			JOB_TRY(dicomm_recv(&theirs, 1, DICOMM_INT32, other,
					    me->comm, NULL));
			JOB_TRY(dicomm_group_end());
		} else {
			JOB_TRY(dicomm_allreduce(&mine, &theirs, 1,
						 DICOMM_INT32, DICOMM_SUM,
						 me->comm, NULL));
		}
	}
	job_barrier();
	if (me->rank == 0)
		JOB_TRY(dicomm_comm_finalize(me->comm));
	job_barrier();
}

START_TEST(who_leaves_does_not_wait_for_who_computes)
{
	job_run(&(struct job){
		.run = leaves_who_computes, .arg = &_i, .ranks = 2});
}
END_TEST

static void stop(int pid)
{
	double end = job_seconds() + 10;
	char path[64], state = 'R';

	kill(pid, SIGSTOP);
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	while (state != 'T') {
		FILE *f = fopen(path, "re");

		JOB_CHECK(f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1,
			  "process %d has gone", pid);
		JOB_CHECK(job_seconds() < end, "it does not stop");
		fclose(f);
	}
}

/* Whoever says goodbye over a network waits for an answer, of all at the same
 * time: five that give none take two seconds, not ten. */
static void leaves_the_stopped(struct job_rank *me)
{
	struct trial t = {
		.kind = TRIAL_ALLTOALL, .type = DICOMM_INT32, .count = 10};
	char why[256];
	double begin;

	if (job_uses("ucx")) {
		if (!transport_find("ucx")->usable(why, sizeof(why)))
			return;
		leaks_ignore();
	}
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	trial_run(t, me);
	job_barrier();
	if (me->rank == 0) {
		job_sleep_ms(500); /* all have told what they received */
		for (int r = 1; r < me->ranks; r++)
			stop(job_pid(r));
		job_sleep_ms(100); /* nor do their other threads go on */
		begin = job_seconds();
		JOB_TRY(dicomm_comm_destroy(me->comm));
		begin = job_seconds() - begin;
		for (int r = 1; r < me->ranks; r++)
			kill(job_pid(r), SIGCONT);
		JOB_CHECK(begin < 7, "it took %.1f s", begin);
	}
	job_barrier();
	if (me->rank)
		JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(who_leaves_waits_for_all_who_are_stopped_together)
{
	static const char *const networks[] = {"DICOMM_TRANSPORTS=tcp",
					       "DICOMM_TRANSPORTS=ucx"};

	/* The thread sanitizer does not see the locks of UCX. */
	if (_i == 0 || !job_has_thread_sanitizer())
		job_run(&(struct job){
			.run = leaves_the_stopped,
			.ranks = 6,
			.bare = true,
			.env = {"DICOMM_DEBUG=none", networks[_i]}});
}
END_TEST

/* ---- communicators from others ---- */

static void splits(struct job_rank *me)
{
	dicomm_comm_t odd, back, none = me->comm, again;
	int rank = -1, count = -1, n = me->ranks;
	int mates = (n + (me->rank % 2 == 0)) / 2;

	JOB_TRY(dicomm_comm_split(me->comm, me->rank % 2, 0, &odd, NULL));
	trial_works(odd, me->rank / 2, mates);
	JOB_TRY(dicomm_comm_split(me->comm, 7, -me->rank, &back, NULL));
	trial_works(back, n - 1 - me->rank, n);
	/* Both, and the old one, at a time. */
	trial_works(me->comm, me->rank, n);
	trial_works(odd, me->rank / 2, mates);
	JOB_TRY(dicomm_comm_split(back, 1, 5, &again, NULL));
	JOB_TRY(dicomm_comm_user_rank(again, &rank));
	JOB_TRY(dicomm_comm_count(again, &count));
	JOB_CHECK(rank == n - 1 - me->rank && count == n, "rank %d of %d", rank,
		  count);
	JOB_TRY(dicomm_comm_destroy(back));
	trial_works(again, rank, n);
	JOB_TRY(dicomm_comm_destroy(again));
	/* The last rank is left out. */
	JOB_TRY(dicomm_comm_split(me->comm,
				  me->rank == n - 1 ? DICOMM_SPLIT_NOCOLOR : 3,
				  0, &none, NULL));
	if (me->rank == n - 1)
		JOB_CHECK(!none, "no color gave a communicator");
	else
		trial_works(none, me->rank, n - 1);
	JOB_TRY(dicomm_comm_destroy(none));
	JOB_REFUSED(dicomm_comm_split(me->comm, -2, 0, &none, NULL), BAD,
		    "color -2");
	JOB_REFUSED(dicomm_comm_split(me->comm, 0, 0, NULL, NULL), BAD,
		    "newcomm is NULL");
	JOB_REFUSED(dicomm_comm_split(NULL, 0, 0, &none, NULL), BAD, "comm");
	trial_works(me->comm, me->rank, n);
	JOB_TRY(dicomm_comm_destroy(odd));
}

START_TEST(split_makes_communicators_by_color_and_key)
{
	job_run(&(struct job){.run = splits, .ranks = _i});
	job_run(&(struct job){.run = splits, .ranks = _i, .threads = true});
}
END_TEST

static void shrinks(struct job_rank *me)
{
	int gone[1] = {1}, self[1] = {me->rank}, far[1] = {9};
	dicomm_comm_t rest = me->comm;

	JOB_REFUSED(dicomm_comm_shrink(me->comm, self, 1, &rest, NULL), BAD,
		    "");
	JOB_REFUSED(dicomm_comm_shrink(me->comm, far, 1, &rest, NULL), BAD,
		    "9");
	JOB_REFUSED(dicomm_comm_shrink(me->comm, NULL, 1, &rest, NULL), BAD,
		    "nexclude 1");
	JOB_CHECK(!rest, "a failed shrink left a handle");
	if (me->rank != 1) {
		JOB_TRY(dicomm_comm_shrink(me->comm, gone, 1, &rest, NULL));
		trial_works(rest, me->rank ? me->rank - 1 : 0, me->ranks - 1);
		JOB_TRY(dicomm_comm_destroy(rest));
	}
	trial_works(me->comm, me->rank, me->ranks);
}

START_TEST(shrink_leaves_ranks_out)
{
	job_run(&(struct job){.run = shrinks, .ranks = 4});
}
END_TEST

/* ---- messages ---- */

struct heard {
	_Atomic int errors; /* of any thread */
	char text[500];
};

static void hear(int level, const char *message, void *ctx)
{
	struct heard *heard = ctx;

	if (level)
		return;
	snprintf(heard->text, sizeof(heard->text), "%s", message);
	atomic_fetch_add(&heard->errors, 1);
}

/* One error since the last time. */
static void hears(struct heard *heard, const char *words)
{
	JOB_CHECK(atomic_exchange(&heard->errors, 0) == 1 &&
			  strstr(heard->text, words),
		  "\"%s\" is not \"%s\"", heard->text, words);
}

static void listens(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	struct heard heard = {0};
	int32_t a[2] = {1}, b[2];
	dicomm_comm_t comm;

	config.log_fn = hear;
	config.log_ctx = &heard;
	JOB_TRY(dicomm_comm_split(me->comm, 0, 0, &comm, &config));
	JOB_CHECK(!atomic_load(&heard.errors), "%s", heard.text);
	JOB_REFUSED(dicomm_allreduce(NULL, b, 1, DICOMM_INT32, DICOMM_SUM, comm,
				     NULL),
		    BAD, "send is NULL");
	hears(&heard, "allreduce: send is NULL");
	JOB_REFUSED(dicomm_send(a, 1, DICOMM_INT32, 9, comm, NULL), BAD,
		    "peer 9");
	hears(&heard, "send: peer 9");
	JOB_REFUSED(dicomm_recv(b, 1, DICOMM_INT32, 9, comm, NULL), BAD,
		    "peer 9");
	hears(&heard, "recv: peer 9");
	JOB_REFUSED(dicomm_barrier(comm, b), BAD, "stream");
	hears(&heard, "barrier: stream");
	JOB_REFUSED(
		dicomm_allgatherv(a, b, NULL, NULL, DICOMM_INT32, comm, NULL),
		BAD, "recvcounts is NULL");
	hears(&heard, "allgatherv: recvcounts is NULL");
	JOB_REFUSED(dicomm_alltoallv(a, NULL, NULL, b, NULL, NULL, DICOMM_INT32,
				     comm, NULL),
		    BAD, "sendcounts is NULL");
	hears(&heard, "alltoallv: sendcounts is NULL");
	JOB_REFUSED(dicomm_reduce_scatterv(a, b, NULL, DICOMM_INT32, DICOMM_SUM,
					   comm, NULL),
		    BAD, "recvcounts is NULL");
	hears(&heard, "reduce_scatterv: recvcounts is NULL");
	/* Others' errors are none of his. */
	JOB_REFUSED(dicomm_barrier(me->comm, b), BAD, "stream");
	JOB_CHECK(!atomic_load(&heard.errors), "%s", heard.text);
	JOB_CHECK(dicomm_allreduce(a, b, 1 + (size_t)me->rank, DICOMM_INT32,
				   DICOMM_SUM, comm, NULL) == USAGE,
		  "unlike calls");
	JOB_CHECK(atomic_load(&heard.errors) == 1 &&
			  strstr(heard.text, "disagree"),
		  "heard %d errors, the last: %s", atomic_load(&heard.errors),
		  heard.text);
	JOB_CHECK(strstr(dicomm_get_last_error(comm), "disagree"),
		  "last error: %s", dicomm_get_last_error(comm));
	JOB_TRY(dicomm_comm_destroy(comm));
	trial_works(me->comm, me->rank, me->ranks);
}

START_TEST(a_callers_function_hears_what_breaks_his_communicator)
{
	job_run(&(struct job){.run = listens, .ranks = 2});
}
END_TEST

/* ---- nothing is left behind ---- */

static int count_lines(const char *path)
{
	FILE *f = fopen(path, "r");
	int n = 0, c;

	JOB_CHECK(f, "%s: %m", path);
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

static long resident_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long pages = 0, all;

	JOB_CHECK(f && fscanf(f, "%ld %ld", &all, &pages) == 2,
		  "/proc/self/statm");
	fclose(f);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void one_life(struct job_rank *me, bool streams)
{
	dicomm_unique_id_t id = job_id();
	struct job_rank as = *me;
	dicomm_stream_t stream;
	dicomm_comm_t part;
	struct trial t = {.kind = TRIAL_ALLTOALL,
			  .type = DICOMM_FLOAT32,
			  .count = 5000,
			  .shared = me->rank};

	JOB_TRY(dicomm_comm_init_rank(&as.comm, me->ranks, id, me->rank));
	trial_works(as.comm, me->rank, me->ranks);
	trial_run(t, &as);
	JOB_TRY(dicomm_comm_split(as.comm, me->rank % 2, 0, &part, NULL));
	trial_works(part, me->rank / 2, (me->ranks + 1 - me->rank % 2) / 2);
	if (streams) {
		JOB_TRY(dicomm_host_stream_create(&stream));
		trial_fill(&t, &as);
		JOB_TRY(trial_call(&t, stream));
		JOB_TRY(dicomm_host_stream_destroy(stream));
		trial_check(&t);
		trial_free(&t);
	}
	JOB_TRY(dicomm_comm_destroy(me->rank % 2 ? as.comm : part));
	JOB_TRY(dicomm_comm_destroy(me->rank % 2 ? part : as.comm));
}

#define LIVES 100
static void lives(struct job_rank *me)
{
	int files = 0, maps = 0, tasks = 0;
	long kib = 0;

	for (int i = 0; i < LIVES; i++) {
		one_life(me, i % 10 == 0);
		if (i != 20)
			continue;
		/* The last of a process takes its threads along in the
		 * background. */
		job_sleep_ms(100);
		files = residue_descriptors();
		maps = count_lines("/proc/self/maps");
		tasks = residue_threads();
		kib = resident_kib();
	}
	job_sleep_ms(100);
	JOB_CHECK(residue_descriptors() <= files,
		  "%d files after 20 lives, %d after "
		  "100",
		  files, residue_descriptors());
	JOB_CHECK(residue_threads() <= tasks,
		  "%d threads after 20 lives, %d "
		  "after 100",
		  tasks, residue_threads());
	JOB_CHECK(count_lines("/proc/self/maps") <= maps + 10,
		  "%d mappings after 20 lives, %d after 100", maps,
		  count_lines("/proc/self/maps"));
	JOB_CHECK(resident_kib() < kib + 2048 || job_is_sanitized(),
		  "%ld KiB after 20 lives, %ld after 100", kib, resident_kib());
}

START_TEST(a_hundred_communicators_leave_nothing_behind)
{
	job_run(&(struct job){
		.run = lives, .ranks = 3, .bare = true, .timeout_s = 60});
}
END_TEST

/* ---- time-outs ---- */

/* A receive that waits already, and one that is called later. */
static void new_timeout(struct job_rank *me)
{
	dicomm_stream_t stream;
	int32_t x = 0;

	JOB_REFUSED(dicomm_comm_set_timeout(NULL, 1),
		    DICOMM_ERR_INVALID_ARGUMENT, "comm is NULL");
	JOB_REFUSED(dicomm_comm_set_timeout(me->comm, -1),
		    DICOMM_ERR_INVALID_ARGUMENT, "timeout_ms -1");
	if (!me->rank && me->arg) {
		JOB_TRY(dicomm_host_stream_create(&stream));
		JOB_TRY(dicomm_recv(&x, 1, DICOMM_INT32, 1, me->comm, stream));
		JOB_TRY(dicomm_comm_set_timeout(me->comm, 700));
		JOB_REFUSED(dicomm_host_stream_synchronize(stream),
			    DICOMM_ERR_TIMEOUT, "timed out after 700 ms");
		dicomm_host_stream_destroy(stream);
	} else if (!me->rank) {
		JOB_TRY(dicomm_comm_set_timeout(me->comm, 700));
		JOB_REFUSED(dicomm_recv(&x, 1, DICOMM_INT32, 1, me->comm, NULL),
			    DICOMM_ERR_TIMEOUT, "timed out after 700 ms");
	}
	job_barrier();
}

START_TEST(a_timeout_can_be_set_later)
{
	job_run(&(struct job){
		.run = new_timeout, .ranks = 2, .arg = _i ? "stream" : NULL});
}
END_TEST

/* Rank 1 never joins. */
static void alone(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_unique_id_t id = job_id(), own;
	dicomm_comm_t comm;

	JOB_TRY(dicomm_get_unique_id(&own));
	config.bootstrap_timeout_ms = 0;
	JOB_REFUSED(dicomm_comm_init_rank_config(&comm, 1, own, 0, &config),
		    DICOMM_ERR_INVALID_ARGUMENT, "bootstrap_timeout_ms 0");
	config.bootstrap_timeout_ms = 600;
	if (!me->rank)
		JOB_REFUSED(
			dicomm_comm_init_rank_config(&comm, 2, id, 0, &config),
			DICOMM_ERR_TIMEOUT, "rank 1");
	job_barrier();
}

START_TEST(the_time_to_join_is_an_option)
{
	job_run(&(struct job){.run = alone, .ranks = 2, .bare = true});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("life");
	TCase *tcase = tcase_create("life");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, a_bad_init_is_refused);
	tcase_add_test(tcase, ranks_of_a_launcher_may_have_options);
	tcase_add_test(tcase, init_all_takes_the_default_device);
	tcase_add_test(tcase, a_missing_topology_file_is_named);
	tcase_add_test(tcase, a_process_may_have_many_ranks);
	tcase_add_test(tcase, options_are_copied);
	tcase_add_test(tcase, unlike_options_are_named);
	tcase_add_test(tcase, the_caller_may_bring_his_own_bootstrap);
	tcase_add_loop_test(tcase, who_meets_in_the_background_takes_no_signals,
			    0, 2);
	tcase_add_test(tcase,
		       init_split_and_finalize_may_go_on_in_the_background);
	tcase_add_test(tcase, an_init_can_be_given_up);
	tcase_add_test(tcase, after_finalize_only_queries_are_left);
	tcase_add_test(tcase, what_was_sent_arrives_though_the_sender_leaves);
	tcase_add_test(tcase, what_was_sent_arrives_though_all_leave);
	tcase_add_test(tcase, who_leaves_gives_the_core_away);
	tcase_add_loop_test(tcase, who_leaves_does_not_wait_for_who_computes, 0,
			    2);
	tcase_add_loop_test(
		tcase, who_leaves_waits_for_all_who_are_stopped_together, 0, 2);
	tcase_add_loop_test(tcase, split_makes_communicators_by_color_and_key,
			    2, 6);
	tcase_add_test(tcase, shrink_leaves_ranks_out);
	tcase_add_test(tcase,
		       a_callers_function_hears_what_breaks_his_communicator);
	tcase_add_test(tcase, a_hundred_communicators_leave_nothing_behind);
	tcase_add_loop_test(tcase, a_timeout_can_be_set_later, 0, 2);
	tcase_add_test(tcase, the_time_to_join_is_an_option);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
