/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telling senders how much of what they sent has been released: at once where
 * one may wait for it, else when there is nothing else to do. What could not be
 * told is in a list of the device, and tried again.
 */
#include "transports/ucx/ucx.h"

#include "src/base/log.h"

/* Where so many wait, a credit does not join them: the next one says more. */
#define QUEUED_MOST (UCX_STAGES + 8)
/* Polls in a row that find nothing, before credits are told that nobody need
 * wait for. */
#define IDLE_POLLS 256

void ucx_credits_owe(struct ucx_in *in)
{
	struct ucx_in **head = &in->route->dev->untold;

	if (in->untold_link)
		return;
	in->untold = *head;
	if (*head)
		(*head)->untold_link = &in->untold;
	in->untold_link = head;
	*head = in;
}

void ucx_credits_forget(struct ucx_in *in)
{
	if (!in->untold_link)
		return;
	*in->untold_link = in->untold;
	if (in->untold)
		in->untold->untold_link = in->untold_link;
	in->untold_link = NULL;
	in->untold = NULL;
}

void ucx_credits_tell(struct ucx_in *in)
{
	struct ucx_route *route = in->route;
	struct ucx_head head = {.lane_class = in->lane_class, .seq = in->freed};

	/* Who has left needs no credits, and who is not there will not send. */
	if (!route->ep || route->left || route->bye ||
	    atomic_load_explicit(&route->status, memory_order_relaxed)) {
		ucx_credits_forget(in);
		return;
	}
	if (route->queued >= QUEUED_MOST ||
	    ucx_route_send(route, UCX_CREDIT, &head, NULL, 0) == DICOMM_AGAIN) {
		in->urgent = route->dev->blocked = true;
		ucx_credits_owe(in);
		return;
	}
	in->told = in->freed;
	in->urgent = false;
	ucx_credits_forget(in);
}

static void tell_some(struct tp_device *dev, bool all)
{
	struct ucx_in *next;

	for (struct ucx_in *in = dev->untold; in; in = next) {
		next = in->untold;
		if (all || in->urgent)
			ucx_credits_tell(in);
	}
}

void ucx_credits_tell_all(struct tp_device *dev)
{
	tell_some(dev, true);
}

static void on_idle(struct tp_device *dev)
{
	bool all = ++dev->idle >= IDLE_POLLS;

	tell_some(dev, all);
	if (all)
		dev->idle = 0;
}

void ucx_credits_turn(struct tp_device *dev, bool moved)
{
	if (__builtin_expect(dev->blocked, 0)) {
		dev->blocked = false;
		tell_some(dev, false);
	}
	if (moved)
		dev->idle = 0;
	else if (dev->untold)
		on_idle(dev);
}
