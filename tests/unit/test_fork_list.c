/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library does at a fork: in which order, and what a child gets. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/accel/gpu/device.h"
#include "src/base/config.h"
#include "src/base/fork.h"
#include "src/base/handle.h"
#include "src/boot/net/interface.h"
#include "tests/support/job.h"
#include "tests/support/runner.h"

#define FORKS 300
#define THREADS 3

static int ran[FORK_PLACES], nran;

static bool is_taken(int place)
{
	int error = pthread_mutex_trylock(&fork_locks[place]);

	ck_assert(!error || error == EBUSY);
	if (!error)
		pthread_mutex_unlock(&fork_locks[place]);
	return error;
}

/* Forks, and waits for the child; false if that has failed. */
static bool fork_runs(bool (*child)(void))
{
	pid_t pid = fork();
	int end;

	if (pid == 0) {
		alarm(20);
		_exit(child() ? 0 : 1);
	}
	return pid > 0 && waitpid(pid, &end, 0) == pid && end == 0;
}

static bool all_are_open(void)
{
	for (int i = 0; i < FORK_LOCKS; i++)
		if (is_taken(i))
			return false;
	return true;
}

static void *fork_once(void *runs)
{
	*(bool *)runs = fork_runs(all_are_open);
	return NULL;
}

/* Whichever lock is taken, a fork waits for it with those before it, and
 * without those behind it. */
START_TEST(locks_are_taken_from_the_first_to_the_last)
{
	bool runs = false;
	pthread_t forks;

	fork_lock((enum fork_place)_i);
	ck_assert(!pthread_create(&forks, NULL, fork_once, &runs));
	while (!is_taken(_i - 1))
		sched_yield();
	for (int i = 0; i < FORK_LOCKS; i++)
		ck_assert_msg(is_taken(i) == (i <= _i), "lock %d, at lock %d",
			      i, _i);
	fork_unlock((enum fork_place)_i);
	pthread_join(forks, NULL);
	ck_assert(runs);
	ck_assert(all_are_open());
}
END_TEST

/* ---- handlers ---- */

static void note(int place)
{
	bool locks = true;

	for (int i = 0; i < FORK_LOCKS; i++)
		locks &= is_taken(i);
	ran[nran++] = locks ? place : -1;
}

static void first(void)
{
	note(FORK_VERBS);
}

static void control(void)
{
	note(FORK_CONTROL);
}

static void comms(void)
{
	note(FORK_COMMS);
}

static void last(void)
{
	note(FORK_UCX);
}

static bool ran_in_order(void)
{
	return nran == 4 && ran[0] == FORK_UCX && ran[1] == FORK_COMMS &&
	       ran[2] == FORK_CONTROL && ran[3] == FORK_VERBS;
}

/* Whoever came first, and however often */
START_TEST(a_child_runs_each_handler_once_from_the_last_to_the_first)
{
	for (int i = 0; i < 3; i++) {
		fork_add(FORK_CONTROL, control);
		fork_add(FORK_UCX, last);
		fork_add(FORK_VERBS, first);
		fork_add(FORK_COMMS, comms);
	}
	ck_assert(fork_runs(ran_in_order));
	ck_assert_int_eq(nran, 0);
	ck_assert(all_are_open());
}
END_TEST

static bool had_first, had_others;

static void look(void)
{
	had_first = fork_had(FORK_VERBS);
	had_others = fork_had(FORK_SEGMENTS) && fork_had(FORK_CONFIG);
}

static bool had_all(void)
{
	return had_first && had_others && all_are_open();
}

static bool lacked_the_first(void)
{
	return !had_first && had_others && all_are_open();
}

/* The parent leaves that lock to its owner. */
START_TEST(a_fork_does_not_wait_for_the_first_lock_for_ever)
{
	fork_add(FORK_VERBS, look);
	ck_assert(fork_runs(had_all));
	fork_lock(FORK_VERBS);
	ck_assert(fork_runs(lacked_the_first));
	ck_assert(is_taken(FORK_VERBS));
	fork_unlock(FORK_VERBS);
	ck_assert(fork_runs(had_all));
}
END_TEST

/* ---- forks amid threads that add handlers and take locks ---- */

static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
static struct {
	unsigned volatile before, after;
} guarded[FORK_LOCKS];
static _Atomic bool stop;

static void reset_own(void)
{
	pthread_mutex_init(&own, NULL);
}

static void *use(void *arg)
{
	(void)arg;
	for (unsigned n = 0; !atomic_load(&stop); n++) {
		enum fork_place place = n % FORK_LOCKS;

		fork_add(FORK_KEPT_RATES, reset_own);
		pthread_mutex_lock(&own);
		fork_lock(place);
		guarded[place].before++;
		guarded[place].after++;
		fork_unlock(place);
		pthread_mutex_unlock(&own);
	}
	return NULL;
}

static bool is_whole(void)
{
	bool whole = all_are_open();

	for (int i = 0; i < FORK_LOCKS; i++)
		whole &= guarded[i].before == guarded[i].after;
	pthread_mutex_lock(&own);
	return whole;
}

START_TEST(a_child_gets_what_is_whole_and_locks_that_are_open)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&threads[i], NULL, use, NULL));
	for (int i = 0; i < FORKS; i++)
		ck_assert_msg(fork_runs(is_whole), "fork %d", i);
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

/* ---- who uses the locks ---- */

static void *choose_interface(void *done)
{
	struct interface chosen;

	interface_choose(&chosen);
	atomic_store((_Atomic bool *)done, true);
	return NULL;
}

static void *read_parameter(void *done)
{
	config_string(CONFIG_COMM_ID);
	atomic_store((_Atomic bool *)done, true);
	return NULL;
}

static void *make_handle(void *done)
{
	static struct handle_pool pool = HANDLE_POOL(struct handle_memory);

	free(handle_alloc(&pool));
	atomic_store((_Atomic bool *)done, true);
	return NULL;
}

static const struct {
	enum fork_place place;
	void *(*use)(void *done);
} users[] = {
	{FORK_INTERFACE, choose_interface},
	{FORK_HANDLES, make_handle},
	{FORK_CONFIG, read_parameter},
};

/* So no child is without a lock that another thread had. */
START_TEST(who_uses_what_a_child_needs_has_its_lock)
{
	const struct timespec moment = {.tv_nsec = 300000000};
	_Atomic bool done = false;
	pthread_t user;

	fork_lock(users[_i].place);
	ck_assert(!pthread_create(&user, NULL, users[_i].use, &done));
	nanosleep(&moment, NULL);
	ck_assert(!atomic_load(&done));
	fork_unlock(users[_i].place);
	pthread_join(user, NULL);
	ck_assert(atomic_load(&done));
}
END_TEST

/* ---- drivers ---- */

static _Atomic bool loads, may_load;

static int load_slowly(char *why, size_t len)
{
	(void)why;
	(void)len;
	atomic_store(&loads, true);
	while (!atomic_load(&may_load))
		sched_yield();
	return 2;
}

static struct gpu_driver slow = {
	.kind = "slow", .load = load_slowly, GPU_LOCKS};

static bool counts(void)
{
	char why[256];

	return gpu_device_count(&slow, why, sizeof(why)) == 2;
}

static void *count_devices(void *does)
{
	*(bool *)does = counts();
	return NULL;
}

static bool loads_anew(void)
{
	atomic_store(&may_load, true);
	return counts();
}

START_TEST(a_child_loads_a_driver_that_was_being_loaded)
{
	bool does = false;
	pthread_t thread;

	ck_assert(!pthread_create(&thread, NULL, count_devices, &does));
	while (!atomic_load(&loads))
		sched_yield();
	ck_assert(fork_runs(loads_anew));
	atomic_store(&may_load, true);
	pthread_join(thread, NULL);
	ck_assert(does);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork_list");
	TCase *tcase = tcase_create("fork_list");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(
		tcase,
		a_child_runs_each_handler_once_from_the_last_to_the_first);
	tcase_add_test(tcase, a_fork_does_not_wait_for_the_first_lock_for_ever);
	tcase_add_loop_test(tcase, who_uses_what_a_child_needs_has_its_lock, 0,
			    sizeof(users) / sizeof(*users));
	/* That does not follow a child whose parent has threads. */
	if (!job_has_thread_sanitizer()) {
		tcase_add_loop_test(tcase,
				    locks_are_taken_from_the_first_to_the_last,
				    1, FORK_LOCKS);
		tcase_add_test(
			tcase,
			a_child_gets_what_is_whole_and_locks_that_are_open);
		tcase_add_test(tcase,
			       a_child_loads_a_driver_that_was_being_loaded);
	}
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
