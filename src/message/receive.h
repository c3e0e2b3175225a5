/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes from a peer: out of slots, or from where a reference says that they
 * are. That memory is loaded from if it can be mapped, else the transport reads
 * it. The thread of the data path calls these functions.
 */
#ifndef DICOMM_MESSAGE_RECEIVE_H
#define DICOMM_MESSAGE_RECEIVE_H

#include "src/message/channel.h"

/* Most bytes that are moved between two looks for a fault */
#define MESSAGE_PIECE (UINT64_C(1) << 20)

/* Finds the memory of a reference to `bytes`, of which the caller is about to
 * load `len`. Then it calls message_intact(). ERR_UNSUPPORTED: this rank cannot
 * load from there, so the bytes must be read. */
dicomm_result_t message_map(struct dicomm_comm *comm, struct peer *peer,
			    const struct tp_ref *ref, uint64_t bytes,
			    uint64_t len, const void **src);
/* ERR_REMOTE: the memory of a reference was no longer the sender's message.
 * Most transports map only what a rank sends to itself, and have no intact().
 */
static inline dicomm_result_t message_intact(const struct peer *peer)
{
	return peer->transport->intact ? peer->transport->intact(peer->tp)
				       : DICOMM_SUCCESS;
}

/* Reads len bytes from offset `at` of the reference in message seq. AGAIN: the
 * transport has no room now. IN_PROGRESS: until read_status() of that message
 * says that they are there. */
dicomm_result_t message_read(struct dicomm_comm *comm, struct peer *peer,
			     enum tp_class c, uint64_t seq,
			     const struct tp_ref *ref, uint64_t at, void *into,
			     uint64_t len);

/* Message seq belongs to these bytes. Returns where its own are, line->len of
 * them: the caller copies them to r->to, and calls message_receive_copied().
 * *body becomes NULL if it is a reference: message_receive_piece() follows.
 * ERR_INTERNAL: it is none that may come now. */
dicomm_result_t message_receive_take(struct message_receive *r, uint64_t seq,
				     const struct tp_line *line,
				     const uint8_t **body);
static inline void message_receive_copied(struct message_receive *r,
					  uint64_t seq, uint64_t len)
{
	r->to += len;
	r->left -= len;
	message_consumed(r->peer, r->class, seq);
}

/* Moves up to `most` bytes of the reference, *len, into `into`, which may be
 * r->to. Returns DICOMM_AGAIN if that goes on: call it again. */
dicomm_result_t message_receive_piece(struct dicomm_comm *comm,
				      struct message_receive *r, void *into,
				      uint64_t most, uint64_t *len);
/* The caller has done with those. */
void message_receive_moved(struct message_receive *r, uint64_t len);

#endif
