/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "src/accel/gpu/device.h"
#include "src/accel/ze/order.h"
#include "src/accel/ze/stream_wait.h"
#include "src/base/log.h"

struct accel_stream_wait {
	struct ze_holds holds;
};

/* queued and not released, of all devices */
static _Atomic int pending;

/* Choose the first queue on which the library's lists are not held up by those
 * of users. *found is the result for the last queue that was tried. */
static int find_ours(int index, enum ze_apart *found)
{
	struct ze_place *place = &ze_places[index];
	int error = ZE_SUCCESS;

	*found = ZE_TOGETHER;
	for (uint32_t q = 0;
	     *found == ZE_TOGETHER && !error && (q < place->queues || !q);
	     q++) {
		place->ours = q;
		error = ze_list_probe(index, q, ZE_PRIORITY_HIGH, found);
	}
	if (!error)
		log_info("ze:%d: the library uses queue %u of %u%s", index,
			 place->ours, place->queues,
			 *found == ZE_BUSY
				 ? ": the device is busy, so it is not known "
				   "whether a list that waits holds up others"
				 : "");
	return error;
}

static int warn_of_users(int index)
{
	enum ze_apart found = ZE_APART;
	int error = ze_list_probe(index, 0, ZE_PRIORITY_NORMAL, &found);

	if (!error && found == ZE_TOGETHER)
		log_warn("ze:%d: command lists of one queue hold each other "
			 "up: give each rank of a process a queue of its own, "
			 "and none queue %u, which is for the library",
			 index, ze_places[index].ours);
	return error;
}

/* Probes each device only once; later calls give the same answer. */
dicomm_result_t ze_stream_wait_probe(struct gpu_driver *gpu, int index,
				     bool *waits)
{
	static struct {
		bool done, together;
	} probed[ZE_DEVICES];
	enum ze_apart found = ZE_BUSY;
	int error;

	*waits = true;
	if (!probed[index].done) {
		error = find_ours(index, &found);
		if (!error && found == ZE_APART)
			error = warn_of_users(index);
		if (error)
			return gpu_device_failed(gpu, error, index,
						 "command lists");
		probed[index].done = true;
		probed[index].together = found == ZE_TOGETHER;
	}
	if (probed[index].together)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "ze:%d: a command list that waits for the host "
			    "holds up all others of the device, which its "
			    "driver runs on one queue",
			    index);
	return DICOMM_SUCCESS;
}

dicomm_result_t ze_stream_wait_create(struct gpu_driver *gpu, int index,
				      struct accel_stream_wait **out)
{
	struct accel_stream_wait *g;

	TRY(gpu_device_check(gpu, index));
	g = calloc(1, sizeof(*g));
	if (!g)
		return gpu_device_no_memory(gpu, index);
	g->holds.last = &g->holds.first;
	*out = g;
	return DICOMM_SUCCESS;
}

void ze_stream_wait_release(struct accel_stream_wait *g)
{
	bool was = ze_hold_end(&g->holds);

	assert(was);
	if (was)
		atomic_fetch_sub(&pending, 1);
}

void ze_stream_wait_destroy(struct accel_stream_wait *g)
{
	if (!g)
		return;
	while (ze_hold_end(&g->holds))
		atomic_fetch_sub(&pending, 1);
	free(g);
}

dicomm_result_t ze_stream_wait_queue(struct accel_stream_wait *g,
				     struct accel_stream *s)
{
	int error;

	TRY(gpu_stream_refuse_capture(s));
	error = ze_hold_add(&g->holds, s->handle);
	if (error)
		return gpu_device_failed(s->gpu, error, s->index,
					 "to wait for the host");
	atomic_fetch_add(&pending, 1);
	return DICOMM_SUCCESS;
}

bool ze_stream_wait_held(const struct gpu_driver *gpu)
{
	(void)gpu;
	return atomic_load(&pending) > 0;
}
