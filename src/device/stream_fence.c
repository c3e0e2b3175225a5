/* SPDX-License-Identifier: BSD-3-Clause */
/* Orders the streams of users with the operations that are queued on them. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/device/device.h"
#include "src/memory/blocked_streams.h"
#include "src/core/fault.h"

/* Queries of a stream before the caller begins to sleep between them. */
#define LOOKS 1000

/* The fences of a device. If some are under way when the device is closed, the
 * last one to be released frees this. */
struct stream_fences {
	const struct accel_work *work;
	int index;
	pthread_mutex_t lock; /* guards the members below */
	struct stream_fence *spare;
	int away;
	bool closed;
};

static void destroy(struct stream_fences *all, struct stream_fence *t)
{
	all->work->stream_wait_destroy(t->stream_wait);
	all->work->event_destroy(t->event);
	free(t);
}

static dicomm_result_t create(struct stream_fences *all)
{
	struct stream_fence *t = calloc(1, sizeof(*t));
	dicomm_result_t status;

	if (!t)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "stream: no memory to queue a call");
	t->of = all;
	status = all->work->event_create(all->index, &t->event);
	if (status == DICOMM_SUCCESS)
		status = all->work->stream_wait_create(all->index,
						       &t->stream_wait);
	if (status != DICOMM_SUCCESS) {
		destroy(all, t);
		return status;
	}
	t->next = all->spare;
	all->spare = t;
	return DICOMM_SUCCESS;
}

dicomm_result_t stream_fence_make(struct device *dev)
{
	struct stream_fences *all = calloc(1, sizeof(*all));

	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	all->work = dev->work;
	all->index = dev->index;
	pthread_mutex_init(&all->lock, NULL);
	dev->fences = all;
	for (int i = 0; i < DEVICE_CALLS; i++)
		TRY(create(all));
	return DICOMM_SUCCESS;
}

/* The caller holds the lock; this releases it. */
static void free_if_last(struct stream_fences *all)
{
	bool last = all->closed && !all->away;

	pthread_mutex_unlock(&all->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&all->lock);
	free(all);
}

void stream_fence_free_all(struct device *dev)
{
	struct stream_fences *all = dev->fences;
	struct stream_fence *t;

	if (!all)
		return;
	pthread_mutex_lock(&all->lock);
	all->closed = true;
	while ((t = all->spare)) {
		all->spare = t->next;
		destroy(all, t);
	}
	free_if_last(all);
}

static struct stream_fence *get(struct stream_fences *all)
{
	struct stream_fence *t;

	pthread_mutex_lock(&all->lock);
	t = all->spare;
	if (t) {
		all->spare = t->next;
		all->away++;
	}
	pthread_mutex_unlock(&all->lock);
	return t;
}

static void put(struct stream_fence *t)
{
	struct stream_fences *all = t->of;

	pthread_mutex_lock(&all->lock);
	all->away--;
	if (all->closed) {
		destroy(all, t);
	} else {
		t->next = all->spare;
		all->spare = t;
	}
	free_if_last(all);
}

/* Get a fence, and wait for one if all are in use. No further fences are
 * created here, since that could wait without bound for a blocked stream.
 * Fences come back as calls end. */
static dicomm_result_t await(struct dicomm_comm *comm,
			     struct stream_fence **out)
{
	const struct timespec nap = {0, 20000};
	uint64_t begin = clock_ms();
	struct stream_fence *t;

	while (!(t = get(comm->dev->fences))) {
		if (fault_is(comm))
			return fault_report(comm);
		if (comm->timeout_ms > 0 &&
		    clock_ms() - begin > (uint64_t)comm->timeout_ms) {
			/* Other ranks make the call that this rank gives up, so
			 * the communicator is broken. */
			fault_raise(comm, DICOMM_ERR_TIMEOUT, comm->rank, true,
				    "stream: none of %d calls under way on %s "
				    "has ended for %d ms",
				    DEVICE_CALLS, comm->name, comm->timeout_ms);
			return fault_report(comm);
		}
		nanosleep(&nap, NULL);
	}
	*out = t;
	return DICOMM_SUCCESS;
}

dicomm_result_t stream_fence_take(struct dicomm_comm *comm,
				  dicomm_stream_t stream,
				  struct stream_fence **out)
{
	struct stream_fence *t;

	TRY(await(comm, &t));
	t->stream = stream;
	t->blocked = t->reached = false;
	t->next = NULL;
	*out = t;
	return DICOMM_SUCCESS;
}

/*
 * Record all events before any stream waits. An event that is queued behind a
 * stream wait is reached only when the call of that wait ends. If each of two
 * calls queued a wait before it recorded an event, each would wait for the
 * other. Two threads on the same two streams could do that, or one thread on
 * two streams that the driver keeps in order.
 */
dicomm_result_t stream_fence_block(struct stream_fence *list)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	struct stream_fence *t;

	if (!list)
		return DICOMM_SUCCESS;
	for (t = list; t && status == DICOMM_SUCCESS; t = t->next) {
		status = t->of->work->open(t->of->index, t->stream, &t->open);
		if (status == DICOMM_SUCCESS)
			status = t->of->work->event_record(t->event, t->open);
	}
	streams_block_begin();
	for (t = list; t && status == DICOMM_SUCCESS; t = t->next) {
		status =
			t->of->work->stream_wait_queue(t->stream_wait, t->open);
		t->blocked = status == DICOMM_SUCCESS;
	}
	streams_block_end();
	for (t = list; t; t = t->next) {
		if (t->open)
			t->of->work->close(t->open);
		t->open = NULL;
	}
	return status;
}

/* Wait until the stream is empty. */
static dicomm_result_t come_to_end(const struct accel_work *work,
				   struct accel_event *event,
				   struct accel_stream *s)
{
	const struct timespec nap = {0, 20000};
	dicomm_result_t status;
	unsigned looks = 0;

	TRY(work->event_record(event, s));
	while ((status = work->event_query(event)) == DICOMM_AGAIN)
		if (++looks < LOOKS)
			sched_yield();
		else
			nanosleep(&nap, NULL);
	return status;
}

/* Drivers copy pageable host memory within the call, and hold locks meanwhile.
 * So the stream is emptied first; otherwise the driver would wait under its
 * locks for a stream wait of the library. */
dicomm_result_t device_finish(struct dicomm_comm *comm, dicomm_stream_t stream,
			      void *dst, const void *src, size_t bytes)
{
	const struct accel_work *work = comm->dev->work;
	struct accel_stream *s = NULL;
	dicomm_result_t status;
	struct stream_fence *t;

	TRY(await(comm, &t));
	status = work->open(comm->dev->index, stream, &s);
	if (status == DICOMM_SUCCESS)
		status = come_to_end(work, t->event, s);
	if (status == DICOMM_SUCCESS && dst) {
		status = work->copy(s, dst, src, bytes);
		if (status == DICOMM_SUCCESS)
			status = come_to_end(work, t->event, s);
	}
	if (s)
		work->close(s);
	put(t);
	return status;
}

bool stream_fence_is_of(const struct stream_fence *t,
			const struct dicomm_comm *comm, dicomm_stream_t stream)
{
	return comm->dev && t->stream == stream &&
	       t->of->work == comm->dev->work &&
	       t->of->index == comm->dev->index;
}

dicomm_result_t stream_fence_query(struct stream_fence *t)
{
	if (!t->reached) {
		TRY(t->of->work->event_query(t->event));
		t->reached = true;
	}
	return DICOMM_SUCCESS;
}

void stream_fence_release(struct stream_fence *t)
{
	if (t->let_go) {
		t->let_go(t);
		return;
	}
	if (t->blocked)
		t->of->work->stream_wait_release(t->stream_wait);
	put(t);
}
