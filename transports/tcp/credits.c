/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Credits: a receiver tells a sender how many of its messages it has released.
 * Each message carries a credit for the other direction. Where no message
 * leaves, the credit is sent at once if the sender may be waiting for it, else
 * when there is nothing else to do.
 */
#include "transports/tcp/tcp.h"

/* After so many polls in a row that found nothing, send credits that no sender
 * is known to wait for. A rank that sleeps in wait() sends them before that, if
 * nothing arrives. */
#define IDLE_POLLS 256

void tcp_credits_defer(struct tcp_in *in)
{
	struct tcp_in **head = &in->link->dev->credits_due;

	if (in->credits_due_link)
		return;
	in->credits_due = *head;
	if (*head)
		(*head)->credits_due_link = &in->credits_due;
	in->credits_due_link = head;
	*head = in;
}

void tcp_credits_cancel(struct tcp_in *in)
{
	in->urgent = false;
	if (!in->credits_due_link)
		return;
	*in->credits_due_link = in->credits_due;
	if (in->credits_due)
		in->credits_due->credits_due_link = in->credits_due_link;
	in->credits_due_link = NULL;
	in->credits_due = NULL;
}

void tcp_credits_send(struct tcp_in *in)
{
	struct tcp_link *link = in->link;
	struct tcp_head head = {.what = TCP_FRAME_CREDIT,
				.channel_class = in->channel_class,
				.consumed = in->consumed};

	/* A peer that has closed needs no credits; one without a connection
	 * cannot get any. */
	if (!link->open || link->peer_closed || link->close_sent[0] ||
	    atomic_load_explicit(&link->status, memory_order_relaxed)) {
		tcp_credits_cancel(in);
		return;
	}
	if (tcp_send_control(link->conn[0], &head, NULL, 0) != DICOMM_SUCCESS) {
		in->urgent = link->dev->credits_blocked = true;
		tcp_credits_defer(in);
		return;
	}
	in->granted = in->consumed;
	tcp_credits_cancel(in);
}

static void send_due_credits(struct tp_device *dev, bool all)
{
	struct tcp_in *next;

	dev->credits_blocked = false;
	for (struct tcp_in *in = dev->credits_due; in; in = next) {
		next = in->credits_due;
		if (all || in->urgent)
			tcp_credits_send(in);
	}
}

void tcp_credits_send_all(struct tp_device *dev)
{
	if (dev->credits_due)
		send_due_credits(dev, true);
}

void tcp_credits_progress(struct tp_device *dev, bool moved)
{
	if (__builtin_expect(dev->credits_blocked, 0))
		send_due_credits(dev, false);
	if (moved)
		dev->idle = 0;
	else if (dev->credits_due && ++dev->idle >= IDLE_POLLS) {
		send_due_credits(dev, true);
		dev->idle = 0;
	}
}
