/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The threads that run the callbacks of requests. A callback may wait for
 * another one, so one that is due never waits for those that run: if no thread
 * is free, there will be one more. Threads that have had nothing to do for a
 * while end, but for one.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/stream/request.h"

#define IDLE_S 2

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t due = PTHREAD_COND_INITIALIZER;
static struct dicomm_request *first, **last = &first;
static unsigned queued, threads, idle;

/* The child of a fork has none of these threads. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&due, NULL);
	first = NULL;
	last = &first;
	queued = threads = idle = 0;
}

/* With the lock held: wait for a callback. NULL: this thread is one too many.
 */
static struct dicomm_request *next_due(void)
{
	struct dicomm_request *r;
	struct timespec end;
	bool late = false;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += IDLE_S;
	idle++;
	while (!first && !(late && threads > 1)) {
		if (threads == 1)
			pthread_cond_wait(&due, &lock);
		else
			late = pthread_cond_timedwait(&due, &lock, &end);
	}
	idle--;
	r = first;
	if (!r)
		return NULL;
	first = r->next;
	if (!first)
		last = &first;
	queued--;
	return r;
}

static void *run(void *arg)
{
	struct dicomm_request *r;

	(void)arg;
	pthread_mutex_lock(&lock);
	while ((r = next_due())) {
		pthread_mutex_unlock(&lock);
		if (r->status != DICOMM_SUCCESS)
			log_set_last_error(r->text);
		r->call(r->status, r->ctx);
		request_put(r);
		pthread_mutex_lock(&lock);
	}
	threads--;
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* With the lock held */
static int start(void)
{
	int error = thread_start(NULL, "dicomm-callback", run, NULL);

	threads += !error;
	return error;
}

/* With the lock held */
static void queue(struct dicomm_request *r)
{
	int error = 0;

	r->called = true;
	r->next = NULL;
	*last = r;
	last = &r->next;
	queued++;
	if (queued > idle)
		error = start();
	else
		pthread_cond_signal(&due);
	if (error)
		log_warn("callback: create a thread: %s: it waits for another "
			 "callback to end",
			 strerror(error));
}

dicomm_result_t callbacks_set(struct dicomm_request *r,
			      dicomm_request_fn_t call, void *ctx)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	int error = 0;

	fork_add(FORK_CALLBACKS, forget);
	pthread_mutex_lock(&lock);
	if (r->call)
		status = FAIL(DICOMM_ERR_INVALID_USAGE,
			      "request_call: request %p has a callback already",
			      (void *)r);
	else if (!threads && (error = start()))
		status = FAIL(DICOMM_ERR_SYSTEM,
			      "request_call: create a thread: %s",
			      strerror(error));
	if (status == DICOMM_SUCCESS) {
		atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
		r->call = call;
		r->ctx = ctx;
		if (request_is_done(r))
			queue(r);
	}
	pthread_mutex_unlock(&lock);
	return status;
}

void callbacks_complete(struct dicomm_request *r, dicomm_result_t status,
			const char *text)
{
	if (!request_end(r, status, text))
		return;
	pthread_mutex_lock(&lock);
	if (r->call && !r->called)
		queue(r);
	pthread_mutex_unlock(&lock);
	request_put(r);
}
