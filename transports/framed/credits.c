/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Credits: a receiver tells a sender how many of its messages it has released.
 * It does so at once if the sender may be waiting for that, else when there is
 * nothing else to do, or with a message that goes there. A credit that could
 * not be sent is kept in a list of the device, and tried again.
 */
#include "src/base/log.h"
#include "transports/framed/framed.h"

/* After so many polls in a row that found nothing, send credits that no sender
 * is known to wait for. */
#define IDLE_POLLS 256
/* No message has a higher number, so slots can be added to each. */
#define SEQ_MOST (UINT64_MAX / 2)

bool framed_credits_receive(struct framed *f, uint32_t rank, uint32_t c,
			    uint64_t released)
{
	struct framed_out *out = framed_out_of(f, rank, c);

	if (released > SEQ_MOST)
		return false;
	if (out && released > atomic_load_explicit(&out->released,
						   memory_order_relaxed))
		atomic_store_explicit(&out->released, released,
				      memory_order_release);
	return true;
}

void framed_credits_defer(struct framed_in *in)
{
	struct framed_in **head = &in->framed->credits_due;

	if (in->credits_due_link)
		return;
	in->credits_due = *head;
	if (*head)
		(*head)->credits_due_link = &in->credits_due;
	in->credits_due_link = head;
	*head = in;
}

void framed_credits_cancel(struct framed_in *in)
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

void framed_credits_sent(struct framed_in *in)
{
	in->granted = in->consumed;
	framed_credits_cancel(in);
}

void framed_credits_send(struct framed_in *in)
{
	dicomm_result_t status = in->framed->ops->send_credit(in);

	if (status == DICOMM_SUCCESS) {
		framed_credits_sent(in);
	} else if (status == DICOMM_AGAIN) {
		in->urgent = in->framed->credits_blocked = true;
		framed_credits_defer(in);
	} else {
		framed_credits_cancel(in);
	}
}

static void send_due_credits(struct framed *f, bool all)
{
	struct framed_in *next;

	f->credits_blocked = false;
	for (struct framed_in *in = f->credits_due; in; in = next) {
		next = in->credits_due;
		if (all || in->urgent)
			framed_credits_send(in);
	}
}

void framed_credits_send_all(struct framed *f)
{
	if (f->credits_due)
		send_due_credits(f, true);
}

static void on_idle(struct framed *f)
{
	bool all = ++f->idle >= IDLE_POLLS;

	send_due_credits(f, all);
	if (all)
		f->idle = 0;
}

void framed_credits_progress(struct framed *f, bool moved)
{
	if (__builtin_expect(f->credits_blocked, 0))
		send_due_credits(f, false);
	if (moved)
		f->idle = 0;
	else if (f->credits_due)
		on_idle(f);
}
