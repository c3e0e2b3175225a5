/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of calls: what is between islands while the vendor's library works. */
#include "src/island/part.h"

#include <stdlib.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/core/fault.h"
#include "src/device/device.h"
#include "src/device/neighbour.h"
#include "src/device/user_buffer.h"
#include "src/memory/blocked_streams.h"
#include "src/stream/batch.h"
#include "src/stream/driver.h"
#include "src/stream/request.h"
#include "src/stream/submit.h"

/* A host rank has no more under way than it waits for. */
#define HOST_PARTS (ISLAND_LEAD + 1)
#define DEVICE_PARTS DEVICE_CALLS

_Static_assert(ISLAND_CALL_PARTS < DEVICE_PARTS, "a call waits for itself");

enum part_state {
	PART_FREE,
	PART_RUNS,
	PART_HOLDS, /* the stream waits for its end */
	PART_ENDED  /* before the stream was to wait for it */
};

struct island_part {
	/* Of a device's: a fence that does not hold its stream at once. */
	struct stream_fence fence;
	_Atomic int state;
	/* Of a host rank: the part's own stream, and its end */
	dicomm_stream_t queue;
	struct dicomm_request done;
	const struct device *dev; /* NULL: a host rank */
};

/* ---- of a device ---- */

/* island_part_end() may make the stream wait at this moment: whoever comes
 * later lets it go. */
static void let_go(struct stream_fence *fence)
{
	struct island_part *p = (struct island_part *)fence;

	if (atomic_exchange(&p->state, PART_ENDED) != PART_HOLDS)
		return;
	p->dev->work->stream_wait_release(fence->stream_wait);
	atomic_store(&p->state, PART_FREE);
}

static dicomm_result_t hold(struct island_part *p)
{
	const struct accel_work *work = p->dev->work;
	int runs = PART_RUNS;
	struct accel_stream *s = NULL;
	dicomm_result_t status;

	if (atomic_load(&p->state) == PART_ENDED) {
		atomic_store(&p->state, PART_FREE);
		return DICOMM_SUCCESS;
	}
	TRY(work->open(p->dev->index, p->fence.stream, &s));
	streams_block_begin();
	status = work->stream_wait_queue(p->fence.stream_wait, s);
	streams_block_end();
	work->close(s);
	if (status == DICOMM_SUCCESS &&
	    !atomic_compare_exchange_strong(&p->state, &runs, PART_HOLDS)) {
		work->stream_wait_release(p->fence.stream_wait);
		atomic_store(&p->state, PART_FREE);
	}
	return status;
}

static dicomm_result_t mark(struct island_part *p, dicomm_stream_t stream)
{
	const struct accel_work *work = p->dev->work;
	struct accel_stream *s = NULL;
	dicomm_result_t status;

	p->fence.of = p->dev->fences;
	p->fence.stream = stream;
	p->fence.let_go = let_go;
	p->fence.reached = false;
	p->fence.next = NULL;
	TRY(work->open(p->dev->index, stream, &s));
	status = work->event_record(p->fence.event, s);
	work->close(s);
	return status;
}

/* ---- parts ---- */

static dicomm_result_t make(struct island_part *p, const struct device *dev)
{
	p->dev = dev;
	if (!dev)
		return dicomm_host_stream_create(&p->queue);
	TRY(dev->work->event_create(dev->index, &p->fence.event));
	return dev->work->stream_wait_create(dev->index, &p->fence.stream_wait);
}

dicomm_result_t island_parts_open(struct island_parts *parts,
				  struct dicomm_comm *comm)
{
	const struct device *dev = comm->dev;
	size_t n = dev ? DEVICE_PARTS : HOST_PARTS;
	dicomm_result_t status = DICOMM_SUCCESS;

	parts->part = calloc(n, sizeof(*parts->part));
	if (!parts->part)
		return FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
	parts->n = n;
	if (dev)
		TRY(device_streams_unblocked(comm));
	for (size_t i = 0; i < n && status == DICOMM_SUCCESS; i++)
		status = make(&parts->part[i], dev);
	if (dev)
		streams_unblocked_end();
	return status;
}

void island_parts_close(struct island_parts *parts)
{
	for (size_t i = 0; i < parts->n; i++) {
		struct island_part *p = &parts->part[i];

		if (p->queue)
			dicomm_host_stream_destroy(p->queue);
		if (p->fence.stream_wait)
			p->dev->work->stream_wait_destroy(p->fence.stream_wait);
		if (p->fence.event)
			p->dev->work->event_destroy(p->fence.event);
	}
	free(parts->part);
	*parts = (struct island_parts){NULL, 0};
}

static struct island_part *find_free(struct island_parts *parts)
{
	for (size_t i = 0; i < parts->n; i++) {
		if (atomic_load(&parts->part[i].state) != PART_FREE)
			continue;
		atomic_store(&parts->part[i].state, PART_RUNS);
		return &parts->part[i];
	}
	return NULL;
}

/* Those under way end in bounded time. */
static dicomm_result_t take(struct island_parts *parts,
			    struct dicomm_comm *comm, struct island_part **out)
{
	const struct timespec nap = {0, 20000};
	int timeout_ms = atomic_load(&comm->timeout_ms);
	uint64_t begin = clock_ms();

	while (!(*out = find_free(parts))) {
		if (fault_is(comm))
			return fault_report(comm);
		if (timeout_ms > 0 && clock_ms() - begin > (uint64_t)timeout_ms)
			return FAIL(DICOMM_ERR_TIMEOUT,
				    "island: none of %zu parts of calls under "
				    "way on %s has ended for %d ms",
				    parts->n, comm->name, timeout_ms);
		nanosleep(&nap, NULL);
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t queue(struct island_part *p, struct item *items,
			     size_t n, dicomm_stream_t stream)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	for (size_t i = 0; i < n; i++) {
		neighbour_refresh(items[i].comm);
		user_buffer_find(items[i].comm, &items[i].call);
		items[i].stream = p->queue;
		items[i].native = p->dev ? stream : NULL;
	}
	if (p->dev)
		status = mark(p, stream);
	if (status != DICOMM_SUCCESS) {
		for (size_t i = 0; i < n; i++)
			free(items[i].counts);
		return status;
	}
	TRY(stream_submit(items, n, p->dev ? &p->fence : NULL, NULL, false));
	if (!p->dev) {
		request_init(&p->done);
		stream_attach(p->queue, &p->done);
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t island_part_begin(struct island_parts *parts,
				  struct item *items, size_t n,
				  dicomm_stream_t stream,
				  struct island_part **out)
{
	struct island_part *p;
	dicomm_result_t status = take(parts, items[0].comm, &p);

	if (status != DICOMM_SUCCESS) {
		for (size_t i = 0; i < n; i++)
			free(items[i].counts);
		return status;
	}
	TRY(queue(p, items, n, stream));
	*out = p;
	return DICOMM_SUCCESS;
}

dicomm_result_t island_part_end(struct island_part *p)
{
	dicomm_result_t status;

	if (p->dev)
		return hold(p);
	pthread_mutex_lock(&stream_lock);
	driver_await(&p->done, 0);
	pthread_mutex_unlock(&stream_lock);
	status = p->done.status;
	if (status != DICOMM_SUCCESS)
		log_set_last_error(p->done.text);
	atomic_store(&p->state, PART_FREE);
	return status;
}
