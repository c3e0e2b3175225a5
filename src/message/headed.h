/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that begin with a head, for traffic that does not follow the order
 * of calls: the head has the kind of the message, and some bytes may follow it.
 * The thread of the data path calls these functions.
 */
#ifndef DICOMM_MESSAGE_HEADED_H
#define DICOMM_MESSAGE_HEADED_H

#include "src/message/send.h"

#define HEADED_BYTES 32 /* length of a head */
/* Most bytes that follow a head in its message */
#define HEADED_EAGER 4096
#define HEADED_STRIDE (HEADED_BYTES + HEADED_EAGER)

/* Opens the transport to a rank, begins to connect the channel, and makes *h.
 * Messages can be put once the channel is connected. */
dicomm_result_t headed_connect(struct dicomm_comm *comm, int rank,
			       enum tp_class c, struct headed_places *h);

/* Returns the memory for the next message. NULL if the peer has no free slot:
 * the transport may still be reading an earlier message from that memory. */
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
