/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/memory/blocked_streams.h"

#include <pthread.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/thread.h"

/* How long the sweeper sleeps between two attempts to run deferred work,
 * in nanoseconds. */
#define LOOK_NS 10000000

/* How long an allocation waits for operations that block streams */
#define AWAIT_MS 2000

/* Guards the counters below. may_block is signalled when a thread
 * ends streams_unblocked_begin(). */
static pthread_mutex_t streams = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t may_block = PTHREAD_COND_INITIALIZER;
/* Threads that are blocking a stream, and threads that need all streams
 * unblocked. At any moment one of the two counters is 0. */
static unsigned blockers, others;
/* How often this thread is counted in others. A log sink that runs in it may
 * make a call, which must not wait for itself. */
static _Thread_local unsigned own;

static pthread_mutex_t lock =
	PTHREAD_MUTEX_INITIALIZER; /* guards the members below */
static struct deferred *waiting;
static bool sweeps; /* the sweeper runs */

/* The child of a fork has neither the threads that hold the locks nor
 * their memory. */
static void forget(void)
{
	pthread_mutex_init(&streams, NULL);
	pthread_cond_init(&may_block, NULL);
	blockers = others = own = 0;
	pthread_mutex_init(&lock, NULL);
	waiting = NULL;
	sweeps = false;
}

void streams_block_begin(void)
{
	fork_add(FORK_BLOCKED_STREAMS, forget);
	pthread_mutex_lock(&streams);
	while (others && !own)
		pthread_cond_wait(&may_block, &streams);
	blockers++;
	pthread_mutex_unlock(&streams);
}

void streams_block_end(void)
{
	pthread_mutex_lock(&streams);
	blockers--;
	pthread_mutex_unlock(&streams);
}

bool streams_unblocked_begin(const struct accel_work *work, int index)
{
	bool none;

	fork_add(FORK_BLOCKED_STREAMS, forget);
	pthread_mutex_lock(&streams);
	none = !blockers && !work->held(index);
	others += none;
	own += none;
	pthread_mutex_unlock(&streams);
	return none;
}

bool streams_unblocked_await(const struct accel_work *work, int index)
{
	const struct timespec nap = {.tv_nsec = 50000};
	uint64_t end = clock_ms() + AWAIT_MS;

	while (!streams_unblocked_begin(work, index)) {
		if (clock_ms() > end)
			return false;
		nanosleep(&nap, NULL);
	}
	return true;
}

void streams_unblocked_end(void)
{
	pthread_mutex_lock(&streams);
	/* If it is 0, this is the child of a fork that happened in between. */
	if (own) {
		others--;
		own--;
	}
	pthread_cond_broadcast(&may_block);
	pthread_mutex_unlock(&streams);
}

/* ---- deferred work ---- */

/* Run deferred work if no stream is blocked. The caller holds the lock, and
 * keeps log messages until it is released: a log sink could want it. */

static bool goes(struct deferred *l)
{
	bool gone;

	if (!streams_unblocked_begin(l->work, l->index))
		return false;
	gone = l->go(l);
	streams_unblocked_end();
	return gone;
}

void deferred_sweep(void)
{
	fork_add(FORK_BLOCKED_STREAMS, forget);
	log_hold();
	pthread_mutex_lock(&lock);
	for (struct deferred **at = &waiting; *at;) {
		struct deferred *l = *at, *next = l->next;

		if (goes(l))
			*at = next;
		else
			at = &l->next;
	}
	pthread_mutex_unlock(&lock);
	log_release(true);
}

bool deferred_waits(void)
{
	bool waits;

	pthread_mutex_lock(&lock);
	waits = waiting;
	pthread_mutex_unlock(&lock);
	return waits;
}

static bool is_wanted(void)
{
	bool wanted;

	pthread_mutex_lock(&lock);
	wanted = sweeps = waiting;
	pthread_mutex_unlock(&lock);
	return wanted;
}

static void *sweeper(void *arg)
{
	const struct timespec nap = {.tv_nsec = LOOK_NS};

	(void)arg;
	while (is_wanted()) {
		nanosleep(&nap, NULL);
		deferred_sweep();
	}
	return NULL;
}

bool deferred_run(struct deferred *l)
{
	bool gone;

	fork_add(FORK_BLOCKED_STREAMS, forget);
	log_hold();
	pthread_mutex_lock(&lock);
	gone = goes(l);
	if (!gone) {
		l->next = waiting;
		waiting = l;
	}
	/* If the thread cannot be started, callers of deferred_sweep() do
	 * its work. */
	if (!gone && !sweeps)
		sweeps = !thread_start(NULL, "dicomm-sweeper", sweeper, NULL);
	pthread_mutex_unlock(&lock);
	log_release(true);
	return gone;
}
