/* SPDX-License-Identifier: BSD-3-Clause */
/* Credits: a receiver tells a sender how many of its messages it has released.
 * It does so at once if the sender may be waiting for that, else when there is
 * nothing else to do. A credit that could not be sent is kept in a list of the
 * device, and tried again. */
#include "transports/ucx/credits.h"

#include "src/base/log.h"
#include "transports/ucx/device.h"
#include "transports/ucx/endpoint.h"

/* With so many messages queued for the sender, wait: a later credit says
 * more. */
#define QUEUED_MOST (UCX_BOUNCES + 8)
/* After so many polls in a row that found nothing, send credits that no sender
 * is known to wait for. */
#define IDLE_POLLS 256

void ucx_credits_defer(struct ucx_in *in)
{
	struct ucx_in **head = &in->endpoint->dev->credits_due;

	if (in->credits_due_link)
		return;
	in->credits_due = *head;
	if (*head)
		(*head)->credits_due_link = &in->credits_due;
	in->credits_due_link = head;
	*head = in;
}

void ucx_credits_cancel(struct ucx_in *in)
{
	if (!in->credits_due_link)
		return;
	*in->credits_due_link = in->credits_due;
	if (in->credits_due)
		in->credits_due->credits_due_link = in->credits_due_link;
	in->credits_due_link = NULL;
	in->credits_due = NULL;
}

void ucx_credits_send(struct ucx_in *in)
{
	struct ucx_endpoint *endpoint = in->endpoint;
	struct ucx_head head = {.channel_class = in->channel_class,
				.seq = in->consumed};

	/* A peer that has closed needs no credits; one without an endpoint
	 * cannot get any. */
	if (!endpoint->ep || endpoint->peer_closed || endpoint->close_sent ||
	    atomic_load_explicit(&endpoint->status, memory_order_relaxed)) {
		ucx_credits_cancel(in);
		return;
	}
	if (endpoint->queued >= QUEUED_MOST ||
	    ucx_endpoint_send(endpoint, UCX_CREDIT, &head, NULL, 0) ==
		    DICOMM_AGAIN) {
		in->urgent = endpoint->dev->blocked = true;
		ucx_credits_defer(in);
		return;
	}
	in->granted = in->consumed;
	in->urgent = false;
	ucx_credits_cancel(in);
}

static void send_due_credits(struct tp_device *dev, bool all)
{
	struct ucx_in *next;

	for (struct ucx_in *in = dev->credits_due; in; in = next) {
		next = in->credits_due;
		if (all || in->urgent)
			ucx_credits_send(in);
	}
}

void ucx_credits_send_all(struct tp_device *dev)
{
	send_due_credits(dev, true);
}

static void on_idle(struct tp_device *dev)
{
	bool all = ++dev->idle >= IDLE_POLLS;

	send_due_credits(dev, all);
	if (all)
		dev->idle = 0;
}

void ucx_credits_progress(struct tp_device *dev, bool moved)
{
	if (__builtin_expect(dev->blocked, 0)) {
		dev->blocked = false;
		send_due_credits(dev, false);
	}
	if (moved)
		dev->idle = 0;
	else if (dev->credits_due)
		on_idle(dev);
}
