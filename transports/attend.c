/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/attend.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/thread.h"

/* Devices whose events are slept on; those beyond are looked at. */
#define SLEEPERS 64

/* Taken in this order. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER; /* of the thread */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the rest */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
	pthread_t thread;
	int wake;
	bool stop;
	struct attended *list;
} attend;

void attend_wake(void)
{
	uint64_t one = 1;
	ssize_t n = write(attend.wake, &one, sizeof(one));

	(void)n;
}

/* How long to sleep, and on what. */
static int look(struct pollfd fds[SLEEPERS], nfds_t *n)
{
	int timeout = -1;

	for (struct attended *a = attend.list; a; a = a->next) {
		uint32_t visits = atomic_load(&a->visits);
		bool away = visits == a->seen;
		int t = ATTEND_AWAY_MS;

		a->seen = visits;
		/* First say that its rank is to wake us, then look again. */
		atomic_store(&a->away, away);
		if (away && atomic_load(&a->visits) == visits)
			t = a->settle(a);
		if (t < 0 && *n == SLEEPERS)
			t = ATTEND_AWAY_MS;
		if (t < 0 && !atomic_load(&a->ended))
			fds[(*n)++] =
				(struct pollfd){.fd = a->fd, .events = POLLIN};
		if (t >= 0)
			atomic_store(&a->away, false);
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
	attend.list = NULL;
	attend.wake = descriptors_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (attend.wake < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "wires: eventfd: %m");
	err = thread_start(&attend.thread, "dicomm-wires", thread_main, NULL);
	if (!err)
		return DICOMM_SUCCESS;
	close(attend.wake);
	return FAIL(DICOMM_ERR_SYSTEM, "wires: start a thread: %s",
		    strerror(err));
}

/* Locks, thread and devices are those of the process before a fork. */
static void forget(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	life = lock = fresh;
	attend.list = NULL;
}

static void setup(void)
{
	pthread_atfork(NULL, NULL, forget);
}

dicomm_result_t attend_add(struct attended *a)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	pthread_once(&once, setup);
	pthread_mutex_lock(&life);
	if (!attend.list)
		status = start();
	if (status == DICOMM_SUCCESS) {
		pthread_mutex_lock(&lock);
		a->next = attend.list;
		attend.list = a;
		a->listed = true;
		pthread_mutex_unlock(&lock);
		attend_wake();
	}
	pthread_mutex_unlock(&life);
	return status;
}

void attend_remove(struct attended *a)
{
	struct attended **at = &attend.list;

	if (!a->listed)
		return;
	pthread_mutex_lock(&life);
	pthread_mutex_lock(&lock);
	/* In the child of a fork the list is empty. */
	while (*at && *at != a)
		at = &(*at)->next;
	if (*at)
		*at = a->next;
	else
		at = NULL;
	a->listed = false;
	attend.stop = at && !attend.list;
	pthread_mutex_unlock(&lock);
	if (at)
		attend_wake();
	if (attend.stop) {
		pthread_join(attend.thread, NULL);
		close(attend.wake);
	}
	pthread_mutex_unlock(&life);
}
