/* SPDX-License-Identifier: BSD-3-Clause */
/* Credits: what a receiver is done with, and when its sender is told so. */
#include "transports/verbs/verbs.h"

/* Polls in a row that find nothing, before credits are told that nobody need
 * wait for. */
#define IDLE_POLLS 1024

void verbs_untold_add(struct verbs_lane *lane)
{
	struct verbs_lane **head = &lane->dev->untold;

	if (lane->untold_link)
		return;
	lane->untold = *head;
	if (*head)
		(*head)->untold_link = &lane->untold;
	lane->untold_link = head;
	*head = lane;
}

void verbs_untold_remove(struct verbs_lane *lane)
{
	if (!lane->untold_link)
		return;
	*lane->untold_link = lane->untold;
	if (lane->untold)
		lane->untold->untold_link = lane->untold_link;
	lane->untold_link = NULL;
}

/* The strand that credits go over: always the same, unless it is lost. NULL:
 * not now. What was told over one that is may still land over there. */
static struct verbs_strand *strand_to_tell(struct verbs_lane *lane)
{
	struct verbs_strand *s =
		lane->strands == 1 ? &lane->strand[0] : verbs_strand_good(lane);

	return s && !lane->unfenced && verbs_has_room(s, 1) ? s : NULL;
}

/* Write the credits to the sender; if that cannot be, later. */
static dicomm_result_t tell(struct verbs_lane *lane)
{
	struct verbs_strand *s = strand_to_tell(lane);
	uint64_t word = lane->freed;
	struct ibv_sge sge = {.addr = (uintptr_t)&word, .length = sizeof(word)};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_INLINE,
		.wr.rdma = {.remote_addr = lane->remote_addr},
	};

	if (!s) {
		verbs_untold_add(lane);
		return DICOMM_SUCCESS;
	}
	verbs_untold_remove(lane);
	/* Who has left needs no credits. */
	if (lane->why ||
	    atomic_load_explicit(&lane->left, memory_order_relaxed))
		return DICOMM_SUCCESS;
	wr.wr_id = verbs_request_id(s, 0, 0, sizeof(word));
	wr.send_flags |= verbs_signal_now(s, 1, false);
	wr.wr.rdma.rkey = s->remote_key;
	lane->told = lane->freed;
	lane->urgent = false;
	return verbs_post(s, &wr, 1);
}

dicomm_result_t verbs_release(struct tp_peer *peer, enum tp_class c,
			      uint64_t seq)
{
	struct verbs_lane *lane = peer->in[c];

	if (!lane ||
	    atomic_load_explicit(&peer->dev->aborted, memory_order_relaxed))
		return DICOMM_SUCCESS;
	lane->freed = seq;
	if (seq - lane->told >= peer->dev->config.slots / 2)
		return tell(lane);
	if (seq != lane->told)
		verbs_untold_add(lane);
	return DICOMM_SUCCESS;
}

void verbs_untold_tell(struct tp_device *dev, bool all)
{
	struct verbs_lane *next;

	for (struct verbs_lane *l = dev->untold; l; l = next) {
		next = l->untold;
		if ((all || verbs_must_tell(l)) && strand_to_tell(l))
			tell(l);
	}
}

void verbs_flush(struct tp_device *dev)
{
	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return;
	verbs_untold_tell(dev, true);
}

/* Nobody told whom they wait for: now there is time. */
void verbs_untold_idle(struct tp_device *dev)
{
	bool all = ++dev->idle >= IDLE_POLLS;

	verbs_untold_tell(dev, all);
	if (all)
		dev->idle = 0;
}
