/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of a completion queue. They are acknowledged many at a time, since
 * each acknowledgement takes a lock. */
#include "transports/verbs/channel/cq_events.h"

#include "src/base/log.h"
#include "transports/verbs/channel/device.h"

#define EVENTS_PER_ACK 64

dicomm_result_t verbs_cq_events_open(struct verbs_rail *rail)
{
	rail->comp_channel = ibv_create_comp_channel(rail->nic->context);
	if (rail->comp_channel)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_SYSTEM, "verbs %s: completion channel: %m",
		    rail->nic->name);
}

static void acknowledge(struct verbs_rail *rail)
{
	if (rail->unacknowledged)
		ibv_ack_cq_events(rail->cq, rail->unacknowledged);
	rail->unacknowledged = 0;
}

void verbs_cq_events_ack(struct verbs_rail *rail)
{
	if (rail->cq)
		acknowledge(rail);
}

void verbs_cq_events_close(struct verbs_rail *rail)
{
	if (rail->comp_channel)
		ibv_destroy_comp_channel(rail->comp_channel);
}

void verbs_cq_event_take(struct verbs_rail *rail)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(rail->comp_channel, &cq, &context))
		return;
	if (++rail->unacknowledged == EVENTS_PER_ACK)
		acknowledge(rail);
}
