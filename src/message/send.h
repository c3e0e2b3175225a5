/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends bytes to a peer: in one slot, in several, or as a reference to their
 * memory. This module alone decides between these. The thread of the data path
 * calls these functions. If one returns DICOMM_AGAIN, poll, then retry.
 */
#ifndef DICOMM_MESSAGE_SEND_H
#define DICOMM_MESSAGE_SEND_H

#include "src/message/channel.h"

struct memory_ref;

/* Messages that are put in one turn */
#define MESSAGE_BUDGET 64

/* Returns true if message seq may be put, since the peer has a free slot. The
 * peer writes `released` for each message, so loading it costs a cache miss. It
 * is loaded only when the known credits are used up. */
static inline bool message_has_credit(const struct peer *peer,
				      struct channel *channel, uint64_t seq)
{
	if (__builtin_expect(seq <= channel->out_credit, 1))
		return true;
	channel->out_credit = atomic_load_explicit(channel->out.released,
						   memory_order_acquire) +
			      peer->limits.slots;
	return seq <= channel->out_credit;
}

/* What puts messages to a peer, kept at hand where each load counts */
struct message_target {
	dicomm_result_t (*put)(struct tp_peer *peer, enum tp_class c,
			       uint64_t seq, uint32_t signature,
			       enum tp_kind kind, const void *body,
			       uint64_t len);
	struct tp_peer *tp;
};

static inline struct message_target message_target_of(const struct peer *peer)
{
	return (struct message_target){peer->transport->put, peer->tp};
}

/* Puts bytes that fit a slot as message seq; returns as the put() of a
 * transport. */
static inline dicomm_result_t message_put_seq(const struct message_target *to,
					      enum tp_class c, uint64_t seq,
					      uint32_t signature,
					      const void *body, uint64_t len)
{
	return to->put(to->tp, c, seq, signature, TP_DATA, body, len);
}

/* Puts message out_base + 1, for which there is a credit. If `body` must stay
 * unchanged until the peer has released the message, *until becomes the number
 * of the message; `until` may be NULL. */
static inline dicomm_result_t
message_put_next(struct peer *peer, enum tp_class c, uint32_t signature,
		 enum tp_kind kind, const void *body, uint64_t len,
		 uint64_t *until)
{
	struct channel *channel = &peer->channel[c];
	uint64_t seq = channel->out_base + 1;
	dicomm_result_t status = peer->transport->put(
		peer->tp, c, seq, signature, kind, body, len);

	if (__builtin_expect(status != DICOMM_SUCCESS, 0)) {
		if (status != DICOMM_IN_PROGRESS)
			return status;
		if (until)
			*until = seq;
	}
	channel->out_base = channel->out_last = seq;
	return DICOMM_SUCCESS;
}

/* Connects the channel if needed, gets a credit, then does the same. AGAIN: not
 * connected yet, or no credit. */
dicomm_result_t message_put(struct peer *peer, enum tp_class c,
			    uint32_t signature, enum tp_kind kind,
			    const void *body, uint64_t len, uint64_t *until);

/* Returns true if one reference to this many bytes is better than copies in
 * slots. It is not if the network sends them as one message. */
static inline bool message_prefers_ref(const struct peer *peer, uint64_t bytes,
				       uint64_t threshold)
{
	return bytes >= threshold && !peer->limits.prefers_eager &&
	       (peer->transport->intra_node ||
		bytes > peer->limits.eager_bytes);
}

/* Returns true if the receiver would rather have a reference than a copy of
 * these bytes, which it will treat as `want` says. */
bool message_may_refer(const struct peer *peer, const void *from,
		       uint64_t bytes, enum tp_want want);

/* Puts all of the bytes as one reference to memory that the peer reads itself.
 * The reference stays where it is until it is released. AGAIN: not put. */
dicomm_result_t message_send_ref(struct message_send *s,
				 const struct memory_ref *mem_ref);

/* Puts more of the bytes. Returns DICOMM_SUCCESS when all have been put; they
 * may still be in use, see message_send_released(). */
dicomm_result_t message_send_turn(struct message_send *s, bool *moved);

/* Returns true if the memory of the bytes that were put is free again. */
static inline bool message_send_released(const struct message_send *s)
{
	return !s->until ||
	       message_released(&s->peer->channel[s->class], s->until);
}

#endif
