/* SPDX-License-Identifier: BSD-3-Clause */
/* Late is not dead: who is late is warned about and waited for, at most until
 * the time-out, which says who waits, in what, and for whom. Who has left does
 * not come any more. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/job.h"
#include "tests/support/prompt.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"
#include "tests/support/trial.h"

#define PATIENCE_S 20.0
#define TIMEOUT_MS 400
#define LARGE 3000000

struct word {
	_Atomic bool stop, stopped, go;
	_Atomic int ended;
};

static void check_time(const char *kind, double begin, double due)
{
	prompt_check(kind, job_seconds() - begin, due);
}

/* How a rank waits. */
enum path { COLLECTIVE, LARGE_COLLECTIVE, RECEIVE, SEND, WAYS };
enum how { BLOCKING, GROUP, STREAM, HOWS, TWO_STREAMS };

struct scene {
	enum path way;
	enum how how;
	int leaves; /* this rank, where one does */
};

static dicomm_result_t call(const struct scene *s, const struct job_rank *me,
			    int peer, float *send, float *recv)
{
	dicomm_result_t status, end = DICOMM_SUCCESS;
	dicomm_stream_t stream = NULL;

	if (s->how == STREAM)
		JOB_TRY(dicomm_host_stream_create(&stream));
	if (s->how == GROUP)
		JOB_TRY(dicomm_group_start());
	if (s->way == COLLECTIVE)
		status = dicomm_allreduce(send, recv, 10, DICOMM_FLOAT32,
					  DICOMM_SUM, me->comm, stream);
	else if (s->way == LARGE_COLLECTIVE)
		status = dicomm_allreduce(send, recv, LARGE, DICOMM_FLOAT32,
					  DICOMM_SUM, me->comm, stream);
	else if (s->way == RECEIVE)
		status = dicomm_recv(recv, 10, DICOMM_FLOAT32, peer, me->comm,
				     stream);
	else
		status = dicomm_send(send, LARGE, DICOMM_FLOAT32, peer,
				     me->comm, stream);
	if (s->how == GROUP)
		end = dicomm_group_end();
	if (s->how == STREAM)
		end = dicomm_host_stream_synchronize(stream);
	dicomm_host_stream_destroy(stream);
	return status != DICOMM_SUCCESS ? status : end;
}

static float *floats(void)
{
	float *f = calloc(LARGE, sizeof(*f));

	JOB_CHECK(f, "no memory");
	return f;
}

/* ---- time-out ---- */

static void init(struct job_rank *me, int timeout_ms)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;

	config.timeout_ms = timeout_ms;
	JOB_TRY(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
					     me->rank, &config));
}

/* Rank 0 waits for rank 1, which does not come. */
static void time_out(struct job_rank *me)
{
	const struct scene *s = me->arg;
	bool collective = s->way == COLLECTIVE || s->way == LARGE_COLLECTIVE;
	float *send = floats(), *recv = floats();
	dicomm_result_t async;
	const char *text;
	char words[64];
	double begin;

	init(me, TIMEOUT_MS);
	for (int i = 0; i < 3; i++)
		JOB_TRY(dicomm_barrier(me->comm, NULL));
	job_barrier();
	begin = job_seconds();
	if (me->rank == 0) {
		JOB_REFUSED(call(s, me, 1, send, recv), DICOMM_ERR_TIMEOUT,
			    s->way == SEND ? "send to rank 1"
					   : "receive from rank 1");
		JOB_CHECK(job_seconds() - begin > TIMEOUT_MS / 1e3 - 0.01,
			  "after %.3f s", job_seconds() - begin);
	} else {
		do {
			usleep(1000);
			JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
		} while (async == DICOMM_SUCCESS &&
			 job_seconds() - begin < PATIENCE_S + starved_s());
		JOB_CHECK(async == DICOMM_ERR_TIMEOUT, "async %d", (int)async);
	}
	check_time("time-out", begin, TIMEOUT_MS / 1e3);
	text = dicomm_get_last_error(me->comm);
	snprintf(words, sizeof(words), "rank 0: operation %d, %s count %d",
		 collective ? 4 : 1,
		 collective       ? "allreduce"
		 : s->way == SEND ? "send"
				  : "recv",
		 s->way == COLLECTIVE || s->way == RECEIVE ? 10 : LARGE);
	JOB_CHECK(strstr(text, words), "\"%s\" does not say \"%s\"", text,
		  words);
	JOB_CHECK(strstr(text, "timed out after 400 ms"), "%s", text);
	JOB_REFUSED(dicomm_barrier(me->comm, NULL), DICOMM_ERR_TIMEOUT, words);
	begin = job_seconds();
	JOB_TRY(dicomm_comm_destroy(me->comm));
	check_time("destroy", begin, 0);
	me->comm = NULL;
	free(send);
	free(recv);
}

START_TEST(a_time_out_tells_it_all)
{
	struct scene s = {.way = (enum path)(_i % WAYS),
			  .how = (enum how)(_i / WAYS)};

	job_run(&(struct job){.run = time_out,
			      .arg = &s,
			      .ranks = 2,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none",
				      /* No pull: a large send waits. */
				      "DICOMM_SHM_CMA=off"}});
}
END_TEST

/* timeout_ms counts from the last progress, and 0 is for ever. */
static void be_late(struct job_rank *me)
{
	float *send = floats(), *recv = floats();
	struct scene s = {.way = COLLECTIVE};

	init(me, 0);
	if (me->rank == 1)
		job_sleep_ms(600);
	JOB_TRY(call(&s, me, 0, send, recv));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	init(me, 3000);
	for (int i = 0; i < 4; i++) {
		if (me->rank == i % 2)
			job_sleep_ms(850);
		JOB_TRY(call(&s, me, 0, send, recv));
	}
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	free(send);
	free(recv);
}

START_TEST(who_is_late_is_waited_for)
{
	job_run(&(struct job){.run = be_late,
			      .ranks = 2,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- warning ---- */

struct sink {
	_Atomic int warnings, named, errors;
	char text[300];
};

static void note(int level, const char *message, void *ctx)
{
	struct sink *s = ctx;

	if (level == 0)
		atomic_fetch_add(&s->errors, 1);
	if (level != 1 || !strstr(message, "late"))
		return;
	atomic_fetch_add(&s->warnings, 1);
	snprintf(s->text, sizeof(s->text), "%s", message);
	if (strstr(message, "rank 1 is late"))
		atomic_fetch_add(&s->named, 1);
}

static void warn_late(struct job_rank *me)
{
	const struct scene *s = me->arg;
	struct scene other = *s;
	float *send = floats(), *recv = floats();
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	static struct sink sink;

	config.log_fn = note;
	config.log_ctx = &sink;
	JOB_TRY(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
					     me->rank, &config));
	job_barrier();
	if (me->rank == 1) {
		job_sleep_ms(700);
		other.way = s->way == SEND      ? RECEIVE
			    : s->way == RECEIVE ? SEND
						: s->way;
	}
	/* The counts of both sides have to agree. */
	if (s->way == SEND && me->rank == 1)
		JOB_TRY(dicomm_recv(recv, LARGE, DICOMM_FLOAT32, 0, me->comm,
				    NULL));
	else if (s->way == RECEIVE && me->rank == 1)
		JOB_TRY(dicomm_send(send, 10, DICOMM_FLOAT32, 0, me->comm,
				    NULL));
	else
		JOB_TRY(call(&other, me, 1, send, recv));
	if (me->rank == 0) {
		/* One for a wait; and a busy machine makes others. */
		JOB_CHECK(sink.warnings >= 1 && sink.warnings <= 3 &&
				  sink.named == sink.warnings,
			  "%d warnings, %d of them name rank 1: \"%s\"",
			  sink.warnings, sink.named, sink.text);
		JOB_CHECK(strstr(sink.text, "operation 1"), "\"%s\"",
			  sink.text);
	}
	JOB_CHECK(sink.errors == 0, "%d errors", sink.errors);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	free(send);
	free(recv);
}

START_TEST(who_is_late_is_named)
{
	struct scene s = {.way = (enum path)(_i % WAYS),
			  .how = (enum how)(_i / WAYS)};

	job_run(&(struct job){.run = warn_late,
			      .arg = &s,
			      .ranks = 2,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none",
				      "DICOMM_WARN_LATE_MS=200",
				      "DICOMM_SHM_CMA=off"}});
}
END_TEST

/* ---- stopped, and then not ---- */

static void stop_one(const void *arg)
{
	struct word *w = job_board();

	(void)arg;
	job_await(&w->stop, "the work");
	kill(job_pid(1), SIGSTOP);
	job_sleep_ms(2500);
	kill(job_pid(1), SIGCONT);
}

/* All leave the loop together. */
static void work_with_the_stopped(struct job_rank *me)
{
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_FLOAT32,
			  .count = 100000};
	struct word *w = job_board();
	double end = job_seconds() + 3.5;
	int32_t mine, all;

	do {
		trial_run(t, me);
		atomic_store(&w->stop, true);
		mine = job_seconds() < end;
		JOB_TRY(dicomm_allreduce(&mine, &all, 1, DICOMM_INT32,
					 DICOMM_MAX, me->comm, NULL));
	} while (all);
}

START_TEST(who_is_stopped_is_late_not_dead)
{
	job_run(&(struct job){.run = work_with_the_stopped,
			      .ranks = 3,
			      .disturb = stop_one,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- stopped before anybody has connected to it ---- */

#define CONNECT_MS 1500
#define CALLS 20

static void stop_unconnected(const void *arg)
{
	struct word *w = job_board();

	(void)arg;
	job_await(&w->stop, "the stop");
	kill(job_pid(1), SIGSTOP);
	job_sleep_ms(100);
	atomic_store(&w->stopped, true);
	job_await(&w->go, "the end");
	kill(job_pid(1), SIGCONT);
}

/* Rank 0 sends to rank 1, which is stopped, and works with rank 2 meanwhile, by
 * the same thread of the library. */
static void send_to_stopped(struct job_rank *me, dicomm_comm_t rest)
{
	dicomm_stream_t stuck, busy;
	float one = 1, sum;
	dicomm_result_t status;
	double begin = job_seconds();

	JOB_TRY(dicomm_host_stream_create(&stuck));
	JOB_TRY(dicomm_host_stream_create(&busy));
	JOB_TRY(dicomm_send(&one, 1, DICOMM_FLOAT32, 1, me->comm, stuck));
	for (int i = 0; i < CALLS; i++) {
		JOB_TRY(dicomm_allreduce(&one, &sum, 1, DICOMM_FLOAT32,
					 DICOMM_SUM, rest, busy));
		JOB_TRY(dicomm_host_stream_synchronize(busy));
		JOB_CHECK(sum == 2, "the sum is %g", (double)sum);
		if (i)
			continue;
		JOB_TRY(dicomm_comm_get_async_error(me->comm, &status));
		JOB_CHECK(status == DICOMM_SUCCESS,
			  "nothing moved until %s, after %.1f s",
			  dicomm_get_error_string(status),
			  job_seconds() - begin);
	}
	JOB_REFUSED(dicomm_host_stream_synchronize(stuck), DICOMM_ERR_TIMEOUT,
		    "timed out after 1500 ms");
	JOB_CHECK(strstr(dicomm_get_last_error(NULL), "to rank 1"), "%s",
		  dicomm_get_last_error(NULL));
	check_time("time-out while it connects", begin, CONNECT_MS / 1e3);
	JOB_TRY(dicomm_host_stream_destroy(stuck));
	JOB_TRY(dicomm_host_stream_destroy(busy));
}

static void connect_to_stopped(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	static struct sink sink;
	struct word *w = job_board();
	dicomm_comm_t rest = NULL;
	float one = 1, sum;

	config.timeout_ms = CONNECT_MS;
	config.log_fn = note;
	config.log_ctx = &sink;
	JOB_TRY(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
					     me->rank, &config));
	JOB_TRY(dicomm_comm_split(me->comm,
				  me->rank == 1 ? DICOMM_SPLIT_NOCOLOR : 0, 0,
				  &rest, NULL));
	job_barrier();
	if (me->rank == 1) {
		atomic_store(&w->stop, true);
		job_await(&w->go, "the end");
	}
	job_await(&w->stopped, "the stop");
	if (me->rank == 0) {
		send_to_stopped(me, rest);
		JOB_CHECK(sink.warnings && sink.named == sink.warnings,
			  "%d warnings, %d of them name rank 1: \"%s\"",
			  sink.warnings, sink.named, sink.text);
		atomic_store(&w->go, true);
	}
	for (int i = 0; i < CALLS && me->rank == 2; i++)
		JOB_TRY(dicomm_allreduce(&one, &sum, 1, DICOMM_FLOAT32,
					 DICOMM_SUM, rest, NULL));
	JOB_TRY(dicomm_comm_destroy(rest));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

/* Connecting is like other waiting: its bound is the time-out of operations,
 * and what else the process does goes on. */
START_TEST(who_is_stopped_unconnected_holds_nobody_up)
{
	struct job job = {.run = connect_to_stopped,
			  .ranks = 3,
			  .bare = true,
			  .disturb = stop_unconnected,
			  .env = {"DICOMM_DEBUG=none", "DICOMM_PROBE=off",
				  "DICOMM_WARN_LATE_MS=200"}};

	if (!getenv("DICOMM_TRANSPORTS"))
		job.env[3] = "DICOMM_TRANSPORTS=tcp";
	job_run(&job);
}
END_TEST

/* ---- who holds up all ---- */

#define CHAIN 5
#define CHAIN_MS 1500

/* Which rank the others wait for, in a chain; is it stopped, or busy with
 * something else? */
struct culprit {
	int rank;
	bool stopped;
};

static void stop_culprit(const void *arg)
{
	const struct culprit *culprit = arg;
	struct word *w = job_board();
	double end = job_seconds() + 2 * PATIENCE_S;

	job_await(&w->stop, "the stop");
	if (culprit->stopped)
		kill(job_pid(culprit->rank), SIGSTOP);
	job_sleep_ms(50);
	atomic_store(&w->stopped, true);
	while (atomic_load(&w->ended) < CHAIN - 1 && job_seconds() < end)
		usleep(1000);
	kill(job_pid(culprit->rank), SIGCONT);
	atomic_store(&w->go, true);
}

/* Each rank receives from the next one. */
static void wait_in_a_chain(struct job_rank *me)
{
	const struct culprit *culprit = me->arg;
	struct word *w = job_board();
	char words[64];
	const char *text;
	float x = 0;

	init(me, CHAIN_MS);
	JOB_TRY(dicomm_barrier(me->comm, NULL));
	job_barrier();
	if (me->rank == culprit->rank) {
		atomic_store(&w->stop, true);
		job_await(&w->go, "the end");
	} else {
		job_await(&w->stopped, "the stop");
		JOB_REFUSED(dicomm_recv(&x, 1, DICOMM_FLOAT32,
					(me->rank + 1) % CHAIN, me->comm, NULL),
			    DICOMM_ERR_TIMEOUT, "timed out after 1500 ms");
		text = dicomm_get_last_error(me->comm);
		snprintf(words, sizeof(words), "rank %d (", culprit->rank);
		JOB_CHECK(strstr(text, words), "\"%s\" does not say \"%s\"",
			  text, words);
		snprintf(words, sizeof(words), "pid %d)%s",
			 (int)job_pid(culprit->rank),
			 !culprit->stopped ? ", which waits for no rank"
			 : culprit->rank   ? ", which does not answer"
					   : "");
		JOB_CHECK(strstr(text, words), "\"%s\" does not say \"%s\"",
			  text, words);
		atomic_fetch_add(&w->ended, 1);
	}
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(a_time_out_names_who_holds_up_all)
{
	struct culprit culprit = {.rank = _i / 2 ? CHAIN - 1 : 0,
				  .stopped = _i % 2};

	job_run(&(struct job){.run = wait_in_a_chain,
			      .arg = &culprit,
			      .ranks = CHAIN,
			      .bare = true,
			      .disturb = stop_culprit,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- who has left ---- */

/* One rank destroys its handle, all others wait for it in vain. */
static void leave(struct job_rank *me)
{
	const struct scene *s = me->arg;
	float *send = floats(), *recv = floats();
	dicomm_result_t status;
	const char *text;
	char name[16];
	double begin;

	for (int warm = 0; warm < 2; warm++) {
		init(me, DICOMM_UNDEFINED_INT);
		if (warm)
			JOB_TRY(dicomm_barrier(me->comm, NULL));
		job_barrier();
		begin = job_seconds();
		if (me->rank != s->leaves) {
			status = call(s, me, s->leaves, send, recv);
			JOB_CHECK(status != DICOMM_SUCCESS,
				  "rank %d did not notice", me->rank);
			JOB_CHECK(status == DICOMM_ERR_REMOTE ||
					  status == DICOMM_ERR_INVALID_USAGE,
				  "status %d, %s", (int)status,
				  dicomm_get_last_error(me->comm));
			text = dicomm_get_last_error(me->comm);
			snprintf(name, sizeof(name), "rank %d", s->leaves);
			/* Without rank 0 nobody tells who is third why the
			 * second has gone, too. */
			JOB_CHECK(strstr(text, name) || (s->leaves == 0 &&
							 strstr(text, "left")),
				  "\"%s\" does not name %s", text, name);
		} else if (warm) {
			job_sleep_ms(50);
		}
		JOB_TRY(dicomm_comm_destroy(me->comm));
		check_time("a rank has left", begin, 0);
		me->comm = NULL;
		job_barrier();
	}
	free(send);
	free(recv);
}

START_TEST(who_has_left_is_not_waited_for)
{
	struct scene s = {.way = (enum path)(_i % WAYS),
			  .how = (enum how)(_i / WAYS)};

	for (int n = 2; n <= 3; n++)
		for (s.leaves = 0; s.leaves < 2; s.leaves++)
			job_run(&(struct job){.run = leave,
					      .arg = &s,
					      .ranks = n,
					      .bare = true,
					      .env = {"DICOMM_DEBUG=none",
						      "DICOMM_SHM_CMA=off"}});
}
END_TEST

/* A network tells of it by other means; and connections are made, or are not,
 * while ranks leave. */
START_TEST(who_has_left_is_not_waited_for_over_tcp)
{
	struct scene s = {.way = (enum path)(_i % WAYS),
			  .how = (enum how)(_i / WAYS)};

	for (s.leaves = 0; s.leaves < 2; s.leaves++)
		job_run(&(struct job){
			.run = leave,
			.arg = &s,
			.ranks = 3,
			.bare = true,
			.env = {"DICOMM_DEBUG=none", "DICOMM_TRANSPORTS=tcp"}});
}
END_TEST

/* ---- two that wait at the same time ---- */

/* What becomes of the second, while the first waits for long. */
enum second { TIMES_OUT, HAS_LEFT, SAME_COMM, SECONDS };

struct watched {
	dicomm_comm_t comm;
	struct word *word;
	double due_s;
};

static void *watch(void *arg)
{
	struct watched *w = arg;
	double begin = job_seconds();
	dicomm_result_t async;

	do {
		usleep(1000);
		JOB_TRY(dicomm_comm_get_async_error(w->comm, &async));
		JOB_CHECK(async != DICOMM_SUCCESS ||
				  job_seconds() < begin + PATIENCE_S,
			  "the second is not looked at");
	} while (async == DICOMM_SUCCESS);
	check_time("the second of two", begin, w->due_s);
	atomic_store(&w->word->go, true);
	return NULL;
}

static void call_first(struct job_rank *me, enum second kind, int32_t *out,
		       dicomm_stream_t stream)
{
	static const int32_t in = 1;

	if (kind == SAME_COMM)
		JOB_TRY(dicomm_recv(out, 1, DICOMM_INT32, 1, me->comm, stream));
	else
		JOB_TRY(dicomm_allreduce(&in, out, 1, DICOMM_INT32, DICOMM_SUM,
					 me->comm, stream));
}

static dicomm_result_t call_both(struct job_rank *me, struct job_rank *other,
				 enum second kind, enum how how)
{
	dicomm_stream_t stream = NULL;
	dicomm_result_t status;
	int32_t out[2];

	if (how == STREAM)
		JOB_TRY(dicomm_host_stream_create(&stream));
	JOB_TRY(dicomm_group_start());
	call_first(me, kind, out, stream);
	JOB_TRY(dicomm_recv(out + 1, 1, DICOMM_INT32, 2, other->comm, stream));
	status = dicomm_group_end();
	if (stream)
		status = dicomm_host_stream_destroy(stream);
	return status;
}

/* The second comes first, and the other one waits for longer. */
static dicomm_result_t call_apart(struct job_rank *me, struct job_rank *other,
				  enum second kind)
{
	dicomm_stream_t streams[2];
	dicomm_result_t status;
	int32_t out[2];

	for (int i = 0; i < 2; i++)
		JOB_TRY(dicomm_host_stream_create(&streams[i]));
	JOB_TRY(dicomm_recv(out + 1, 1, DICOMM_INT32, 2, other->comm,
			    streams[1]));
	call_first(me, kind, out, streams[0]);
	status = dicomm_host_stream_destroy(streams[1]);
	dicomm_host_stream_destroy(streams[0]);
	return status;
}

static void wait_for_two(struct job_rank *me, struct job_rank *other,
			 enum second kind, enum how how)
{
	struct watched w = {other->comm, job_board(),
			    kind == TIMES_OUT ? TIMEOUT_MS / 1e3 : 0};
	dicomm_result_t status;
	pthread_t thread;

	JOB_CHECK(!pthread_create(&thread, NULL, watch, &w), "no thread");
	status = how == TWO_STREAMS ? call_apart(me, other, kind)
				    : call_both(me, other, kind, how);
	pthread_join(thread, NULL);
	JOB_CHECK(status == (kind == TIMES_OUT ? DICOMM_ERR_TIMEOUT
					       : DICOMM_ERR_REMOTE),
		  "status %d", (int)status);
	JOB_CHECK(strstr(dicomm_get_last_error(other->comm), "rank 2"), "%s",
		  dicomm_get_last_error(other->comm));
}

static void two_at_once(struct job_rank *me)
{
	const struct scene *s = me->arg;
	enum second kind = (enum second)s->way;
	struct job_rank other = *me;
	struct word *w = job_board();
	int32_t in = 1, out;

	init(me, 0);
	other = *me;
	if (kind != SAME_COMM)
		init(&other, kind == TIMES_OUT ? TIMEOUT_MS : 0);
	job_barrier();
	if (me->rank == 2 && kind != TIMES_OUT)
		JOB_TRY(dicomm_comm_destroy(other.comm));
	if (me->rank == 0) {
		wait_for_two(me, &other, kind, s->how);
	} else {
		job_await(&w->go, "the end of the second");
		if (kind != SAME_COMM)
			JOB_TRY(dicomm_allreduce(&in, &out, 1, DICOMM_INT32,
						 DICOMM_SUM, me->comm, NULL));
	}
	job_barrier();
	if (kind != SAME_COMM && (me->rank != 2 || kind == TIMES_OUT))
		JOB_TRY(dicomm_comm_destroy(other.comm));
	if (kind != SAME_COMM || me->rank != 2)
		JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(all_that_wait_are_looked_at)
{
	static const enum how hows[] = {GROUP, STREAM, TWO_STREAMS};
	struct scene s = {.way = (enum path)(_i % SECONDS),
			  .how = hows[_i / SECONDS]};

	job_run(&(struct job){.run = two_at_once,
			      .arg = &s,
			      .ranks = 3,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* What a rank sent before it left arrives; what nobody receives keeps nobody
 * from leaving. */
static void leave_something(struct job_rank *me)
{
	int next = (me->rank + 1) % me->ranks;
	int before = (me->rank + me->ranks - 1) % me->ranks;
	int32_t value = me->rank, got = -1;
	double begin;

	init(me, DICOMM_UNDEFINED_INT);
	JOB_TRY(dicomm_send(&value, 1, DICOMM_INT32, next, me->comm, NULL));
	if (me->rank) {
		job_sleep_ms(300 * me->rank);
		JOB_TRY(dicomm_recv(&got, 1, DICOMM_INT32, before, me->comm,
				    NULL));
		JOB_CHECK(got == before, "got %d from rank %d", got, before);
	}
	/* Rank 0 leaves without having received. */
	begin = job_seconds();
	JOB_TRY(dicomm_comm_destroy(me->comm));
	check_time("leave", begin, 0.3 * me->ranks);
	me->comm = NULL;
}

START_TEST(what_was_sent_arrives)
{
	for (int n = 2; n <= 4; n++)
		job_run(&(struct job){.run = leave_something,
				      .ranks = n,
				      .bare = true,
				      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* Rank 0 has left, and its process is gone; the others go on, and know when one
 * of them dies. */
static void go_on_without_rank_0(struct job_rank *me)
{
	struct word *w = job_board();
	dicomm_result_t status;
	int32_t value = 5;

	JOB_TRY(dicomm_barrier(me->comm, NULL));
	if (me->rank == 0) {
		JOB_TRY(dicomm_comm_destroy(me->comm));
		job_exit();
	}
	job_sleep_ms(200);
	for (int i = 0; i < 10; i++)
		if (me->rank == 1)
			JOB_TRY(dicomm_send(&value, 1, DICOMM_INT32, 2,
					    me->comm, NULL));
		else
			JOB_TRY(dicomm_recv(&value, 1, DICOMM_INT32, 1,
					    me->comm, NULL));
	if (me->rank == 1) {
		atomic_store(&w->stop, true);
		sleep(30);
	}
	status = dicomm_recv(&value, 1, DICOMM_INT32, 1, me->comm, NULL);
	JOB_CHECK(status == DICOMM_ERR_REMOTE &&
			  strstr(dicomm_get_last_error(me->comm), "rank 1"),
		  "status %d, %s", (int)status,
		  dicomm_get_last_error(me->comm));
	JOB_CHECK(atomic_load(&w->stopped), "before the death");
}

static void kill_rank_1(const void *arg)
{
	struct word *w = job_board();

	(void)arg;
	job_await(&w->stop, "the work");
	job_sleep_ms(100);
	atomic_store(&w->stopped, true);
	kill(job_pid(1), SIGKILL);
}

START_TEST(without_rank_0_deaths_are_seen)
{
	job_run(&(struct job){.run = go_on_without_rank_0,
			      .ranks = 3,
			      .may_die = 1u << 1,
			      .disturb = kill_rank_1,
			      .timeout_s = 10,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* The same, but rank 1 does not die, and does not leave at once. */
static void abort_without_rank_0(struct job_rank *me)
{
	bool sends = *(const bool *)me->arg;
	struct word *w = job_board();
	dicomm_result_t status;
	int32_t value = 5;
	double begin;

	JOB_TRY(dicomm_barrier(me->comm, NULL));
	if (me->rank == 0) {
		JOB_TRY(dicomm_comm_destroy(me->comm));
		me->comm = NULL;
		return;
	}
	job_sleep_ms(200);
	if (me->rank == 1) {
		JOB_TRY(dicomm_comm_abort(me->comm));
		job_await(&w->stop, "the news");
		return;
	}
	begin = job_seconds();
	do
		status = sends ? dicomm_send(&value, 1, DICOMM_INT32, 1,
					     me->comm, NULL)
			       : dicomm_recv(&value, 1, DICOMM_INT32, 1,
					     me->comm, NULL);
	while (status == DICOMM_SUCCESS && job_seconds() < begin + PATIENCE_S);
	atomic_store(&w->stop, true);
	JOB_CHECK(status == DICOMM_ERR_REMOTE &&
			  strstr(dicomm_get_last_error(me->comm), "rank 1"),
		  "status %d, %s", (int)status,
		  dicomm_get_last_error(me->comm));
	check_time("abort without rank 0", begin, 0);
}

START_TEST(without_rank_0_aborts_are_seen)
{
	bool sends = _i & 1;

	job_run(&(struct job){.run = abort_without_rank_0,
			      .arg = &sends,
			      .ranks = 3,
			      .threads = _i >> 1,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- a rank with itself ---- */

/* No group: nobody is left to make the other call. */
static void wait_for_oneself(struct job_rank *me)
{
	const struct scene *s = me->arg;
	float *send = floats(), *recv = floats();
	dicomm_result_t status;
	double begin;

	JOB_TRY(dicomm_barrier(me->comm, NULL));
	begin = job_seconds();
	if (me->rank == 0)
		status = call(s, me, 0, send, recv);
	else
		status = dicomm_barrier(me->comm, NULL);
	JOB_CHECK(status == DICOMM_ERR_INVALID_USAGE &&
			  strstr(dicomm_get_last_error(me->comm),
				 "rank 0 waits for itself"),
		  "status %d, %s", (int)status,
		  dicomm_get_last_error(me->comm));
	check_time("a rank waits for itself", begin, 0.4);
	free(send);
	free(recv);
}

START_TEST(who_waits_for_himself_is_told)
{
	struct scene s = {.way = _i & 1 ? SEND : RECEIVE,
			  .how = _i & 2 ? GROUP : BLOCKING};

	job_run(&(struct job){.run = wait_for_oneself,
			      .arg = &s,
			      .ranks = 2,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- finalize ---- */

/* What rank 0 sent is not received in time. */
static void finalize_in_vain(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	struct word *w = job_board();
	dicomm_result_t status;
	dicomm_comm_t comm;
	int32_t value = 5;
	double begin, end;

	init(me, DICOMM_UNDEFINED_INT);
	config.timeout_ms = TIMEOUT_MS;
	config.blocking = *(const int *)me->arg;
	status = dicomm_comm_split(me->comm, 0, 0, &comm, &config);
	JOB_CHECK(status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS,
		  "split: %d", (int)status);
	end = job_seconds() + PATIENCE_S;
	JOB_TRY(job_settled(DICOMM_IN_PROGRESS, comm, PATIENCE_S));
	begin = job_seconds();
	if (me->rank == 0) {
		JOB_TRY(dicomm_send(&value, 1, DICOMM_INT32, 1, comm, NULL));
		status = dicomm_comm_finalize(comm);
		JOB_CHECK(status == (config.blocking ? DICOMM_ERR_TIMEOUT
						     : DICOMM_IN_PROGRESS),
			  "finalize: %d", (int)status);
	}
	do {
		usleep(1000);
		JOB_TRY(dicomm_comm_get_async_error(comm, &status));
	} while ((status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS) &&
		 job_seconds() < begin + PATIENCE_S);
	JOB_CHECK(status == DICOMM_ERR_TIMEOUT, "async %d", (int)status);
	JOB_CHECK(strstr(dicomm_get_last_error(comm),
			 "rank 1 has not received all that rank 0 sent"),
		  "%s", dicomm_get_last_error(comm));
	check_time("finalize in vain", begin, TIMEOUT_MS / 1e3);
	atomic_fetch_add(&w->ended, 1);
	while (atomic_load(&w->ended) < me->ranks && job_seconds() < end)
		usleep(1000);
	JOB_TRY(dicomm_comm_destroy(comm));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(a_finalize_that_times_out_breaks_it)
{
	job_run(&(struct job){.run = finalize_in_vain,
			      .arg = &_i,
			      .ranks = 2,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_late");
	TCase *tcase = tcase_create("fault_late");

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, a_time_out_tells_it_all, 0, WAYS * HOWS);
	tcase_add_test(tcase, who_is_late_is_waited_for);
	tcase_add_loop_test(tcase, who_waits_for_himself_is_told, 0, 4);
	tcase_add_loop_test(tcase, who_is_late_is_named, 0, WAYS * HOWS);
	tcase_add_test(tcase, who_is_stopped_is_late_not_dead);
	tcase_add_test(tcase, who_is_stopped_unconnected_holds_nobody_up);
	tcase_add_loop_test(tcase, a_time_out_names_who_holds_up_all, 0, 4);
	tcase_add_loop_test(tcase, who_has_left_is_not_waited_for, 0,
			    WAYS * HOWS);
	tcase_add_loop_test(tcase, who_has_left_is_not_waited_for_over_tcp, 0,
			    WAYS * HOWS);
	tcase_add_loop_test(tcase, all_that_wait_are_looked_at, 0,
			    2 * SECONDS + SAME_COMM);
	tcase_add_test(tcase, what_was_sent_arrives);
	tcase_add_test(tcase, without_rank_0_deaths_are_seen);
	tcase_add_loop_test(tcase, without_rank_0_aborts_are_seen, 0, 4);
	tcase_add_loop_test(tcase, a_finalize_that_times_out_breaks_it, 0, 2);
	suite_add_tcase(suite, tcase);
	prompt_add(suite);
	return runner_main(suite);
}
