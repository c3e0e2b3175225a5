/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleeping until a NIC has something. Events of completion queues cost an
 * interrupt and system calls, so they are asked for only by who has looked long
 * enough, and acknowledged many at a time.
 */
#include "transports/verbs/rest.h"

#include <poll.h>

#include "src/base/log.h"
#include "transports/verbs/credits.h"
#include "transports/verbs/nic.h"
#include "transports/verbs/poll.h"
#include "transports/verbs/rail.h"
#include "transports/verbs/verbs.h"

#define EVENTS_PER_ACK 64

dicomm_result_t verbs_rest_open(struct verbs_rail *rail)
{
	rail->channel = ibv_create_comp_channel(rail->nic->context);
	if (rail->channel)
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

void verbs_rest_end(struct verbs_rail *rail)
{
	if (rail->cq)
		acknowledge(rail);
}

void verbs_rest_close(struct verbs_rail *rail)
{
	if (rail->channel)
		ibv_destroy_comp_channel(rail->channel);
}

static void take_event(struct verbs_rail *rail)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(rail->channel, &cq, &context))
		return;
	if (++rail->unacknowledged == EVENTS_PER_ACK)
		acknowledge(rail);
}

void verbs_rest(struct tp_device *dev, unsigned us)
{
	struct timespec t = {.tv_sec = us / 1000000,
			     .tv_nsec = us % 1000000 * 1000L};
	struct pollfd fds[VERBS_RAILS];

	/* Nobody will poll until it is idle. */
	verbs_poll_all(dev);
	if (dev->untold &&
	    !atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		verbs_untold_tell(dev);
	for (uint32_t i = 0; i < dev->rails; i++) {
		const struct verbs_rail *rail = &dev->rail[i];

		/* One that has gone is ready for ever. */
		fds[i] = (struct pollfd){.fd = atomic_load(&rail->nic->gone)
						       ? -1
						       : rail->channel->fd,
					 .events = POLLIN};
		/* A NIC that refuses has failed; that shows elsewhere. */
		ibv_req_notify_cq(rail->cq, 0);
	}
	/* Of what came before, and of credits, there is no event. */
	if (verbs_poll(dev) || verbs_credits_take_all(dev) ||
	    ppoll(fds, dev->rails, &t, NULL) <= 0)
		return;
	for (uint32_t i = 0; i < dev->rails; i++)
		if (fds[i].revents & POLLIN)
			take_event(&dev->rail[i]);
}
