/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that begin with a head, for traffic that does not follow the order
 * of calls: the head tells what the message is, and some bytes may go with it.
 * The thread of the data path calls these functions.
 */
#ifndef DICOMM_MESSAGE_HEADED_H
#define DICOMM_MESSAGE_HEADED_H

#include "src/message/send.h"

#define HEADED_BYTES 32 /* of each head */
/* Most bytes that go with it */
#define HEADED_EAGER 4096
#define HEADED_STRIDE (HEADED_BYTES + HEADED_EAGER)

/* Connects to a rank, whose transport is opened first, and makes *h. Messages
 * wait until it is connected. */
dicomm_result_t headed_connect(struct dicomm_comm *comm, int rank,
			       enum tp_class c, struct headed_places *h);

/* Returns the place of the next message, or NULL if the peer has no free slot
 * yet: before that, the transport may still read what was there. */
static inline uint8_t *headed_place(const struct headed_places *h,
				    struct peer *peer, enum tp_class c)
{
	struct channel *channel = &peer->channel[c];
	uint64_t seq = channel->out_base + 1;

	if (!message_has_credit(peer, channel, seq))
		return NULL;
	return h->at + (seq & h->mask) * HEADED_STRIDE;
}

#endif
