/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/progress_thread.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "src/base/descriptors.h"
#include "src/base/doorbell.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/thread.h"

/* The thread sleeps on the events of at most so many devices; it polls
 * others. */
#define SLEEPERS 64

/* Locks, in the order in which they are taken */
static pthread_mutex_t life =
	PTHREAD_MUTEX_INITIALIZER; /* start and stop of the thread */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* everything else */
static struct {
	pthread_t thread;
	int wake;
	bool stop;
	struct progress_entry *list;
} thread_state;

static void wake(void)
{
	uint64_t one = 1;
	ssize_t n = write(thread_state.wake, &one, sizeof(one));

	(void)n;
}

void progress_thread_step_back(void)
{
	wake();
	doorbell_ring_own();
}

bool progress_thread_take_over(struct progress_entry *e)
{
	if (atomic_load(&e->covered))
		return true;
	if (!atomic_exchange(&e->leaves, true))
		wake();
	return false;
}

/* Poll all devices that need it. Returns how long to sleep, and fills in on
 * what. */
static int poll_devices(struct pollfd fds[SLEEPERS], nfds_t *n)
{
	int timeout = -1;

	for (struct progress_entry *e = thread_state.list; e; e = e->next) {
		uint32_t polls = atomic_load(&e->polls);
		bool away = atomic_exchange(&e->leaves, false) ||
			    polls == e->polls_seen;
		int t = PROGRESS_AWAY_MS;

		e->polls_seen = polls;
		/* First ask the rank to wake this thread when it polls, then
		 * check once more that it does not. */
		atomic_store(&e->covered, away);
		if (away && atomic_load(&e->polls) == polls)
			t = e->poll(e->dev);
		if (t < 0 && *n == SLEEPERS)
			t = PROGRESS_AWAY_MS;
		if (t < 0 && !atomic_load(&e->aborted))
			fds[(*n)++] =
				(struct pollfd){.fd = e->fd, .events = POLLIN};
		/* A thread that took the device for covered must not sleep
		 * on. */
		if (t >= 0 && atomic_exchange(&e->covered, false))
			doorbell_ring_own();
		if (t >= 0 && (timeout < 0 || t < timeout))
			timeout = t;
	}
	return timeout;
}

static void *thread_main(void *arg)
{
	struct pollfd fds[SLEEPERS];
	uint64_t drained;
	nfds_t n;
	int timeout;

	(void)arg;
	for (;;) {
		pthread_mutex_lock(&lock);
		fds[0] = (struct pollfd){.fd = thread_state.wake,
					 .events = POLLIN};
		n = 1;
		timeout = thread_state.stop ? 0 : poll_devices(fds, &n);
		if (thread_state.stop) {
			pthread_mutex_unlock(&lock);
			return NULL;
		}
		pthread_mutex_unlock(&lock);
		if (poll(fds, n, timeout) > 0 && fds[0].revents &&
		    read(fds[0].fd, &drained, sizeof(drained)) < 0)
			continue;
	}
}

static dicomm_result_t start(void)
{
	int err;

	thread_state.stop = false;
	thread_state.list = NULL;
	thread_state.wake =
		descriptors_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (thread_state.wake < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "progress thread: eventfd: %m");
	err = thread_start(&thread_state.thread, "dicomm-network", thread_main,
			   NULL);
	if (!err)
		return DICOMM_SUCCESS;
	close(thread_state.wake);
	return FAIL(DICOMM_ERR_SYSTEM, "progress thread: start a thread: %s",
		    strerror(err));
}

/* After a fork, the thread and the devices are the parent's. */
static void forget(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	life = lock = fresh;
	thread_state.list = NULL;
}

dicomm_result_t progress_thread_add(struct progress_entry *e)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	fork_add(FORK_PROGRESS_THREAD, forget);
	pthread_mutex_lock(&life);
	if (!thread_state.list)
		status = start();
	if (status == DICOMM_SUCCESS) {
		pthread_mutex_lock(&lock);
		e->next = thread_state.list;
		thread_state.list = e;
		e->listed = true;
		pthread_mutex_unlock(&lock);
		wake();
	}
	pthread_mutex_unlock(&life);
	return status;
}

void progress_thread_remove(struct progress_entry *e)
{
	struct progress_entry **at = &thread_state.list;

	if (!e->listed)
		return;
	pthread_mutex_lock(&life);
	pthread_mutex_lock(&lock);
	/* In the child of a fork the list is empty. */
	while (*at && *at != e)
		at = &(*at)->next;
	if (*at)
		*at = e->next;
	else
		at = NULL;
	e->listed = false;
	thread_state.stop = at && !thread_state.list;
	pthread_mutex_unlock(&lock);
	if (at)
		wake();
	if (thread_state.stop) {
		pthread_join(thread_state.thread, NULL);
		close(thread_state.wake);
	}
	pthread_mutex_unlock(&life);
}
