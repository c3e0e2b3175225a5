/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that make no calls: they sleep, and wake at once for their peers. */
#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/wakeups.h"
#include "tests/support/job.h"
#include "tests/support/starved.h"

#define ROOM 4096
/* Voluntary context switches a second of a process. Those that the kernel
 * forces on threads that run are not counted: a busy machine has more. */
#define SWITCHES_MOST 10.0
#define MEASURE_S 2.0
/* When the ranks have to be asleep */
#define ASLEEP_S 30.0
/* A message that wakes nobody is found up to half a second later: in the mean
 * after a quarter. */
#define WAKE_MOST_S 0.25
#define QUICK_S 0.02
#define OFTEN_S 10.0

static const char *const variants[] = {
	"DICOMM_TRANSPORTS=shm", "DICOMM_TRANSPORTS=tcp",
	"DICOMM_TRANSPORTS=ucx,tcp" /* the second where UCX is absent */};
#define VARIANTS 3

static void run_job(void (*run)(struct job_rank *me), int variant, bool threads)
{
	job_run(&(struct job){.run = run,
			      .ranks = threads ? 3 : 2,
			      .threads = threads,
			      .arg = threads ? "one process" : NULL,
			      .env = {variants[variant]},
			      .timeout_s = 60});
}

/* A window of zeroes */
struct room {
	void *at;
	dicomm_window_t win;
};

static dicomm_window_t room_open(struct room *room, const struct job_rank *me)
{
	room->at = calloc(1, ROOM);
	JOB_TRY(dicomm_comm_window_register(me->comm, room->at, ROOM,
					    &room->win, DICOMM_WINDOW_DEFAULT));
	return room->win;
}

static void room_close(struct room *room, const struct job_rank *me)
{
	JOB_TRY(dicomm_comm_window_deregister(me->comm, room->win));
	free(room->at);
}

/* ---- nobody calls ---- */

/* Threads on a machine that is busy take a while until they sleep. */
static void check_asleep(void)
{
	double end = job_seconds() + ASLEEP_S, rate, begin;
	unsigned long before;

	job_sleep_ms(1000);
	do {
		before = wakeups(NULL);
		begin = job_seconds();
		job_sleep_ms((int)(MEASURE_S * 1000));
		rate = (double)(wakeups(NULL) - before) /
		       (job_seconds() - begin);
	} while (rate > SWITCHES_MOST && job_seconds() < end);
	JOB_CHECK(rate <= SWITCHES_MOST,
		  "an idle process changes threads %.1f times a second", rate);
}

/* Each rank has sent to each other one, in all ways. */
static void use_all(const struct job_rank *me, dicomm_window_t win,
		    dicomm_stream_t stream)
{
	int peer = (me->rank + 1) % me->ranks;
	int from = (me->rank + me->ranks - 1) % me->ranks;
	dicomm_wait_signal_desc_t d = {1, from, 0, 0};
	double x = 1, y[3] = {0};

	JOB_TRY(dicomm_put_signal(&x, 1, DICOMM_FLOAT64, peer, win, 0, 0, 0, 0,
				  me->comm, NULL));
	JOB_TRY(dicomm_wait_signal(1, &d, me->comm, NULL));
	JOB_TRY(dicomm_allreduce(&x, y, 1, DICOMM_FLOAT64, DICOMM_SUM, me->comm,
				 stream));
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	JOB_CHECK(y[0] == me->ranks, "a sum of %g", y[0]);
	JOB_TRY(dicomm_get(y, 1, DICOMM_FLOAT64, peer, win, 0, me->comm, NULL));
	JOB_CHECK(y[0] == 1, "got %g", y[0]);
}

/* While a rank of the same process measures */
static void wait_asleep(const _Atomic int *done)
{
	while (!atomic_load(done))
		job_sleep_ms(1000);
}

static void be_idle(struct job_rank *me)
{
	_Atomic int *done = job_board();
	dicomm_stream_t stream = NULL;
	struct room room;
	dicomm_window_t win;

	JOB_TRY(dicomm_host_stream_create(&stream));
	win = room_open(&room, me);
	use_all(me, win, stream);
	job_barrier();
	if (!me->arg || me->rank == 0)
		check_asleep();
	else
		wait_asleep(done);
	atomic_store(done, 1);
	job_barrier();
	/* They wake again. */
	use_all(me, win, stream);
	room_close(&room, me);
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(idle_ranks_sleep)
{
	run_job(be_idle, _i % VARIANTS, _i >= VARIANTS);
}
END_TEST

/* ---- one calls now and then, the other one never ---- */

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Up to 4 ms: shorter and longer than the server waits before it sleeps, and
 * before it looks again */
static void pause_randomly(unsigned *seed)
{
	unsigned kind = (unsigned)rand_r(seed) % 4;
	unsigned us = (unsigned)rand_r(seed) % (kind == 3 ? 4000 : 400);

	if (kind)
		usleep(us);
}

static double starved_all_s(void)
{
	return starved_s() + starved_process_s(job_pid(1));
}

/* The time of a get that the peer answers, asleep or not; less what either of
 * them lacked a core, it is bounded. */
static double get_once(const struct job_rank *me, dicomm_window_t win,
		       uint64_t want)
{
	double starved = starved_all_s(), begin = job_seconds();
	uint64_t got = 0;

	JOB_TRY(dicomm_get(&got, 1, DICOMM_UINT64, 1, win, 0, me->comm, NULL));
	begin = job_seconds() - begin;
	starved = starved_all_s() - starved;
	JOB_CHECK(begin - starved < WAKE_MOST_S, "a get took %.3f s", begin);
	JOB_CHECK(got == want, "got %llu, not %llu", (unsigned long long)got,
		  (unsigned long long)want);
	return begin;
}

static void wake_it_often(const struct job_rank *me, dicomm_window_t win)
{
	int rounds = job_is_sanitized() ? 300 : job_is_long() ? 20000 : 1500;
	double *took = calloc((size_t)rounds, sizeof(*took));
	double end = job_seconds() + OFTEN_S;
	unsigned seed = 1;
	int i;

	for (i = 0; i < rounds && (job_is_long() || job_seconds() < end); i++) {
		uint64_t value = (uint64_t)i + 1;

		pause_randomly(&seed);
		JOB_TRY(dicomm_put_signal(&value, 1, DICOMM_UINT64, 1, win, 0,
					  0, 0, 0, me->comm, NULL));
		if (i % 2)
			pause_randomly(&seed);
		took[i] = get_once(me, win, value);
	}
	qsort(took, (size_t)i, sizeof(*took), by_time);
	JOB_CHECK(took[i / 4] < QUICK_S,
		  "only a quarter of %d gets took less than %.1f ms", i,
		  took[i / 4] * 1e3);
	free(took);
}

static void wake_sleepers(struct job_rank *me)
{
	_Atomic int *done = job_board();
	struct room room;
	dicomm_window_t win = room_open(&room, me);

	JOB_TRY(dicomm_barrier(me->comm, NULL));
	if (me->rank == 0)
		wake_it_often(me, win);
	if (me->rank == 0)
		atomic_store(done, 1);
	while (!atomic_load(done))
		usleep(5000);
	room_close(&room, me);
}

/* Without a lost wake-up, however long the peers of a rank pause */
START_TEST(no_message_is_missed_by_who_falls_asleep)
{
	run_job(wake_sleepers, _i, false);
}
END_TEST

/* Threads of a rank call at times, and leave while messages come. */
static void come_and_go(struct job_rank *me)
{
	int rounds = job_is_sanitized() ? 100 : 400;
	struct room room;
	dicomm_window_t win = room_open(&room, me);
	unsigned seed = 7;

	for (int i = 0; i < rounds; i++) {
		job_doing("round %d", i);
		JOB_TRY(dicomm_barrier(me->comm, NULL));
		pause_randomly(&seed);
		if (me->rank == 0)
			get_once(me, win, 0);
		else
			usleep(1000);
	}
	room_close(&room, me);
}

START_TEST(none_is_missed_by_who_comes_and_goes)
{
	run_job(come_and_go, _i, false);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("idle");
	TCase *tcase = tcase_create("idle");
	/* UCX, which comes last, does not run under the thread sanitizer. */
	int variants_here =
		job_has_thread_sanitizer() ? VARIANTS - 1 : VARIANTS;

	tcase_set_timeout(tcase, 320);
	/* It has a thread of its own, which wakes ten times a second. */
	if (!job_has_thread_sanitizer())
		tcase_add_loop_test(tcase, idle_ranks_sleep, 0, 2 * VARIANTS);
	tcase_add_loop_test(tcase, no_message_is_missed_by_who_falls_asleep, 0,
			    variants_here);
	tcase_add_loop_test(tcase, none_is_missed_by_who_comes_and_goes, 0,
			    variants_here);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
