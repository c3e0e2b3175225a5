/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telling senders how much of what they sent has been released. Each message
 * says it of the other direction; where none leaves, it is told at once where
 * the sender may wait for it, else when there is nothing else to do.
 */
#include "transports/tcp/tcp.h"

/* Polls in a row that find nothing, before credits are told that nobody need
 * wait for; who rests tells them before that, if nothing comes. */
#define IDLE_POLLS 256

void tcp_credits_owe(struct tcp_in *in)
{
	struct tcp_in **head = &in->link->dev->untold;

	if (in->untold_at)
		return;
	in->untold = *head;
	if (*head)
		(*head)->untold_at = &in->untold;
	in->untold_at = head;
	*head = in;
}

void tcp_credits_forget(struct tcp_in *in)
{
	in->urgent = false;
	if (!in->untold_at)
		return;
	*in->untold_at = in->untold;
	if (in->untold)
		in->untold->untold_at = in->untold_at;
	in->untold_at = NULL;
	in->untold = NULL;
}

void tcp_credits_tell(struct tcp_in *in)
{
	struct tcp_link *link = in->link;
	struct tcp_head head = {.what = TCP_CREDIT,
				.lane_class = in->lane_class,
				.extra = in->freed};

	/* Who has left needs no credits, and who is not there will not send. */
	if (!link->open || link->left || link->said[0] ||
	    atomic_load_explicit(&link->status, memory_order_relaxed)) {
		tcp_credits_forget(in);
		return;
	}
	if (tcp_send_note(link->conn[0], &head, NULL, 0) != DICOMM_SUCCESS) {
		in->urgent = link->dev->urgent = true;
		tcp_credits_owe(in);
		return;
	}
	in->told = in->freed;
	tcp_credits_forget(in);
}

uint64_t tcp_credits_with(struct tp_device *dev, uint32_t rank, uint32_t c)
{
	struct tcp_in *in = tcp_in_of(dev, rank, c);

	return in ? in->freed : 0;
}

static void tell_some(struct tp_device *dev, bool all)
{
	struct tcp_in *next;

	dev->urgent = false;
	for (struct tcp_in *in = dev->untold; in; in = next) {
		next = in->untold;
		if (all || in->urgent)
			tcp_credits_tell(in);
	}
}

void tcp_credits_tell_all(struct tp_device *dev)
{
	if (dev->untold)
		tell_some(dev, true);
}

void tcp_credits_turn(struct tp_device *dev, bool moved)
{
	if (__builtin_expect(dev->urgent, 0))
		tell_some(dev, false);
	if (moved)
		dev->idle = 0;
	else if (dev->untold && ++dev->idle >= IDLE_POLLS) {
		tell_some(dev, true);
		dev->idle = 0;
	}
}
