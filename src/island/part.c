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
/* What is beside the collectives of a group has a part for each stream. */
#define DEVICE_PARTS (DEVICE_CALLS + ISLAND_LEAD + 1)

_Static_assert(ISLAND_CALL_PARTS < DEVICE_PARTS, "a call waits for itself");

enum part_state {
	PART_FREE,
	PART_RUNS,
	PART_HOLDS, /* the stream waits for its end */
	PART_LEFT,  /* the stream could not be made to wait for it */
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
	/* Of the same calls, on another stream */
	struct island_part *next;
};

/* ---- of a device ---- */

/* island_part_end() may make the stream wait at this moment: whoever comes
 * later lets it go. */
static void let_go(struct stream_fence *fence)
{
	struct island_part *p = (struct island_part *)fence;
	int state = atomic_exchange(&p->state, PART_ENDED);

	if (state == PART_HOLDS)
		p->dev->work->stream_wait_release(fence->stream_wait);
	if (state == PART_HOLDS || state == PART_LEFT)
		atomic_store(&p->state, PART_FREE);
}

static dicomm_result_t queue_wait(struct island_part *p)
{
	const struct accel_work *work = p->dev->work;
	struct accel_stream *s = NULL;
	dicomm_result_t status;

	TRY(work->open(p->dev->index, p->fence.stream, &s));
	streams_block_begin();
	status = work->stream_wait_queue(p->fence.stream_wait, s);
	streams_block_end();
	work->close(s);
	return status;
}

static dicomm_result_t hold(struct island_part *p)
{
	int runs = PART_RUNS;
	dicomm_result_t status;
	bool waits;

	if (atomic_load(&p->state) == PART_ENDED) {
		atomic_store(&p->state, PART_FREE);
		return DICOMM_SUCCESS;
	}
	status = queue_wait(p);
	waits = status == DICOMM_SUCCESS;
	if (atomic_compare_exchange_strong(&p->state, &runs,
					   waits ? PART_HOLDS : PART_LEFT))
		return status;
	if (waits)
		p->dev->work->stream_wait_release(p->fence.stream_wait);
	atomic_store(&p->state, PART_FREE);
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

dicomm_result_t island_part_take(struct island_parts *parts,
				 struct dicomm_comm *comm,
				 dicomm_stream_t stream,
				 struct island_part **list)
{
	struct island_part *p;
	dicomm_result_t status;
	int n = 0;

	for (p = *list; p; p = p->next) {
		if (p->dev && stream_fence_is_of(&p->fence, comm, stream))
			return DICOMM_SUCCESS;
		n += p->dev && p->dev == comm->dev;
	}
	/* The list would wait for itself. */
	if (n >= DEVICE_CALLS)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "group: its calls on %s use more than %d streams "
			    "of %s",
			    comm->name, DEVICE_CALLS, comm->device);
	TRY(take(parts, comm, &p));
	status = p->dev ? mark(p, stream) : DICOMM_SUCCESS;
	if (status != DICOMM_SUCCESS) {
		atomic_store(&p->state, PART_FREE);
		return status;
	}
	p->next = *list;
	*list = p;
	return DICOMM_SUCCESS;
}

/* On failure, the fences have been let go. */
static dicomm_result_t submit(struct island_part *list, struct item *items,
			      size_t n)
{
	struct stream_fence *fences = NULL;

	for (size_t i = 0; i < n; i++) {
		neighbour_refresh(items[i].comm);
		user_buffer_find(items[i].comm, &items[i].call);
	}
	for (struct island_part *p = list; p; p = p->next) {
		if (!p->dev)
			continue;
		p->fence.next = fences;
		fences = &p->fence;
	}
	return stream_submit(items, n, fences, NULL, false);
}

static void forget_all(struct island_part *list)
{
	for (struct island_part *p = list; p; p = p->next)
		atomic_store(&p->state, PART_FREE);
}

dicomm_result_t island_part_submit(struct island_part *list, struct item *items,
				   size_t n, dicomm_result_t taken)
{
	dicomm_result_t status = taken;

	for (size_t i = 0; i < n && taken != DICOMM_SUCCESS; i++)
		free(items[i].counts);
	for (size_t i = 0; i < n && list && !list->dev; i++)
		if (!items[i].stream)
			items[i].stream = list->queue;
	if (status == DICOMM_SUCCESS)
		status = submit(list, items, n);
	if (status != DICOMM_SUCCESS) {
		forget_all(list);
		return status;
	}
	if (list && !list->dev) {
		request_init(&list->done);
		stream_attach(list->queue, &list->done);
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t island_part_begin(struct island_parts *parts,
				  struct item *items, size_t n,
				  dicomm_stream_t stream,
				  struct island_part **out)
{
	struct island_part *list = NULL;
	dicomm_result_t status;

	for (size_t i = 0; i < n; i++)
		items[i].native = items[i].comm->dev ? stream : NULL;
	status = island_part_take(parts, items[0].comm, stream, &list);
	TRY(island_part_submit(list, items, n, status));
	*out = list;
	return DICOMM_SUCCESS;
}

static dicomm_result_t end(struct island_part *p)
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

dicomm_result_t island_part_end(struct island_part *list)
{
	dicomm_result_t status = DICOMM_SUCCESS, ended;
	struct island_part *next;

	for (struct island_part *p = list; p; p = next) {
		/* Another thread may take it once it has ended. */
		next = p->next;
		ended = end(p);
		if (status == DICOMM_SUCCESS)
			status = ended;
	}
	return status;
}
