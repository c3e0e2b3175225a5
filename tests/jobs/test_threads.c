/* SPDX-License-Identifier: BSD-3-Clause */
/* Several threads of a rank call on one communicator: all make progress, each
 * gets its own result, and nobody waits for ever. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/support/job.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

#define THREADS 3
#define ROUNDS 40
#define MANY_THREADS 8
#define TURNS_ON_A_CORE 500
/* Without optimisation, threads do more to each other in between. */
#ifdef __OPTIMIZE__
#define SHORT_GROUPS_S 0.5
#else
#define SHORT_GROUPS_S 4.0
#endif
#define LARGE ((size_t)1 << 18) /* elements */
#define PATIENCE_S 15.0

static const char *const routes[] = {"DICOMM_TRANSPORTS=shm",
				     "DICOMM_TRANSPORTS=tcp"};
#define ROUTES 2

struct worker {
	struct job_rank *me;
	int number;
	dicomm_result_t status;
	char text[512];
	pthread_t thread;
};

static void start(struct worker *w, struct job_rank *me, int n,
		  void *(*run)(void *))
{
	for (int i = 0; i < n; i++) {
		w[i] = (struct worker){.me = me, .number = i};
		JOB_CHECK(!pthread_create(&w[i].thread, NULL, run, &w[i]),
			  "no thread");
	}
}

static void join(struct worker *w, int n)
{
	for (int i = 0; i < n; i++)
		pthread_join(w[i].thread, NULL);
}

static void run_all(struct job_rank *me, int n, void *(*run)(void *))
{
	struct worker w[THREADS + 1];

	start(w, me, n, run);
	join(w, n);
}

static void run(void (*rank)(struct job_rank *), int i)
{
	job_run(&(struct job){.run = rank,
			      .ranks = i / ROUTES ? 4 : 2,
			      .timeout_s = 60,
			      .env = {routes[i % ROUTES]}});
}

/* ---- one receives, and another one sends what the answer waits for ---- */

static void *receive_answer(void *arg)
{
	struct worker *w = arg;
	struct job_rank *me = w->me;
	int value = -1;

	JOB_TRY(dicomm_recv(&value, 1, DICOMM_INT32, me->rank ^ 1, me->comm,
			    NULL));
	JOB_CHECK(value == 7, "the answer is %d", value);
	return NULL;
}

static void question_and_answer(struct job_rank *me)
{
	struct worker w;
	int value = 7, peer = me->rank ^ 1;

	for (int i = 0; i < ROUNDS; i++) {
		job_doing("question %d", i);
		if (me->rank % 2) {
			JOB_TRY(dicomm_recv(&value, 1, DICOMM_INT32, peer,
					    me->comm, NULL));
			JOB_TRY(dicomm_send(&value, 1, DICOMM_INT32, peer,
					    me->comm, NULL));
			continue;
		}
		start(&w, me, 1, receive_answer);
		if (i % 4 == 0)
			job_sleep_ms(i); /* the other one waits by now */
		JOB_TRY(dicomm_send(&value, 1, DICOMM_INT32, peer, me->comm,
				    NULL));
		join(&w, 1);
	}
}

START_TEST(a_receive_does_not_hold_up_the_send_it_waits_for)
{
	run(question_and_answer, _i);
}
END_TEST

/* ---- messages with tags, and collectives beside them ---- */

static void exchange(struct job_rank *me, int tag, const int *mine, int *theirs,
		     size_t n)
{
	int peer = me->rank ^ 1;

	if (me->rank < peer)
		JOB_TRY(dicomm_send_tag(mine, n, DICOMM_INT32, peer, tag,
					me->comm, NULL));
	JOB_TRY(dicomm_recv_tag(theirs, n, DICOMM_INT32, peer, tag, me->comm,
				NULL, NULL));
	if (me->rank > peer)
		JOB_TRY(dicomm_send_tag(mine, n, DICOMM_INT32, peer, tag,
					me->comm, NULL));
}

static void *talk(void *arg)
{
	struct worker *w = arg;
	struct job_rank *me = w->me;

	for (int i = 0; i < ROUNDS; i++) {
		int mine = i * 100 + w->number * 10 + me->rank, theirs = -1;

		/* The thread 0 uses no tag. */
		exchange(me, w->number, &mine, &theirs, 1);
		JOB_CHECK(theirs == mine - me->rank + (me->rank ^ 1),
			  "thread %d, round %d: got %d", w->number, i, theirs);
	}
	return NULL;
}

static void *add_up(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < ROUNDS; i++)
		job_check_sums(w->me->comm, w->me->ranks, w->me->rank);
	return NULL;
}

static void talk_and_add_up(struct job_rank *me)
{
	struct worker adder, w[THREADS];

	start(&adder, me, 1, add_up);
	start(w, me, THREADS, talk);
	join(w, THREADS);
	join(&adder, 1);
}

START_TEST(messages_and_collectives_go_on_side_by_side)
{
	run(talk_and_add_up, _i);
}
END_TEST

static void *exchange_much(void *arg)
{
	struct worker *w = arg;
	struct job_rank *me = w->me;
	int *mine = malloc(LARGE * sizeof(int));
	int *theirs = calloc(LARGE, sizeof(int));

	for (int i = 0; i < 3; i++) {
		for (size_t k = 0; k < LARGE; k++)
			mine[k] = (int)k + w->number + me->rank * 1000 + i;
		exchange(me, w->number, mine, theirs, LARGE);
		for (size_t k = 0; k < LARGE; k++)
			JOB_CHECK(theirs[k] == (int)k + w->number +
						       (me->rank ^ 1) * 1000 +
						       i,
				  "thread %d, element %zu: %d", w->number, k,
				  theirs[k]);
	}
	free(mine);
	free(theirs);
	return NULL;
}

static void exchange_all(struct job_rank *me)
{
	run_all(me, THREADS, exchange_much);
}

START_TEST(long_messages_of_several_threads_arrive)
{
	run(exchange_all, _i);
}
END_TEST

/* ---- groups ---- */

static void *exchange_in_groups(void *arg)
{
	struct worker *w = arg;
	struct job_rank *me = w->me;
	int peer = me->rank ^ 1;

	for (int i = 0; i < ROUNDS; i++) {
		int mine[2] = {i, w->number}, theirs[2] = {-1, -1};

		JOB_TRY(dicomm_group_start());
		for (int k = 0; k < 2; k++) {
			JOB_TRY(dicomm_recv_tag(&theirs[k], 1, DICOMM_INT32,
						peer, w->number + 1, me->comm,
						NULL, NULL));
			JOB_TRY(dicomm_send_tag(&mine[k], 1, DICOMM_INT32, peer,
						w->number + 1, me->comm, NULL));
		}
		JOB_TRY(dicomm_group_end());
		JOB_CHECK(theirs[0] == i && theirs[1] == w->number,
			  "thread %d, round %d: got %d, %d", w->number, i,
			  theirs[0], theirs[1]);
	}
	return NULL;
}

static void groups(struct job_rank *me)
{
	run_all(me, THREADS, exchange_in_groups);
}

START_TEST(each_thread_has_its_own_groups)
{
	run(groups, _i);
}
END_TEST

/* A rank sends to itself, so that groups are short and their threads meet
 * often. */
static void *talk_to_itself(void *arg)
{
	struct worker *w = arg;
	struct job_rank *me = w->me;
	double until = job_seconds() + SHORT_GROUPS_S;

	for (int mine = 0; job_seconds() < until; mine++) {
		int theirs = -1;

		JOB_TRY(dicomm_group_start());
		JOB_TRY(dicomm_send_tag(&mine, 1, DICOMM_INT32, me->rank,
					w->number, me->comm, NULL));
		JOB_TRY(dicomm_recv_tag(&theirs, 1, DICOMM_INT32, me->rank,
					w->number, me->comm, NULL, NULL));
		JOB_TRY(dicomm_group_end());
		JOB_CHECK(theirs == mine, "thread %d, group %d: got %d",
			  w->number, mine, theirs);
	}
	return NULL;
}

static void short_groups(struct job_rank *me)
{
	struct worker w[MANY_THREADS];

	start(w, me, MANY_THREADS, talk_to_itself);
	join(w, MANY_THREADS);
}

START_TEST(short_groups_of_many_threads_end)
{
	job_run(&(struct job){
		.run = short_groups, .ranks = 1, .timeout_s = 60});
}
END_TEST

/* Threads of all ranks share a core: what one of them holds while it gives way,
 * the others must get nevertheless. */
static void *pass_around(void *arg)
{
	struct worker *w = arg;
	struct job_rank *me = w->me;
	int next = (me->rank + 1) % me->ranks;
	int before = (me->rank + me->ranks - 1) % me->ranks;

	for (int i = 0; i < TURNS_ON_A_CORE; i++) {
		int mine = i * 10 + me->rank, theirs = -1;

		JOB_TRY(dicomm_group_start());
		JOB_TRY(dicomm_send_tag(&mine, 1, DICOMM_INT32, next,
					w->number + 1, me->comm, NULL));
		JOB_TRY(dicomm_recv_tag(&theirs, 1, DICOMM_INT32, before,
					w->number + 1, me->comm, NULL, NULL));
		JOB_TRY(dicomm_group_end());
		JOB_CHECK(theirs == i * 10 + before, "thread %d, turn %d: %d",
			  w->number, i, theirs);
	}
	return NULL;
}

static void share_a_core(struct job_rank *me)
{
	struct rusage used;
	cpu_set_t cores, one;

	CPU_ZERO(&cores);
	CPU_ZERO(&one);
	JOB_CHECK(!sched_getaffinity(0, sizeof(cores), &cores), "affinity: %m");
	for (size_t c = 0; c < CPU_SETSIZE && !CPU_COUNT(&one); c++)
		if (CPU_ISSET(c, &cores))
			CPU_SET(c, &one);
	JOB_CHECK(!sched_setaffinity(0, sizeof(one), &one), "affinity: %m");
	run_all(me, THREADS, pass_around);
	JOB_CHECK(!getrusage(RUSAGE_SELF, &used), "getrusage: %m");
	JOB_CHECK(used.ru_utime.tv_sec + used.ru_stime.tv_sec <
			  (job_is_sanitized() ? 40 : 5),
		  "%d turns took %d s of processor time", TURNS_ON_A_CORE,
		  (int)(used.ru_utime.tv_sec + used.ru_stime.tv_sec));
}

START_TEST(threads_that_share_a_core_take_turns)
{
	job_run(&(struct job){.run = share_a_core,
			      .ranks = 4,
			      .timeout_s = 60,
			      .env = {routes[_i]}});
}
END_TEST

/* ---- collectives by several threads ---- */

static pthread_mutex_t entering = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int turn;

/* The thread whose turn it is queues its sum, and waits for it while others
 * queue theirs. */
static void *queue_sums(void *arg)
{
	struct worker *w = arg;
	struct job_rank *me = w->me;
	dicomm_stream_t stream;

	JOB_TRY(dicomm_host_stream_create(&stream));
	for (int i = w->number; i < ROUNDS; i += THREADS) {
		int value = i + me->rank, sum = 0;

		while (atomic_load(&turn) != i)
			job_sleep_ms(1);
		pthread_mutex_lock(&entering);
		JOB_TRY(dicomm_allreduce(&value, &sum, 1, DICOMM_INT32,
					 DICOMM_SUM, me->comm, stream));
		pthread_mutex_unlock(&entering);
		atomic_fetch_add(&turn, 1);
		JOB_TRY(dicomm_host_stream_synchronize(stream));
		JOB_CHECK(sum == me->ranks * i +
					  me->ranks * (me->ranks - 1) / 2,
			  "sum %d is %d", i, sum);
	}
	JOB_TRY(dicomm_host_stream_destroy(stream));
	return NULL;
}

static void sums_beside_messages(struct job_rank *me)
{
	struct worker adders[THREADS], talker;

	start(adders, me, THREADS, queue_sums);
	start(&talker, me, 1, talk);
	join(adders, THREADS);
	join(&talker, 1);
}

START_TEST(collectives_start_in_the_order_of_the_calls)
{
	run(sums_beside_messages, _i);
}
END_TEST

/* One after the other, each in a thread of its own */
static void *add_up_once(void *arg)
{
	struct worker *w = arg;

	job_check_sums(w->me->comm, w->me->ranks, w->me->rank);
	return NULL;
}

static void change_threads(struct job_rank *me)
{
	struct worker w;

	for (int i = 0; i < ROUNDS; i++) {
		add_up_once(&(struct worker){.me = me});
		start(&w, me, 1, add_up_once);
		join(&w, 1);
	}
}

START_TEST(calls_may_come_from_one_thread_after_the_other)
{
	run(change_threads, _i);
}
END_TEST

/* ---- ends ---- */

/* Waits for what never comes; without a tag, with one, or in a group. */
static void *wait_in_vain(void *arg)
{
	struct worker *w = arg;
	struct job_rank *me = w->me;
	int value, peer = me->rank ? 0 : 1;

	if (w->number == 2)
		JOB_TRY(dicomm_group_start());
	w->status = dicomm_recv_tag(&value, 1, DICOMM_INT32, peer, w->number,
				    me->comm, NULL, NULL);
	if (w->number == 2)
		w->status = dicomm_group_end();
	snprintf(w->text, sizeof(w->text), "%s", dicomm_get_last_error(NULL));
	return NULL;
}

static void expect(const struct worker *w, dicomm_result_t status,
		   const char *words)
{
	for (int i = 0; i < THREADS; i++)
		JOB_CHECK(w[i].status == status && strstr(w[i].text, words),
			  "thread %d: status %d, \"%s\", not %d with %s", i,
			  (int)w[i].status, w[i].text, (int)status, words);
}

static void abort_among_threads(struct job_rank *me)
{
	struct worker w[THREADS];
	double begin;

	start(w, me, THREADS, wait_in_vain);
	job_sleep_ms(100);
	job_barrier();
	begin = job_seconds();
	if (me->rank == 0)
		JOB_TRY(dicomm_comm_abort(me->comm));
	join(w, THREADS);
	JOB_CHECK(job_seconds() - begin < PATIENCE_S + starved_s(),
		  "took %.1f s", job_seconds() - begin);
	expect(w, me->rank ? DICOMM_ERR_REMOTE : DICOMM_ERR_ABORTED,
	       "rank 0 aborted");
}

START_TEST(an_abort_ends_the_calls_of_all_threads)
{
	run(abort_among_threads, _i);
}
END_TEST

static void die_among_threads(struct job_rank *me)
{
	struct worker w[THREADS];

	if (me->rank == 1) {
		job_barrier();
		job_sleep_ms(100);
		raise(SIGKILL);
	}
	start(w, me, THREADS, wait_in_vain);
	job_barrier();
	join(w, THREADS);
	expect(w, DICOMM_ERR_REMOTE, "rank 1");
}

START_TEST(every_thread_learns_who_died)
{
	job_run(&(struct job){.run = die_among_threads,
			      .ranks = _i / ROUTES ? 4 : 2,
			      .may_die = 2,
			      .timeout_s = 60,
			      .env = {routes[_i % ROUTES]}});
}
END_TEST

static void time_out_among_threads(struct job_rank *me)
{
	struct worker w[THREADS];

	JOB_TRY(dicomm_comm_set_timeout(me->comm, 500));
	start(w, me, THREADS, wait_in_vain);
	join(w, THREADS);
	expect(w, DICOMM_ERR_TIMEOUT, "timed out after 500 ms");
}

START_TEST(a_time_out_ends_the_calls_of_all_threads)
{
	run(time_out_among_threads, _i);
}
END_TEST

/* ---- cancellation ---- */

enum cancelled { IN_RECV, IN_BARRIER, IN_GROUP, IN_STREAM, IN_SPLIT, KINDS };

struct victim {
	struct job_rank *me;
	enum cancelled kind;
	bool early; /* it is cancelled before it calls */
	_Atomic bool begun, ended;
	int32_t got;
	dicomm_result_t status;
	dicomm_comm_t split;
};

static dicomm_result_t receive_on(struct victim *v, dicomm_stream_t stream)
{
	return dicomm_recv(&v->got, 1, DICOMM_INT32, 1, v->me->comm, stream);
}

static dicomm_result_t wait_for_rank_1(struct victim *v)
{
	dicomm_stream_t stream;

	switch (v->kind) {
	case IN_RECV:
		return receive_on(v, NULL);
	case IN_BARRIER:
		return dicomm_barrier(v->me->comm, NULL);
	case IN_GROUP:
		JOB_TRY(dicomm_group_start());
		JOB_TRY(receive_on(v, NULL));
		return dicomm_group_end();
	case IN_STREAM:
		JOB_TRY(dicomm_host_stream_create(&stream));
		JOB_TRY(receive_on(v, stream));
		JOB_TRY(dicomm_host_stream_synchronize(stream));
		return dicomm_host_stream_destroy(stream);
	default:
		return dicomm_comm_split(v->me->comm, 0, 0, &v->split, NULL);
	}
}

static void *is_cancelled(void *arg)
{
	struct victim *v = arg;

	if (v->early)
		pthread_cancel(pthread_self());
	atomic_store(&v->begun, true);
	v->status = wait_for_rank_1(v);
	atomic_store(&v->ended, true);
	pthread_testcancel();
	return NULL;
}

static void cancel_in_call(struct job_rank *me, enum cancelled kind, bool early)
{
	struct victim v = {.me = me, .kind = kind, .early = early};
	pthread_t thread;
	void *result;

	/* Rank 1 has done its part: the call connects, and does not wait. */
	if (early) {
		job_barrier();
		job_sleep_ms(30);
	}
	JOB_CHECK(!pthread_create(&thread, NULL, is_cancelled, &v),
		  "no thread");
	while (!atomic_load(&v.begun))
		job_sleep_ms(1);
	if (!early) {
		job_sleep_ms(50);
		pthread_cancel(thread);
		job_sleep_ms(30);
		JOB_CHECK(!atomic_load(&v.ended), "kind %d did not wait", kind);
		job_barrier();
	}
	pthread_join(thread, &result);
	JOB_CHECK(result == PTHREAD_CANCELED && atomic_load(&v.ended),
		  "kind %d, early %d: ended %d, result %p", kind, early,
		  atomic_load(&v.ended), result);
	JOB_TRY(v.status);
	if (kind == IN_RECV || kind == IN_GROUP || kind == IN_STREAM)
		JOB_CHECK(v.got == 7, "kind %d: %d", kind, v.got);
	if (v.split)
		JOB_TRY(dicomm_comm_destroy(v.split));
}

static void cancels(struct job_rank *me)
{
	struct victim v = {.me = me};
	int32_t seven = 7;

	for (int i = 0; i < 2 * KINDS; i++) {
		enum cancelled kind = (enum cancelled)(i % KINDS);

		if (me->rank == 0) {
			cancel_in_call(me, kind, i < KINDS);
			continue;
		}
		job_barrier();
		v = (struct victim){.me = me, .kind = kind};
		if (kind == IN_BARRIER || kind == IN_SPLIT)
			JOB_TRY(wait_for_rank_1(&v));
		else
			JOB_TRY(dicomm_send(&seven, 1, DICOMM_INT32, 0,
					    me->comm, NULL));
		if (v.split)
			JOB_TRY(dicomm_comm_destroy(v.split));
	}
	job_check_sums(me->comm, me->ranks, me->rank);
}

START_TEST(a_thread_is_cancelled_after_its_call)
{
	run(cancels, _i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("threads");
	TCase *t = tcase_create("threads");
	TCase *g = tcase_create("groups");

	tcase_set_timeout(t, 100);
	tcase_add_loop_test(t, a_receive_does_not_hold_up_the_send_it_waits_for,
			    0, 4);
	tcase_add_loop_test(t, messages_and_collectives_go_on_side_by_side, 0,
			    4);
	tcase_add_loop_test(t, long_messages_of_several_threads_arrive, 0, 4);
	tcase_add_loop_test(t, each_thread_has_its_own_groups, 0, 4);
	tcase_add_loop_test(t, collectives_start_in_the_order_of_the_calls, 0,
			    4);
	tcase_add_loop_test(t, calls_may_come_from_one_thread_after_the_other,
			    0, 4);
	tcase_add_loop_test(t, an_abort_ends_the_calls_of_all_threads, 0, 4);
	tcase_add_loop_test(t, a_thread_is_cancelled_after_its_call, 0, ROUTES);
	tcase_add_loop_test(t, every_thread_learns_who_died, 0, 4);
	tcase_add_loop_test(t, a_time_out_ends_the_calls_of_all_threads, 0,
			    ROUTES);
	suite_add_tcase(suite, t);
	tcase_set_timeout(g, 100);
	tcase_add_test(g, short_groups_of_many_threads_end);
	tcase_add_loop_test(g, threads_that_share_a_core_take_turns, 0, ROUTES);
	suite_add_tcase(suite, g);
	return runner_main(suite);
}
