/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gates of gpu.h, which includes this, on Level Zero: each closing is an
 * event that only the host makes happen.
 *
 * Drivers run many lists on few queues. Where a list that waits holds up the
 * others of its queue, ours have to be on another one, and lists of users that
 * follow each other by way of us, too.
 */
#ifndef DICOMM_ACCEL_ZE_GATE_H
#define DICOMM_ACCEL_ZE_GATE_H

#include "src/accel/ze_order.h"

struct accel_gate {
	int index;
	struct ze_holds holds;
};

static _Atomic int closed_gates; /* closings that no opening has followed */

/* The first queue for ours that is not held up by lists of users, and what was
 * found of the last one that was looked at. */
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
		log_info("ze:%d: lists of ours are on queue %u of %u%s", index,
			 place->ours, place->queues,
			 *found == ZE_BUSY
				 ? ": the device is busy, whether one that "
				   "waits holds up others is not known"
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

/* Once for each device: what it says, it says again. */
static dicomm_result_t gate_probe(int index, bool *waits)
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
			return failed(error, index, "command lists");
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

static dicomm_result_t gpu_gate_create(int index, struct accel_gate **out)
{
	struct accel_gate *g;

	TRY(check_index(index));
	g = calloc(1, sizeof(*g));
	if (!g)
		return no_memory(index);
	g->index = index;
	g->holds.last = &g->holds.first;
	*out = g;
	return DICOMM_SUCCESS;
}

static void gpu_gate_open(struct accel_gate *g)
{
	bool was = ze_hold_end(&g->holds);

	assert(was);
	if (was)
		atomic_fetch_sub(&closed_gates, 1);
}

static void gpu_gate_destroy(struct accel_gate *g)
{
	if (!g)
		return;
	while (ze_hold_end(&g->holds))
		atomic_fetch_sub(&closed_gates, 1);
	free(g);
}

static dicomm_result_t gpu_gate_close(struct accel_gate *g,
				      struct accel_stream *s)
{
	int error;

	TRY(refuse_capture(s));
	error = ze_hold_add(&g->holds, s->handle);
	if (error)
		return failed(error, s->index, "to wait for the host");
	atomic_fetch_add(&closed_gates, 1);
	return DICOMM_SUCCESS;
}

static bool gpu_held(int index)
{
	(void)index;
	return atomic_load(&closed_gates) > 0;
}

#endif
