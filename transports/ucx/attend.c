/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that polls the devices whose ranks are away: what they have sent
 * gets out, what they have offered is read, and who says goodbye is answered.
 * While a rank polls its device itself, the thread only looks at that, now and
 * then; while nobody does, it sleeps until something comes.
 */
#include "transports/ucx/ucx.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/thread.h"

/* A rank that has not polled for so long is away. */
#define AWAY_MS 10
/* Devices whose events are slept on; those beyond are looked at. */
#define SLEEPERS 64
#define PROGRESS_MAX 256

/* Taken in this order. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER; /* of the thread */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the rest */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
	pthread_t thread;
	int wake;
	bool stop;
	struct tp_device *devices;
} attend;

void ucx_attend_wake(void)
{
	uint64_t one = 1;
	ssize_t n = write(attend.wake, &one, sizeof(one));

	(void)n;
}

/* Milliseconds after which to look again; -1: when there are events. */
static int settle(struct tp_device *dev)
{
	int timeout = 0, n = 0;

	if (!ucx_try_lock(dev))
		return AWAY_MS;
	if (!dev->worker)
		timeout = -1;
	else
		ucx_credits_tell_all(dev);
	while (timeout == 0 && n++ < PROGRESS_MAX)
		if (!ucx_progress(dev) &&
		    ucx.ucp_worker_arm(dev->worker) == UCS_OK)
			timeout = dev->untold || dev->owes ? AWAY_MS : -1;
	ucx_unlock(dev);
	return timeout;
}

/* How long to sleep, and on what. */
static int look(struct pollfd fds[SLEEPERS], nfds_t *n)
{
	int timeout = -1;

	for (struct tp_device *d = attend.devices; d; d = d->next) {
		uint32_t visits = atomic_load(&d->visits);
		bool away = visits == d->seen;
		int t = AWAY_MS;

		d->seen = visits;
		/* First say that its rank is to wake us, then look again. */
		atomic_store(&d->attended, away);
		if (away && atomic_load(&d->visits) == visits)
			t = settle(d);
		if (t < 0 && *n == SLEEPERS)
			t = AWAY_MS;
		if (t < 0 && !atomic_load(&d->aborted))
			fds[(*n)++] =
				(struct pollfd){.fd = d->efd, .events = POLLIN};
		if (t >= 0)
			atomic_store(&d->attended, false);
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
		fds[0] = (struct pollfd){.fd = attend.wake, .events = POLLIN};
		n = 1;
		timeout = attend.stop ? 0 : look(fds, &n);
		if (attend.stop) {
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

	attend.stop = false;
	attend.devices = NULL;
	attend.wake = descriptors_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (attend.wake < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "ucx: eventfd: %m");
	err = thread_start(&attend.thread, "dicomm-ucx", thread_main, NULL);
	if (!err)
		return DICOMM_SUCCESS;
	close(attend.wake);
	return FAIL(DICOMM_ERR_SYSTEM, "ucx: start a thread: %s",
		    strerror(err));
}

/* Locks, thread and devices are those of the process before a fork. */
static void forget(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	life = lock = fresh;
	attend.devices = NULL;
}

static void setup(void)
{
	pthread_atfork(NULL, NULL, forget);
}

dicomm_result_t ucx_attend(struct tp_device *dev)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	pthread_once(&once, setup);
	pthread_mutex_lock(&life);
	if (!attend.devices)
		status = start();
	if (status == DICOMM_SUCCESS) {
		pthread_mutex_lock(&lock);
		dev->next = attend.devices;
		attend.devices = dev;
		dev->listed = true;
		pthread_mutex_unlock(&lock);
		ucx_attend_wake();
	}
	pthread_mutex_unlock(&life);
	return status;
}

void ucx_attend_no_more(struct tp_device *dev)
{
	struct tp_device **at = &attend.devices;

	if (!dev->listed)
		return;
	pthread_mutex_lock(&life);
	pthread_mutex_lock(&lock);
	while (*at != dev)
		at = &(*at)->next;
	*at = dev->next;
	dev->listed = false;
	attend.stop = !attend.devices;
	pthread_mutex_unlock(&lock);
	ucx_attend_wake();
	if (attend.stop) {
		pthread_join(attend.thread, NULL);
		close(attend.wake);
	}
	pthread_mutex_unlock(&life);
}
