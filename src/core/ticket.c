/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of users, and the operations that are queued on them. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/core/device.h"

/* At a stream before the caller sleeps in between */
#define LOOKS 1000

static void destroy(struct device *dev, struct ticket *t)
{
	dev->work->gate_destroy(t->gate);
	dev->work->event_destroy(t->event);
	free(t);
}

static dicomm_result_t create(struct dicomm_comm *comm, struct ticket **out)
{
	struct device *dev = comm->dev;
	struct ticket *t = calloc(1, sizeof(*t));
	dicomm_result_t status;

	if (!t)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "stream: no memory to queue a call");
	t->comm = comm;
	status = dev->work->event_create(dev->index, &t->event);
	if (status == DICOMM_SUCCESS)
		status = dev->work->gate_create(dev->index, &t->gate);
	if (status != DICOMM_SUCCESS) {
		destroy(dev, t);
		return status;
	}
	*out = t;
	return DICOMM_SUCCESS;
}

static void put(struct device *dev, struct ticket *t)
{
	pthread_mutex_lock(&dev->lock);
	t->next = dev->spare;
	dev->spare = t;
	pthread_mutex_unlock(&dev->lock);
}

dicomm_result_t ticket_make(struct dicomm_comm *comm)
{
	struct ticket *t;

	for (int i = 0; i < DEVICE_CALLS; i++) {
		TRY(create(comm, &t));
		put(comm->dev, t);
	}
	return DICOMM_SUCCESS;
}

void ticket_free_all(struct device *dev)
{
	struct ticket *t;

	while ((t = dev->spare)) {
		dev->spare = t->next;
		destroy(dev, t);
	}
}

static struct ticket *get(struct device *dev)
{
	struct ticket *t;

	pthread_mutex_lock(&dev->lock);
	t = dev->spare;
	if (t)
		dev->spare = t->next;
	pthread_mutex_unlock(&dev->lock);
	return t;
}

/* More are not made: that could wait for a stream that is held, with no bound.
 * They come back as calls end. */
static dicomm_result_t await(struct dicomm_comm *comm, struct ticket **out)
{
	const struct timespec nap = {0, 20000};
	uint64_t begin = clock_ms();
	struct ticket *t;

	while (!(t = get(comm->dev))) {
		if (fault_is(comm))
			return fault_report(comm);
		if (comm->timeout_ms > 0 &&
		    clock_ms() - begin > (uint64_t)comm->timeout_ms) {
			/* Others make the call that this rank gives up. */
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

/* The gate is closed last: then nothing can fail any more. */
static dicomm_result_t hold(struct ticket *t)
{
	const struct device *dev = t->comm->dev;
	struct accel_stream *s;
	dicomm_result_t status;

	TRY(dev->work->open(dev->index, t->stream, &s));
	status = dev->work->event_record(t->event, s);
	if (status == DICOMM_SUCCESS)
		status = dev->work->gate_close(t->gate, s);
	dev->work->close(s);
	return status;
}

dicomm_result_t ticket_take(struct dicomm_comm *comm, dicomm_stream_t stream,
			    struct ticket **out)
{
	struct device *dev = comm->dev;
	dicomm_result_t status;
	struct ticket *t;

	TRY(await(comm, &t));
	t->stream = stream;
	t->reached = false;
	t->next = NULL;
	status = hold(t);
	if (status != DICOMM_SUCCESS) {
		put(dev, t);
		return status;
	}
	*out = t;
	return DICOMM_SUCCESS;
}

dicomm_result_t device_finish(struct dicomm_comm *comm, dicomm_stream_t stream,
			      void *dst, const void *src, size_t bytes)
{
	const struct timespec nap = {0, 20000};
	const struct accel_work *work = comm->dev->work;
	struct accel_stream *s = NULL;
	dicomm_result_t status;
	unsigned looks = 0;
	struct ticket *t;

	TRY(await(comm, &t));
	status = work->open(comm->dev->index, stream, &s);
	if (status == DICOMM_SUCCESS && dst)
		status = work->copy(s, dst, src, bytes);
	if (status == DICOMM_SUCCESS)
		status = work->event_record(t->event, s);
	while (status == DICOMM_SUCCESS &&
	       (status = work->event_query(t->event)) == DICOMM_AGAIN) {
		status = DICOMM_SUCCESS;
		if (++looks < LOOKS)
			sched_yield();
		else
			nanosleep(&nap, NULL);
	}
	if (s)
		work->close(s);
	put(comm->dev, t);
	return status;
}

dicomm_result_t ticket_query(struct ticket *t)
{
	if (!t->reached) {
		TRY(t->comm->dev->work->event_query(t->event));
		t->reached = true;
	}
	return DICOMM_SUCCESS;
}

void ticket_give(struct ticket *t)
{
	t->comm->dev->work->gate_open(t->gate);
	put(t->comm->dev, t);
}
