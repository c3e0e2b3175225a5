/* SPDX-License-Identifier: BSD-3-Clause */
/* The control thread and its event loop. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "src/base/cancel.h"
#include "src/base/clock.h"
#include "src/base/descriptors.h"
#include "src/base/epoll_set.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/boot/net/loop.h"

#define BATCH 128
#define SCAN_MS 100 /* time between two checks of the deadlines */

static pthread_cond_t begun = PTHREAD_COND_INITIALIZER;

static struct {
	bool running, thread_runs;
	pthread_t thread;
	int epoll, wake;
	struct loop_source *sources; /* registered sources */
	/* Closed sources that the thread will release. */
	struct loop_source *dead;
	/* The parent's sources; kept for leak checkers. */
	struct loop_source *orphans;
	struct loop_call *calls, **last_call;
	/* What is to be sent before the lock is released */
	struct loop_source *senders;
	/* Whom to wake when the lock is released */
	struct loop_cond *due;
	size_t timed; /* number of sources with a deadline */
} loop;

/* A log callback may call a function that takes this lock. So log lines of this
 * thread are written only after it has released the lock. */
void loop_lock(void)
{
	fork_lock(FORK_CONTROL);
	if (!loop_is_current_thread())
		log_hold();
}

static void remove_sender(struct loop_source *s)
{
	if (!s->sender_link)
		return;
	*s->sender_link = s->next_sender;
	if (s->next_sender)
		s->next_sender->sender_link = s->sender_link;
	s->sender_link = NULL;
}

static void send_all(void)
{
	struct loop_source *s;

	if (!loop.senders)
		return;
	CANCEL_HELD();
	while ((s = loop.senders)) {
		remove_sender(s);
		s->send(s);
	}
}

void loop_send_later(struct loop_source *s)
{
	if (s->sender_link)
		return;
	s->next_sender = loop.senders;
	s->sender_link = &loop.senders;
	if (s->next_sender)
		s->next_sender->sender_link = &s->next_sender;
	loop.senders = s;
}

static void wake_all(void)
{
	struct loop_cond *c;

	while ((c = loop.due)) {
		loop.due = c->next;
		c->is_due = false;
		pthread_cond_broadcast(&c->cond);
	}
}

void loop_unlock(void)
{
	bool held = !loop_is_current_thread();

	send_all();
	wake_all();
	fork_unlock(FORK_CONTROL);
	if (held)
		log_release(true);
}

void loop_cond_init(struct loop_cond *c)
{
	pthread_condattr_t attr;

	c->is_due = false;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->cond, &attr);
	pthread_condattr_destroy(&attr);
}

void loop_cond_destroy(struct loop_cond *c)
{
	pthread_cond_destroy(&c->cond);
}

void loop_cond_broadcast(struct loop_cond *c)
{
	if (c->is_due)
		return;
	c->is_due = true;
	c->next = loop.due;
	loop.due = c;
}

void loop_cond_wait(struct loop_cond *c, uint64_t until_ns)
{
	struct timespec t = {
		.tv_sec = (time_t)(until_ns / 1000000000u),
		.tv_nsec = (long)(until_ns % 1000000000u),
	};

	send_all();
	wake_all();
	pthread_cond_timedwait(&c->cond, &fork_locks[FORK_CONTROL], &t);
}

bool loop_is_current_thread(void)
{
	return loop.running && pthread_equal(loop.thread, pthread_self());
}

bool loop_is_running(void)
{
	return loop.running;
}

/* Wakes the control thread, unless this is it. */
static void wake(void)
{
	uint64_t one = 1;

	if (!loop_is_current_thread() && loop.running)
		while (write(loop.wake, &one, sizeof(one)) < 0 &&
		       errno == EINTR)
			;
}

static void link_to(struct loop_source **head, struct loop_source *s)
{
	s->next = *head;
	s->link = head;
	if (s->next)
		s->next->link = &s->next;
	*head = s;
}

static void unlink_from(struct loop_source *s)
{
	*s->link = s->next;
	if (s->next)
		s->next->link = s->link;
}

void loop_add(struct loop_source *s)
{
	s->watched = s->dead = false;
	s->deadline_ns = 0;
	s->sender_link = NULL;
	link_to(&loop.sources, s);
}

dicomm_result_t loop_watch(struct loop_source *s, uint32_t events)
{
	int (*watch)(int, int, uint32_t, epoll_data_t) =
		s->watched ? epoll_set_change : epoll_set_add;

	if (watch(loop.epoll, s->fd, events, (epoll_data_t){.ptr = s}) < 0)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "control thread: watch descriptor %d: %m", s->fd);
	s->watched = true;
	return DICOMM_SUCCESS;
}

void loop_deadline(struct loop_source *s, uint64_t at_ns)
{
	if (at_ns && !s->deadline_ns && !loop.timed++)
		wake();
	if (!at_ns && s->deadline_ns)
		loop.timed--;
	s->deadline_ns = at_ns;
}

/* Events that were fetched before the drop may point to the source. So its
 * memory stays until the thread is about to fetch events again. */
void loop_drop(struct loop_source *s)
{
	if (s->dead)
		return;
	loop_deadline(s, 0);
	remove_sender(s);
	if (s->fd >= 0)
		epoll_set_close(loop.epoll, s->fd);
	s->fd = -1;
	s->watched = false;
	s->dead = true;
	unlink_from(s);
	link_to(&loop.dead, s);
	wake();
}

void loop_post(struct loop_call *call)
{
	call->next = NULL;
	*loop.last_call = call;
	loop.last_call = &call->next;
	wake();
}

static void run_calls(void)
{
	struct loop_call *call;

	while ((call = loop.calls)) {
		loop.calls = call->next;
		if (!loop.calls)
			loop.last_call = &loop.calls;
		call->run(call);
	}
}

static void release_dead(void)
{
	struct loop_source *s;

	while ((s = loop.dead)) {
		unlink_from(s);
		if (s->released)
			s->released(s);
	}
}

static void expire(uint64_t now)
{
	struct loop_source *s, *next;

	for (s = loop.sources; s; s = next) {
		next = s->next;
		if (!s->deadline_ns || s->deadline_ns > now)
			continue;
		loop_deadline(s, 0);
		s->expired(s);
		/* The callback may have dropped any other source, so start
		 * again. */
		next = loop.sources;
	}
}

static void dispatch(const struct epoll_event *events, int n)
{
	uint64_t count;

	for (int i = 0; i < n; i++) {
		struct loop_source *s = events[i].data.ptr;

		if (!s) {
			while (read(loop.wake, &count, sizeof(count)) < 0 &&
			       errno == EINTR)
				;
		} else if (!s->dead) {
			s->ready(s, events[i].events);
		}
	}
}

static void *thread_main(void *arg)
{
	struct epoll_event events[BATCH];
	uint64_t now, next_scan = 0;

	(void)arg;
	loop_lock();
	loop.thread_runs = true;
	pthread_cond_broadcast(&begun);
	for (;;) {
		int n, timeout_ms, epoll = loop.epoll;

		run_calls();
		release_dead();
		timeout_ms = loop.timed ? SCAN_MS : -1;
		loop_unlock();
		n = epoll_wait(epoll, events, BATCH, timeout_ms);
		loop_lock();
		dispatch(events, n);
		now = clock_ns();
		if (loop.timed && now >= next_scan) {
			expire(now);
			next_scan = now + SCAN_MS * 1000000ull;
		}
	}
	return NULL;
}

static void forget(void)
{
	struct loop_source *s;

	if (loop.running) {
		close(loop.epoll);
		close(loop.wake);
	}
	loop.running = loop.thread_runs = false;
	while ((s = loop.sources)) {
		if (s->fd >= 0)
			close(s->fd);
		s->fd = -1;
		s->dead = true;
		unlink_from(s);
		link_to(&loop.orphans, s);
	}
	while ((s = loop.dead)) {
		unlink_from(s);
		link_to(&loop.orphans, s);
	}
	loop.calls = NULL;
	loop.senders = NULL;
	loop.due = NULL;
	loop.timed = 0;
}

static dicomm_result_t start(void)
{
	dicomm_result_t status;
	int error;

	loop.last_call = &loop.calls;
	loop.epoll = epoll_set_open();
	if (loop.epoll < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "control thread: epoll: %m");
	loop.wake = descriptors_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (loop.wake < 0) {
		status = FAIL(DICOMM_ERR_SYSTEM, "control thread: eventfd: %m");
		goto close_epoll;
	}
	if (epoll_set_add(loop.epoll, loop.wake, EPOLLIN,
			  (epoll_data_t){.ptr = NULL}) < 0) {
		status = FAIL(DICOMM_ERR_SYSTEM, "control thread: watch: %m");
		goto close_wake;
	}
	error = thread_start(&loop.thread, "dicomm-control", thread_main, NULL);
	if (error) {
		status = FAIL(DICOMM_ERR_SYSTEM, "control thread: start: %s",
			      strerror(error));
		goto close_wake;
	}
	pthread_detach(loop.thread);
	/* Set before the thread gets the lock, because loop_is_current_thread()
	 * must return true there. */
	loop.running = true;
	/* A fork while a thread is being created leaves the child with locked
	 * locks of the C library (or the sanitizer). So do not return, and let
	 * callers fork, before the thread runs. */
	while (!loop.thread_runs)
		pthread_cond_wait(&begun, &fork_locks[FORK_CONTROL]);
	return DICOMM_SUCCESS;

close_wake:
	close(loop.wake);
close_epoll:
	close(loop.epoll);
	return status;
}

dicomm_result_t loop_start(void)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	fork_add(FORK_CONTROL, forget);
	loop_lock();
	if (!loop.running)
		status = start();
	loop_unlock();
	return status;
}
