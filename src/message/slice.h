/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One slice of a message whose length both ranks know from their calls: of a
 * collective, or of a send without a tag. Each slice has a number, and goes in
 * one slot or as a reference. The reference in the first slice may stand for
 * all of them. src/message/receive.c loads references of other messages by
 * message_slice_load(). The thread of the data path calls these functions.
 */
#ifndef DICOMM_MESSAGE_SLICE_H
#define DICOMM_MESSAGE_SLICE_H

#include "src/message/channel.h"

struct memory_ref;

/* What may be sent of a slice that fits a slot. Longer ones always go as a
 * reference. */
enum message_way {
	MESSAGE_COPY, /* its bytes */
	MESSAGE_BEST, /* bytes or a reference, whichever is better */
	MESSAGE_REF   /* a reference, which has been promised */
};

struct message_slice {
	struct dicomm_comm *comm;
	struct peer *peer;
	enum tp_class class;
	uint32_t signature;
	uint64_t seq;
	uint64_t at, bytes; /* its offset in the message, and its length */
	/* Length of the message if one reference may stand for all of it: a
	 * sender has all its bytes ready. */
	uint64_t whole;
	struct message_flow *flow; /* of the message */

	/* A sender sets these: where the bytes are, what may be sent, and what
	 * the receiver does with them. */
	const void *from;
	enum message_way way;
	enum tp_want want;
	/* A neighbour reads the bytes itself, from there; or NULL */
	const struct memory_ref *mem_ref;

	/* A receiver sets these: where a read puts the bytes, NULL for a bounce
	 * buffer; and how many it may put there at once if that is their final
	 * place, 0 if it is not. */
	void *into;
	uint64_t ahead;

	/* Where a receiver finds the bytes */
	const void *src;
	struct bounce_buffer *bounce; /* that is where, or NULL */
	bool mapped;                  /* in memory of the sender */
	bool seen;                    /* the rank's device loads from there */
};

/* Puts the slice, whose channel is connected; *sent becomes the bytes for which
 * that stands. SUCCESS: the bytes are free again. IN_PROGRESS: they must not
 * change before message_released(). AGAIN: poll, then retry. */
dicomm_result_t message_slice_send(const struct message_slice *m,
				   uint64_t *sent);

/* Looks for a slice that is not empty. SUCCESS: its bytes are at m->src.
 * IN_PROGRESS: they are being read; ask message_slice_arrived(). AGAIN: not
 * arrived, or the transport has no room now. ERR_INVALID_USAGE, without a text:
 * what has arrived belongs to another call. */
dicomm_result_t message_slice_find(struct message_slice *m);
/* Returns AGAIN until the bytes that are being read are at m->src. The oldest
 * slice of a message asks first. */
dicomm_result_t message_slice_arrived(struct message_slice *m);
/* Frees a bounce buffer whose bytes have been loaded; it may be NULL. */
static inline void message_bounce_free(struct bounce_buffer *b)
{
	if (b)
		b->channel = NULL;
}

/* To be called when mapped bytes have been loaded. ERR_REMOTE: the sender had
 * reused its memory before, so they are invalid. Transports that map only
 * messages of a rank to itself have no intact(). */
static inline dicomm_result_t message_intact(const struct peer *peer)
{
	return peer->transport->intact ? peer->transport->intact(peer->tp)
				       : DICOMM_SUCCESS;
}

/* The bytes have been loaded: releases the slice. ERR_REMOTE as above */
static inline dicomm_result_t message_slice_taken(struct message_slice *m)
{
	message_bounce_free(m->bounce);
	if (__builtin_expect(m->mapped, 0))
		TRY(message_intact(m->peer));
	message_consumed(m->peer, m->class, m->seq);
	return DICOMM_SUCCESS;
}

/* Finds len bytes from offset `at` on of a reference to `of` bytes: maps them,
 * or reads them to m->into or a bounce buffer; m->bytes is lowered to what that
 * holds. Returns as message_slice_find(). */
dicomm_result_t message_slice_load(struct message_slice *m,
				   const struct tp_ref *ref, uint64_t of,
				   uint64_t at, uint64_t len);

#endif
