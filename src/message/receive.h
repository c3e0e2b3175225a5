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

/* Finds the next *len bytes of the reference, at most `most`: they are at
 * r->src, in memory of the sender or in `into`; NULL stands for a bounce
 * buffer. Returns DICOMM_AGAIN until they have arrived: call it again. */
dicomm_result_t message_receive_find(struct dicomm_comm *comm,
				     struct message_receive *r, void *into,
				     uint64_t most, uint64_t *len);
/* The same, and moves them to `into`, which may be r->to. ERR_REMOTE: the
 * sender had reused their memory, so they are invalid. */
dicomm_result_t message_receive_piece(struct dicomm_comm *comm,
				      struct message_receive *r, void *into,
				      uint64_t most, uint64_t *len);
/* Called when the caller has loaded the bytes that message_receive_find() has
 * found. ERR_REMOTE as above. */
dicomm_result_t message_receive_taken(struct message_receive *r, uint64_t len);
/* Called after message_receive_piece(); releases the message after the last
 * piece. */
void message_receive_moved(struct message_receive *r, uint64_t len);

#endif
