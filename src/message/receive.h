/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives bytes from a peer: out of slots, or out of the memory that a
 * reference refers to. If that memory can be mapped, this rank loads them;
 * otherwise the transport reads them. The thread of the data path calls these
 * functions.
 */
#ifndef DICOMM_MESSAGE_RECEIVE_H
#define DICOMM_MESSAGE_RECEIVE_H

#include "src/message/channel.h"

/* Most bytes that are moved between two checks for a fault */
#define MESSAGE_PIECE (UINT64_C(1) << 20)

/* Maps the memory of a reference to `bytes` bytes, of which the caller will
 * load `len`; after that it calls message_intact(). ERR_UNSUPPORTED: the memory
 * cannot be mapped; read the bytes. */
dicomm_result_t message_map(struct dicomm_comm *comm, struct peer *peer,
			    const struct tp_ref *ref, uint64_t bytes,
			    uint64_t len, const void **src);
/* Returns ERR_REMOTE if the sender had already reused the memory that was
 * loaded. Transports that map only messages of a rank to itself have no
 * intact(). */
static inline dicomm_result_t message_intact(const struct peer *peer)
{
	return peer->transport->intact ? peer->transport->intact(peer->tp)
				       : DICOMM_SUCCESS;
}

/* Reads len bytes from offset `at` of the reference in message seq. AGAIN: the
 * transport has no room now. IN_PROGRESS: the read is under way; read_status()
 * of that message returns its end. */
dicomm_result_t message_read(struct dicomm_comm *comm, struct peer *peer,
			     enum tp_class c, uint64_t seq,
			     const struct tp_ref *ref, uint64_t at, void *into,
			     uint64_t len);

/* Takes message seq, which belongs to r. *body becomes the address of its
 * line->len bytes: the caller copies them to r->to, then calls
 * message_receive_copied(). If the message is a reference, *body becomes NULL,
 * and the caller goes on with message_receive_piece(). ERR_INTERNAL: the
 * message does not fit what r expects. */
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

/* Moves the next *len bytes of the reference, at most `most`, to `into`, which
 * may be r->to. Returns DICOMM_AGAIN until they have arrived: call it again. */
dicomm_result_t message_receive_piece(struct dicomm_comm *comm,
				      struct message_receive *r, void *into,
				      uint64_t most, uint64_t *len);
/* Called when the caller no longer needs these bytes. Releases the message
 * after the last ones. */
void message_receive_moved(struct message_receive *r, uint64_t len);

#endif
