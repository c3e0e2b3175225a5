/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory references from and to a rank on a device. */
#include "src/device/device_ref.h"

#include <sched.h>

#include "src/base/clock.h"

/* How long drain() waits for work that was queued before a failure,
 * in nanoseconds. */
#define DRAIN_NS UINT64_C(10000000000)

bool device_ref_in_place(const struct dicomm_comm *comm,
			 const struct peer *peer, int offer, const void *at,
			 struct memory_ref *mem_ref)
{
	*mem_ref = (struct memory_ref){.where.fd = offer - 1,
				       .offset = (uintptr_t)at};
	if (device_ref_in_process(peer))
		return !peer->neighbour->apart || offer;
	if (!peer->has_peer_access || !peer->neighbour->view || !offer)
		return false;
	mem_ref->where.id = ipc_reference(comm->dev->ipc, peer->neighbour->view,
					  offer - 1, at, &mem_ref->offset);
	return mem_ref->where.id;
}

struct memory_ref device_ref_to_stage(const struct device *dev,
				      const struct peer *peer,
				      const struct stage *st)
{
	const uint8_t *from =
		device_ref_in_device(peer) ? dev->exported : dev->memory;

	return (struct memory_ref){.offset =
					   device_ref_in_process(peer)
						   ? (uintptr_t)st->at
						   : (uint64_t)(st->at - from)};
}

bool device_ref_begin(const struct peer *peer)
{
	struct in_process *owner = device_ref_in_process(peer);

	return !owner || in_process_begin(owner);
}

/* Wait until the stream is empty, after work may have been queued without
 * an event. Otherwise the rank whose memory it reads would not know when it
 * is done. */
static void drain(struct device *dev, struct accel_event *event)
{
	uint64_t end = clock_ns() + DRAIN_NS;

	if (dev->work->event_record(event, dev->stream) != DICOMM_SUCCESS)
		return;
	while (dev->work->event_query(event) == DICOMM_AGAIN &&
	       clock_ns() < end)
		sched_yield();
}

void device_ref_end(struct device *dev, const struct peer *peer,
		    struct stage *st, dicomm_result_t status)
{
	struct in_process *owner = device_ref_in_process(peer);

	if (!owner)
		return;
	if (status != DICOMM_SUCCESS)
		drain(dev, st->event);
	st->read.work = dev->work;
	st->read.event = status == DICOMM_SUCCESS ? st->event : NULL;
	in_process_end(owner, &st->read);
}
