/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that polls the devices of ranks that are away from the library. So
 * what they have sent gets out, peers can read what they have offered, and
 * peers that close get their acknowledgement.
 *
 * While a rank polls its device itself, the thread only checks now and then
 * that it still does. If nobody polls, the thread polls until nothing moves,
 * then sleeps until something arrives.
 */
#include "transports/ucx/progress_thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "transports/ucx/credits.h"
#include "transports/ucx/device.h"
#include "transports/ucx/load.h"
#include "transports/ucx/progress.h"

/* A rank that has not polled for so long is away. */
#define AWAY_MS 10
/* The thread sleeps on the events of at most so many devices; it polls
 * others. */
#define SLEEPERS 64
#define PROGRESS_MAX 256

/* Locks, in the order in which they are taken. */
static pthread_mutex_t life =
	PTHREAD_MUTEX_INITIALIZER; /* start and stop of the thread */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* everything else */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
	pthread_t thread;
	int wake;
	bool stop;
	struct tp_device *devices;
} thread_state;

void ucx_thread_wake(void)
{
	uint64_t one = 1;
	ssize_t n = write(thread_state.wake, &one, sizeof(one));

	(void)n;
}

/* Poll the device of a rank that is away until nothing moves. Returns after how
 * many milliseconds to do so again; -1: when an event comes. */
static int poll_device(struct tp_device *dev)
{
	int timeout = 0, n = 0;

	if (!ucx_try_lock(dev))
		return AWAY_MS;
	if (!dev->worker)
		timeout = -1;
	else
		ucx_credits_send_all(dev);
	while (timeout == 0 && n++ < PROGRESS_MAX)
		if (!ucx_progress(dev) &&
		    ucx.ucp_worker_arm(dev->worker) == UCS_OK)
			timeout = dev->credits_due || dev->deferred ? AWAY_MS
								    : -1;
	ucx_unlock(dev);
	return timeout;
}

/* Poll all devices that need it. Returns how long to sleep, and fills in on
 * what. */
static int poll_devices(struct pollfd fds[SLEEPERS], nfds_t *n)
{
	int timeout = -1;

	for (struct tp_device *d = thread_state.devices; d; d = d->next) {
		uint32_t polls = atomic_load(&d->polls);
		bool away = polls == d->polls_seen;
		int t = AWAY_MS;

		d->polls_seen = polls;
		/* First ask the rank to wake this thread when it polls, then
		 * check once more that it does not. */
		atomic_store(&d->covered, away);
		if (away && atomic_load(&d->polls) == polls)
			t = poll_device(d);
		if (t < 0 && *n == SLEEPERS)
			t = AWAY_MS;
		if (t < 0 && !atomic_load(&d->aborted))
			fds[(*n)++] =
				(struct pollfd){.fd = d->efd, .events = POLLIN};
		if (t >= 0)
			atomic_store(&d->covered, false);
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
	thread_state.devices = NULL;
	thread_state.wake =
		descriptors_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (thread_state.wake < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "ucx: eventfd: %m");
	err = thread_start(&thread_state.thread, "dicomm-ucx", thread_main,
			   NULL);
	if (!err)
		return DICOMM_SUCCESS;
	close(thread_state.wake);
	return FAIL(DICOMM_ERR_SYSTEM, "ucx: start a thread: %s",
		    strerror(err));
}

/* After a fork, the thread and the devices are the parent's. */
static void forget(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	life = lock = fresh;
	thread_state.devices = NULL;
}

static void setup(void)
{
	pthread_atfork(NULL, NULL, forget);
}

dicomm_result_t ucx_thread_add(struct tp_device *dev)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	pthread_once(&once, setup);
	pthread_mutex_lock(&life);
	if (!thread_state.devices)
		status = start();
	if (status == DICOMM_SUCCESS) {
		pthread_mutex_lock(&lock);
		dev->next = thread_state.devices;
		thread_state.devices = dev;
		dev->listed = true;
		pthread_mutex_unlock(&lock);
		ucx_thread_wake();
	}
	pthread_mutex_unlock(&life);
	return status;
}

void ucx_thread_remove(struct tp_device *dev)
{
	struct tp_device **at = &thread_state.devices;

	if (!dev->listed)
		return;
	pthread_mutex_lock(&life);
	pthread_mutex_lock(&lock);
	while (*at != dev)
		at = &(*at)->next;
	*at = dev->next;
	dev->listed = false;
	thread_state.stop = !thread_state.devices;
	pthread_mutex_unlock(&lock);
	ucx_thread_wake();
	if (thread_state.stop) {
		pthread_join(thread_state.thread, NULL);
		close(thread_state.wake);
	}
	pthread_mutex_unlock(&life);
}
