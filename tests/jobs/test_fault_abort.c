/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm_comm_abort(): from any thread, at any moment, in bounded time; the
 * other ranks learn of it; and afterwards nothing touches the buffers of who
 * aborted, whatever the others do. */
#include <check.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/core/comm.h"
#include "tests/support/prompt.h"
#include "tests/support/residue.h"
#include "tests/support/runner.h"
#include "tests/support/storm.h"
#include "tests/support/trial.h"

#define PATIENCE_S 20.0

/* What the processes of a job tell each other. */
struct word {
	_Atomic int working, ended;
	_Atomic bool stop, stopped, go, going;
	_Atomic double aborted_s; /* when the abort began */
};

static void timed_abort(dicomm_comm_t comm)
{
	double begin = job_seconds();

	JOB_TRY(dicomm_comm_abort(comm));
	prompt_check("abort", job_seconds() - begin, 0);
}

static void timed_destroy(struct job_rank *me)
{
	double begin = job_seconds();

	JOB_TRY(dicomm_comm_destroy(me->comm));
	prompt_check("destroy", job_seconds() - begin, 0);
	me->comm = NULL;
}

/* What is left of a communicator that this rank aborted. */
static void check_aborted(const struct job_rank *me)
{
	struct trial t = {.type = DICOMM_FLOAT32, .count = 10};
	dicomm_result_t async;
	dicomm_comm_t other;
	void *handle;
	int n;

	for (int i = 0; i < TRIAL_KINDS; i++) {
		t.kind = (enum trial_kind)i;
		trial_fill(&t, me);
		JOB_REFUSED(trial_call(&t, NULL), DICOMM_ERR_ABORTED,
			    "aborted");
		trial_free(&t);
	}
	JOB_TRY(dicomm_comm_abort(me->comm));
	JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
	JOB_CHECK(async == DICOMM_ERR_ABORTED, "async %d", (int)async);
	JOB_REFUSED(dicomm_comm_finalize(me->comm), DICOMM_ERR_ABORTED,
		    "aborted");
	JOB_REFUSED(dicomm_comm_split(me->comm, 0, 0, &other, NULL),
		    DICOMM_ERR_ABORTED, "aborted");
	JOB_REFUSED(dicomm_comm_register(me->comm, &n, sizeof(n), &handle),
		    DICOMM_ERR_ABORTED, "aborted");
	JOB_TRY(dicomm_comm_count(me->comm, &n));
	JOB_CHECK(n == me->ranks, "count %d", n);
}

static void check_remote(const struct job_rank *me, dicomm_result_t status,
			 int culprit)
{
	const char *text = dicomm_get_last_error(me->comm);
	char name[16];

	snprintf(name, sizeof(name), "rank %d", culprit);
	JOB_CHECK(status == DICOMM_ERR_REMOTE && strstr(text, name),
		  "status %d, \"%s\", when %s aborted", (int)status, text,
		  name);
}

/* ---- in a signal handler ---- */

static dicomm_comm_t signalled;
static _Atomic int handler_status = -1;

static void abort_here(int number)
{
	(void)number;
	atomic_store(&handler_status, (int)dicomm_comm_abort(signalled));
}

/* Until a signal has come inside the call */
static void *interrupt(void *arg)
{
	const pthread_t *thread = arg;
	struct word *w = job_board();

	while (!atomic_load(&w->stop)) {
		pthread_kill(*thread, SIGUSR1);
		usleep(20000);
	}
	return NULL;
}

/* Receive what nobody sends: a blocking call, or one on a host stream, and a
 * wait for it. */
static dicomm_result_t receive_in_vain(struct job_rank *me)
{
	dicomm_stream_t stream = NULL;
	dicomm_result_t status, ended = DICOMM_SUCCESS;
	int32_t x = 0;

	if (me->arg)
		JOB_TRY(dicomm_host_stream_create(&stream));
	status = dicomm_recv(&x, 1, DICOMM_INT32, 1, me->comm, stream);
	if (stream)
		ended = dicomm_host_stream_destroy(stream);
	return status == DICOMM_SUCCESS ? ended : status;
}

/* The thread that is inside the call cannot wait for it. */
static void interrupted(struct job_rank *me)
{
	const struct sigaction act = {.sa_handler = abort_here};
	struct word *w = job_board();
	dicomm_result_t status = DICOMM_SUCCESS;
	pthread_t thread, self;

	if (me->rank) {
		check_remote(me, dicomm_barrier(me->comm, NULL), 0);
		atomic_store(&w->stop, true);
		timed_destroy(me);
		return;
	}
	signalled = me->comm;
	sigaction(SIGUSR1, &act, NULL);
	self = pthread_self();
	JOB_CHECK(!pthread_create(&thread, NULL, interrupt, &self),
		  "no thread");
	/* The signal comes meanwhile. */
	while (status == DICOMM_SUCCESS)
		status = receive_in_vain(me);
	JOB_CHECK(status == DICOMM_ERR_ABORTED &&
			  strstr(dicomm_get_last_error(me->comm),
				 "rank 0 aborted"),
		  "status %d, \"%s\"", (int)status,
		  dicomm_get_last_error(me->comm));
	JOB_CHECK(atomic_load(&handler_status) == DICOMM_IN_PROGRESS ||
			  atomic_load(&handler_status) == DICOMM_SUCCESS,
		  "abort in the handler gave %d", atomic_load(&handler_status));
	job_await(&w->stop, "the end of rank 1");
	pthread_join(thread, NULL);
	check_aborted(me);
	timed_destroy(me);
}

START_TEST(a_signal_handler_aborts_the_call_that_it_interrupts)
{
	static const bool on_stream = true;

	job_run(&(struct job){
		.run = interrupted, .arg = _i ? &on_stream : NULL, .ranks = 2});
}
END_TEST

/* ---- a call that waits ---- */

struct aborter {
	dicomm_comm_t comm;
	int after_us;
};

static void *abort_later(void *arg)
{
	const struct aborter *a = arg;
	struct word *w = job_board();

	usleep((unsigned)a->after_us);
	atomic_store(&w->aborted_s, job_seconds());
	timed_abort(a->comm);
	return NULL;
}

static void check_end(const char *kind)
{
	struct word *w = job_board();

	prompt_check(kind, job_seconds() - atomic_load(&w->aborted_s), 0);
}

static pthread_t start_abort(struct aborter *a)
{
	pthread_t thread;

	JOB_CHECK(!pthread_create(&thread, NULL, abort_later, a), "no thread");
	return thread;
}

enum how { CALL, CALL_LARGE, IN_GROUP, ON_STREAM, HOWS };

/* The last rank never comes. Who does not depend on it may be done before. */
static void wait_in_vain(struct job_rank *me, enum trial_kind kind,
			 enum how how)
{
	struct aborter a = {.comm = me->comm, .after_us = 20000};
	struct trial t = {.kind = kind, .type = DICOMM_FLOAT32};
	dicomm_stream_t stream = NULL;
	dicomm_result_t status, end = DICOMM_SUCCESS;
	pthread_t thread;

	t.count = how == CALL ? 10 : 300000;
	t.root = me->ranks - 1;
	trial_fill(&t, me);
	thread = start_abort(&a);
	if (how == ON_STREAM)
		JOB_TRY(dicomm_host_stream_create(&stream));
	if (how == IN_GROUP)
		JOB_TRY(dicomm_group_start());
	status = trial_call(&t, stream);
	for (int i = 0; how == ON_STREAM && i < 20 && !status; i++)
		status = trial_call(&t, stream);
	if (how == IN_GROUP)
		end = dicomm_group_end();
	if (how == ON_STREAM)
		end = dicomm_host_stream_synchronize(stream);
	if (status == DICOMM_SUCCESS)
		status = end;
	/* Of the abort before, if this one is to come yet */
	if (status == DICOMM_ERR_ABORTED)
		check_end("end of an aborted call");
	pthread_join(thread, NULL);
	JOB_CHECK(status == DICOMM_ERR_ABORTED || status == DICOMM_SUCCESS,
		  "status %d", (int)status);
	/* What needs the last rank cannot be done. */
	if (kind == TRIAL_ALLREDUCE || kind == TRIAL_BARRIER ||
	    kind == TRIAL_BROADCAST || kind == TRIAL_SCATTER ||
	    kind == TRIAL_ALLTOALL || kind == TRIAL_ALLGATHER)
		JOB_CHECK(status == DICOMM_ERR_ABORTED, "status %d",
			  (int)status);
	if (status != DICOMM_SUCCESS)
		JOB_CHECK(strstr(dicomm_get_last_error(me->comm), "rank 0"),
			  "%s", dicomm_get_last_error(me->comm));
	trial_free(&t);
	dicomm_host_stream_destroy(stream);
}

/* The news comes without any call. */
static void wait_for_news(const struct job_rank *me)
{
	double begin = job_seconds();
	dicomm_result_t async;

	do {
		JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
		JOB_CHECK(job_seconds() < begin + PATIENCE_S,
			  "no news of the abort");
		usleep(100);
	} while (async == DICOMM_SUCCESS);
	prompt_check("news of an abort", job_seconds() - begin, 0);
	check_remote(me, async, 0);
	check_remote(me, dicomm_barrier(me->comm, NULL), 0);
}

/* Rank 0 waits and is aborted; the others learn of it. */
static void abort_waiting(struct job_rank *me)
{
	enum how how = *(const enum how *)me->arg;
	struct word *w = job_board();

	for (int kind = 0; kind < TRIAL_KINDS; kind++) {
		JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
					      me->rank));
		if (me->rank == 0) {
			wait_in_vain(me, (enum trial_kind)kind, how);
			check_aborted(me);
			atomic_store(&w->go, true);
		} else {
			job_await(&w->go, "the abort");
			wait_for_news(me);
		}
		timed_destroy(me);
		job_barrier();
		atomic_store(&w->go, false);
		job_barrier();
	}
}

START_TEST(a_waiting_call_is_aborted)
{
	enum how how = (enum how)_i;

	for (int n = 2; n <= 3; n++)
		job_run(&(struct job){.run = abort_waiting,
				      .arg = &how,
				      .ranks = n,
				      .bare = true,
				      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

START_TEST(a_waiting_call_is_aborted_among_threads)
{
	enum how how = (enum how)_i;

	job_run(&(struct job){.run = abort_waiting,
			      .arg = &how,
			      .ranks = 3,
			      .threads = true,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* Rank 1 does not take part in a split, nor receive what rank 0 leaves with. */
static void abort_the_end(struct job_rank *me)
{
	bool splits = *(const int *)me->arg;
	struct aborter a = {.after_us = 20000};
	struct word *w = job_board();
	dicomm_comm_t other;
	pthread_t thread;
	int32_t value = 0;

	if (me->rank) {
		job_await(&w->go, "the abort");
		wait_for_news(me);
		return;
	}
	if (!splits)
		JOB_TRY(dicomm_send(&value, 1, DICOMM_INT32, 1, me->comm,
				    NULL));
	a.comm = me->comm;
	thread = start_abort(&a);
	JOB_REFUSED(splits ? dicomm_comm_split(me->comm, 0, 0, &other, NULL)
			   : dicomm_comm_finalize(me->comm),
		    DICOMM_ERR_ABORTED, "rank 0 aborted");
	check_end(splits ? "end of an aborted split"
			 : "end of an aborted finalize");
	pthread_join(thread, NULL);
	atomic_store(&w->go, true);
}

START_TEST(a_waiting_split_or_finalize_is_aborted)
{
	job_run(&(struct job){.run = abort_the_end,
			      .arg = &_i,
			      .ranks = 2,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- beside another communicator, which waits on ---- */

enum beside { ONE_GROUP, GROUP_ON_STREAM, SAME_STREAM, BESIDES };

struct ender {
	dicomm_comm_t comm;
	struct word *word;
};

/* Nothing of the aborted one is left, though the other still waits. */
static void *abort_and_destroy(void *arg)
{
	struct ender *e = arg;
	struct job_rank me = {.comm = e->comm};
	double end = job_seconds() + PATIENCE_S;

	/* Who has not called yet would call what is gone. */
	while (!data_path_is_used(&e->comm->path))
		JOB_CHECK(job_seconds() < end, "nobody ever called");
	usleep(20000);
	timed_abort(e->comm);
	timed_destroy(&me);
	atomic_store(&e->word->go, true);
	return NULL;
}

/* Two sums of a rank in one group, or one behind the other on a stream. */
static dicomm_result_t two_sums(enum beside how, dicomm_comm_t first,
				dicomm_comm_t second, const int32_t *in,
				int32_t *out)
{
	dicomm_result_t status = DICOMM_SUCCESS, end;
	dicomm_stream_t stream = NULL;

	if (how != ONE_GROUP)
		JOB_TRY(dicomm_host_stream_create(&stream));
	if (how != SAME_STREAM)
		JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_allreduce(in, out, 1, DICOMM_INT32, DICOMM_SUM, first,
				 stream));
	JOB_TRY(dicomm_allreduce(in, out + 1, 1, DICOMM_INT32, DICOMM_SUM,
				 second, stream));
	if (how != SAME_STREAM)
		status = dicomm_group_end();
	end = dicomm_host_stream_destroy(stream);
	return status != DICOMM_SUCCESS ? status : end;
}

static void abort_one_of_two(struct job_rank *me)
{
	enum beside how = *(const enum beside *)me->arg;
	int32_t in = me->rank + 1, out[2] = {0, 0};
	struct job_rank other = *me;
	struct ender e = {.word = job_board()};
	dicomm_result_t status;
	pthread_t thread;

	JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &other.comm, NULL));
	e.comm = other.comm;
	if (me->rank == 0) {
		JOB_CHECK(!pthread_create(&thread, NULL, abort_and_destroy, &e),
			  "no thread");
		status = two_sums(how, me->comm, other.comm, &in, out);
		JOB_CHECK(atomic_load(&e.word->go), "ended too early");
		pthread_join(thread, NULL);
		JOB_CHECK(status == DICOMM_ERR_ABORTED, "status %d",
			  (int)status);
	} else {
		job_await(&e.word->go, "the end of the abort");
		wait_for_news(&other);
		timed_destroy(&other);
		JOB_TRY(dicomm_allreduce(&in, out, 1, DICOMM_INT32, DICOMM_SUM,
					 me->comm, NULL));
	}
	JOB_CHECK(out[0] == me->ranks * (me->ranks + 1) / 2, "the sum is %d",
		  out[0]);
	JOB_TRY(dicomm_barrier(me->comm, NULL));
}

START_TEST(an_abort_does_not_wait_for_others)
{
	enum beside how = (enum beside)(_i % BESIDES);

	job_run(&(struct job){.run = abort_one_of_two,
			      .arg = &how,
			      .ranks = 2,
			      .threads = _i / BESIDES,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- a busy communicator ---- */

struct moment {
	int rank, after_us;
	unsigned seed;
};

static void storm_and_abort(struct job_rank *me)
{
	const struct moment *m = me->arg;
	struct aborter a = {.after_us = m->after_us};
	struct residue before;
	dicomm_result_t status;
	struct storm s;
	pthread_t thread = 0;
	double end;

	storm_warm_up(me, &before);
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	storm_begin(&s, me, m->seed);
	a.comm = me->comm;
	if (me->rank == m->rank)
		thread = start_abort(&a);
	end = job_seconds() + PATIENCE_S;
	do {
		status = storm_next(&s);
		JOB_CHECK(job_seconds() < end, "the abort had no effect");
	} while (status == DICOMM_SUCCESS);
	check_end(me->rank == m->rank ? "end of an aborted call"
				      : "news of an abort");
	if (me->rank == m->rank) {
		JOB_CHECK(status == DICOMM_ERR_ABORTED, "status %d",
			  (int)status);
		pthread_join(thread, NULL);
	} else {
		check_remote(me, status, m->rank);
	}
	storm_end(&s);
	timed_destroy(me);
	/* Threads of one process count each other's. */
	job_barrier();
	residue_check(&before, "after an abort");
}

START_TEST(a_busy_communicator_is_aborted)
{
	unsigned state = (unsigned)getpid();
	int times = job_is_long() ? 100 : 8;

	for (int i = 0; i < times; i++) {
		struct moment m = {.seed = storm_random(&state, 100000)};
		int n = 2 + i % 3;

		m.rank = (int)storm_random(&state, (unsigned)n);
		m.after_us = (int)storm_random(&state, 30000);
		job_run(&(struct job){.run = storm_and_abort,
				      .arg = &m,
				      .ranks = n,
				      .threads = _i,
				      .bare = true,
				      .env = {"DICOMM_DEBUG=none"},
				      .timeout_s = 40});
	}
}
END_TEST

/* ---- afterwards nobody touches the buffers ---- */

#define LARGE_BYTES ((size_t)48 << 20)
#define POISON 0x5A
#define DATA 0x11

struct transfer {
	bool shared;        /* from dicomm_mem_alloc() */
	bool sender_aborts; /* and the receiver is stopped; else vice versa */
	bool allreduce;
};

static uint8_t *buffer_get(bool shared, uint8_t fill)
{
	void *p = NULL;

	if (shared)
		JOB_TRY(dicomm_mem_alloc(&p, LARGE_BYTES));
	else
		p = mmap(NULL, LARGE_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	JOB_CHECK(p && p != MAP_FAILED, "no memory");
	memset(p, fill, LARGE_BYTES);
	return p;
}

static void buffer_put(uint8_t *p, bool shared)
{
	if (shared)
		JOB_TRY(dicomm_mem_free(p));
	else
		munmap(p, LARGE_BYTES);
}

static void check_poison(const uint8_t *p, const char *what)
{
	job_check_bytes(p, LARGE_BYTES, POISON, what);
}

/* Runs in the rank that aborts: waits until the transfer is under way and the
 * other rank is stopped. */
struct midway {
	struct word *w;
	const volatile uint8_t *watched; /* NULL: time must do */
	dicomm_comm_t comm;
};

/* A look at a buffer that the library writes meanwhile. */
__attribute__((noinline, no_sanitize("thread"))) static bool
has_begun(const volatile uint8_t *watched)
{
	return *watched != 0;
}

static void *abort_midway(void *arg)
{
	struct midway *m = arg;
	double end = job_seconds() + PATIENCE_S;

	while (m->watched && !has_begun(m->watched)) {
		JOB_CHECK(job_seconds() < end, "nothing arrives");
		sched_yield();
	}
	if (!m->watched)
		usleep(4000);
	atomic_store(&m->w->stop, true);
	job_await(&m->w->stopped, "the stop");
	timed_abort(m->comm);
	return NULL;
}

static dicomm_result_t transfer_once(struct job_rank *me,
				     const struct transfer *t, uint8_t *send,
				     uint8_t *recv)
{
	if (t->allreduce)
		return dicomm_allreduce(send, recv, LARGE_BYTES, DICOMM_UINT8,
					DICOMM_MAX, me->comm, NULL);
	if (me->rank == 0)
		return dicomm_send(send, LARGE_BYTES, DICOMM_UINT8, 1, me->comm,
				   NULL);
	return dicomm_recv(recv, LARGE_BYTES, DICOMM_UINT8, 0, me->comm, NULL);
}

/* Over and over: how far a transfer has come when the peer stops is left to
 * chance. */
static dicomm_result_t run_transfer(struct job_rank *me,
				    const struct transfer *t, uint8_t *send,
				    uint8_t *recv)
{
	double end = job_seconds() + PATIENCE_S;
	dicomm_result_t status;

	do {
		status = transfer_once(me, t, send, recv);
		JOB_CHECK(job_seconds() < end, "no end of it");
	} while (status == DICOMM_SUCCESS);
	return status;
}

/* The one that aborts; the other one is a process that is stopped. */
static void abort_and_look(struct job_rank *me, const struct transfer *t)
{
	struct word *w = job_board();
	uint8_t *send = buffer_get(t->shared, DATA);
	uint8_t *recv = buffer_get(t->shared, 0);
	struct midway m = {.w = w, .comm = me->comm};
	dicomm_result_t status;
	pthread_t thread;

	if (!t->sender_aborts || t->allreduce)
		m.watched = recv + LARGE_BYTES / 8;
	JOB_CHECK(!pthread_create(&thread, NULL, abort_midway, &m),
		  "no thread");
	status = run_transfer(me, t, send, recv);
	pthread_join(thread, NULL);
	JOB_CHECK(status == DICOMM_ERR_ABORTED, "status %d", (int)status);
	memset(send, POISON, LARGE_BYTES);
	memset(recv, POISON, LARGE_BYTES);
	atomic_store(&w->go, true);
	job_await(&w->going, "the continuation");
	job_sleep_ms(100);
	check_poison(send, "send buffer");
	check_poison(recv, "receive buffer");
	buffer_put(send, t->shared);
	buffer_put(recv, t->shared);
	/* Most likely at the same addresses. */
	send = buffer_get(t->shared, POISON);
	recv = buffer_get(t->shared, POISON);
	timed_destroy(me);
	job_sleep_ms(100);
	check_poison(send, "new send buffer");
	check_poison(recv, "new receive buffer");
	buffer_put(send, t->shared);
	buffer_put(recv, t->shared);
}

static void be_stopped(struct job_rank *me, const struct transfer *t)
{
	uint8_t *send = buffer_get(t->shared, DATA);
	uint8_t *recv = buffer_get(t->shared, 0);

	check_remote(me, run_transfer(me, t, send, recv),
		     t->sender_aborts ? 0 : 1);
	timed_destroy(me);
	buffer_put(send, t->shared);
	buffer_put(recv, t->shared);
}

static void transfer(struct job_rank *me)
{
	const struct transfer *t = me->arg;
	int aborts = t->sender_aborts ? 0 : 1;

	if (me->rank == aborts)
		abort_and_look(me, t);
	else
		be_stopped(me, t);
}

static void stop_and_go(const void *arg)
{
	const struct transfer *t = arg;
	struct word *w = job_board();
	int pid = job_pid(t->sender_aborts ? 1 : 0);

	job_await(&w->stop, "the wish to stop");
	kill(pid, SIGSTOP);
	job_sleep_ms(2);
	atomic_store(&w->stopped, true);
	job_await(&w->go, "the wish to go on");
	kill(pid, SIGCONT);
	atomic_store(&w->going, true);
}

static const char *const cma[] = {"DICOMM_SHM_CMA=off", "DICOMM_SHM_CMA=on"};

START_TEST(after_an_abort_no_buffer_changes)
{
	struct transfer t = {
		.shared = _i & 1, .sender_aborts = _i & 2, .allreduce = _i & 8};
	int times = job_is_long() ? 20 : 1;

	for (int i = 0; i < times; i++)
		job_run(&(struct job){
			.run = transfer,
			.arg = &t,
			.ranks = 2,
			.disturb = stop_and_go,
			.env = {"DICOMM_DEBUG=none", cma[_i >> 2 & 1]}});
}
END_TEST

/* ---- ranks of one process read each other's memory by address ---- */

/* Gone means gone: an access to it ends the process. */
static void transfer_and_unmap(struct job_rank *me)
{
	const struct moment *moment = me->arg;
	struct transfer t = {.allreduce = moment->seed & 1};
	uint8_t *send = buffer_get(false, DATA), *recv = buffer_get(false, 0);
	struct aborter a = {.comm = me->comm, .after_us = moment->after_us};
	dicomm_result_t status;
	pthread_t thread = 0;

	if (me->rank == moment->rank)
		thread = start_abort(&a);
	status = run_transfer(me, &t, send, recv);
	check_end(me->rank == moment->rank ? "end of an aborted call"
					   : "news of an abort");
	munmap(send, LARGE_BYTES);
	munmap(recv, LARGE_BYTES);
	if (me->rank == moment->rank) {
		JOB_CHECK(status == DICOMM_ERR_ABORTED, "status %d",
			  (int)status);
		pthread_join(thread, NULL);
	} else {
		check_remote(me, status, moment->rank);
	}
}

START_TEST(ranks_of_one_process_do_not_read_what_is_gone)
{
	unsigned state = (unsigned)getpid();
	int times = job_is_long() ? 200 : 12;

	for (int i = 0; i < times; i++) {
		struct moment m = {.rank = i / 2 % 2, .seed = (unsigned)i};

		m.after_us = 2000 + (int)storm_random(&state, 20000);
		job_run(&(struct job){.run = transfer_and_unmap,
				      .arg = &m,
				      .ranks = 2,
				      .threads = true,
				      .env = {"DICOMM_DEBUG=none"},
				      .timeout_s = 60});
	}
}
END_TEST

/* ---- what has changed while it was read is not received ---- */

#define BLOCK ((size_t)1 << 20)
#define MOST_OTHERS 16

/* The receiver's last page, where it is held up until its peer has aborted and
 * changed what it sent, of which its other threads are not to hear. */
static uint8_t *held;
static size_t held_bytes;
static int others[MOST_OTHERS], nothers;
static _Atomic bool may_hear;

static void be_deaf(int signal)
{
	(void)signal;
	while (!atomic_load(&may_hear))
		sched_yield();
}

static void find_others(void)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *d;
	int tid;

	JOB_CHECK(tasks, "no list of threads");
	while ((d = readdir(tasks))) {
		tid = atoi(d->d_name);
		JOB_CHECK(nothers < MOST_OTHERS, "too many threads");
		if (tid > 0 && tid != gettid())
			others[nothers++] = tid;
	}
	closedir(tasks);
}

static void hold_up(int signal, siginfo_t *info, void *context)
{
	struct word *w = job_board();
	const uint8_t *at = info->si_addr;

	(void)signal;
	(void)context;
	if (at < held || at >= held + held_bytes)
		_exit(99);
	for (int i = 0; i < nothers; i++)
		tgkill(getpid(), others[i], SIGUSR1);
	atomic_store(&w->stop, true);
	while (!atomic_load(&w->go))
		sched_yield();
	mprotect(held, held_bytes, PROT_READ | PROT_WRITE);
}

/* By a call of the short way, or by one of the engine's. */
static dicomm_result_t pass_block(struct job_rank *me, bool engine,
				  uint8_t *block)
{
	const size_t none[] = {0, 0}, at[] = {0, 0};
	const size_t to_1[] = {0, BLOCK}, from_0[] = {BLOCK, 0};

	if (engine)
		return dicomm_alltoallv(block, me->rank == 0 ? to_1 : none, at,
					block, me->rank == 0 ? none : from_0,
					at, DICOMM_UINT8, me->comm, NULL);
	return dicomm_broadcast(block, block, BLOCK, DICOMM_UINT8, 0, me->comm,
				NULL);
}

struct changer {
	dicomm_comm_t comm;
	uint8_t *block;
};

static void *abort_and_change(void *arg)
{
	const struct changer *c = arg;
	struct word *w = job_board();

	job_await(&w->stop, "the receiver");
	timed_abort(c->comm);
	memset(c->block, POISON, BLOCK);
	atomic_store(&w->go, true);
	return NULL;
}

static void changes_what_is_read(struct job_rank *me)
{
	const bool engine = *(const int *)me->arg;
	struct changer c = {.comm = me->comm};
	struct sigaction action = {.sa_sigaction = hold_up,
				   .sa_flags = SA_SIGINFO};
	dicomm_result_t status;
	pthread_t thread;
	uint8_t *block;

	if (me->rank == 0) {
		JOB_TRY(dicomm_mem_alloc((void **)&c.block, BLOCK));
		memset(c.block, DATA, BLOCK);
		JOB_CHECK(!pthread_create(&thread, NULL, abort_and_change, &c),
			  "no thread");
		status = pass_block(me, engine, c.block);
		pthread_join(thread, NULL);
		JOB_CHECK(status == DICOMM_ERR_ABORTED, "status %d",
			  (int)status);
		JOB_TRY(dicomm_mem_free(c.block));
		return;
	}
	block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	JOB_CHECK(block != MAP_FAILED, "no memory");
	held_bytes = (size_t)sysconf(_SC_PAGESIZE);
	held = block + BLOCK - held_bytes;
	mprotect(held, held_bytes, PROT_NONE);
	find_others();
	signal(SIGUSR1, be_deaf);
	sigaction(SIGSEGV, &action, NULL);
	status = pass_block(me, engine, block);
	atomic_store(&may_hear, true);
	check_remote(me, status, 0);
	munmap(block, BLOCK);
}

START_TEST(what_changed_while_it_was_read_is_not_received)
{
	job_run(&(struct job){.run = changes_what_is_read,
			      .arg = &_i,
			      .ranks = 2,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_abort");
	TCase *tcase = tcase_create("fault_abort");

	tcase_set_timeout(tcase, job_is_long() ? 1000 : 100);
	/* An abort tells the peers, for which it allocates memory; the thread
	 * sanitizer refuses that in a handler. */
	if (!job_has_thread_sanitizer())
		tcase_add_loop_test(
			tcase,
			a_signal_handler_aborts_the_call_that_it_interrupts, 0,
			2);
	tcase_add_loop_test(tcase, a_waiting_call_is_aborted, 0, HOWS);
	tcase_add_loop_test(tcase, a_waiting_call_is_aborted_among_threads, 0,
			    HOWS);
	tcase_add_loop_test(tcase, a_waiting_split_or_finalize_is_aborted, 0,
			    2);
	tcase_add_loop_test(tcase, an_abort_does_not_wait_for_others, 0,
			    2 * BESIDES);
	tcase_add_loop_test(tcase, a_busy_communicator_is_aborted, 0, 2);
	tcase_add_loop_test(tcase, after_an_abort_no_buffer_changes, 0, 16);
	tcase_add_test(tcase, ranks_of_one_process_do_not_read_what_is_gone);
	/* Such memory cannot be registered; and no core reads it. */
	if (!job_uses("verbs"))
		tcase_add_loop_test(
			tcase, what_changed_while_it_was_read_is_not_received,
			0, 2);
	suite_add_tcase(suite, tcase);
	prompt_add(suite);
	return runner_main(suite);
}
