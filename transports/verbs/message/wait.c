/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeps until a NIC reports something. An event of a completion queue costs an
 * interrupt and system calls. So a rank asks for events only when it has polled
 * long enough, and acknowledges many at a time. */
#include "transports/verbs/message/wait.h"

#include <poll.h>

#include "transports/verbs/channel/cq_events.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/message/credits.h"
#include "transports/verbs/message/poll.h"
#include "transports/verbs/nic/gid.h"

void verbs_wait(struct tp_device *dev, unsigned us)
{
	struct timespec t = {.tv_sec = us / 1000000,
			     .tv_nsec = us % 1000000 * 1000L};
	struct pollfd fds[VERBS_RAILS];

	/* The next poll after the sleep does everything. */
	verbs_poll_all(dev);
	if (dev->credits_due &&
	    !atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		verbs_credits_send_all(dev);
	for (uint32_t i = 0; i < dev->rails; i++) {
		const struct verbs_rail *rail = &dev->rail[i];

		/* The descriptor of a removed device is always readable. */
		fds[i] = (struct pollfd){.fd = atomic_load(&rail->nic->removed)
						       ? -1
						       : rail->comp_channel->fd,
					 .events = POLLIN};
		/* An error here means that the NIC has failed, which other
		 * calls report. */
		ibv_req_notify_cq(rail->cq, 0);
	}
	/* There is no event for what arrived before the request for events, nor
	 * for credits. So look once more. */
	if (verbs_poll(dev) || verbs_credits_scan_all(dev) ||
	    ppoll(fds, dev->rails, &t, NULL) <= 0)
		return;
	for (uint32_t i = 0; i < dev->rails; i++)
		if (fds[i].revents & POLLIN)
			verbs_cq_event_take(&dev->rail[i]);
}
