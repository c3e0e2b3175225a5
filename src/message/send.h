/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes from here to a peer: in one slot, in several, or as a reference to
 * where they are. Only here that is decided. The thread of the data path calls
 * these functions. If one returns DICOMM_AGAIN, poll, then retry.
 */
#ifndef DICOMM_MESSAGE_SEND_H
#define DICOMM_MESSAGE_SEND_H

#include "src/message/channel.h"

/* Messages that are put in one turn */
#define MESSAGE_BUDGET 64

/* Returns true if message seq may be put, since the peer has a free slot. The
 * peer writes how far it has released whenever it takes a message, so reading
 * that costs a cache miss: it is read when the known credits are used up. */
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

/* Puts message out_base + 1, for which there is a credit. If `body` must not
 * change before the peer has released the message, *until becomes its number;
 * `until` may be NULL. */
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

/* The same, after it has connected the channel and has got a credit. */
dicomm_result_t message_put(struct peer *peer, enum tp_class c,
			    uint32_t signature, enum tp_kind kind,
			    const void *body, uint64_t len, uint64_t *until);

/* Is one reference to so many bytes better than copies of them? Not if the
 * network sends them as one message. */
static inline bool message_prefers_ref(const struct peer *peer, uint64_t bytes,
				       uint64_t threshold)
{
	return bytes >= threshold && !peer->limits.prefers_eager &&
	       (peer->transport->intra_node ||
		bytes > peer->limits.eager_bytes);
}

/* Puts more of the bytes. Returns DICOMM_SUCCESS when all have been put; they
 * may still be in use, see message_send_released(). */
dicomm_result_t message_send_turn(struct message_send *s, bool *moved);

/* Returns true if the memory of the bytes that were put is free again. */
static inline bool message_send_released(const struct message_send *s)
{
	return !s->until ||
	       atomic_load_explicit(s->peer->channel[s->class].out.released,
				    memory_order_acquire) >= s->until;
}

#endif
