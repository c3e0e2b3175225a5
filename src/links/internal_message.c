/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/links/internal_message.h"

#include <string.h>

#include "src/base/log.h"
#include "src/core/operation.h"
#include "src/core/paths.h"
#include "src/message/channel.h"
#include "src/message/send.h"

dicomm_result_t internal_most(const struct internal_messages *t, int rank,
			      size_t *bytes)
{
	struct tp_limits limits;
	struct peer *peer;

	TRY(comm_peer(t->comm, rank, &peer));
	/* Use the transport's own limit, not the one that devices use to avoid
	 * host memory. */
	peer->transport->limits(peer->tp, &limits);
	*bytes = limits.eager_bytes;
	return DICOMM_SUCCESS;
}

dicomm_result_t internal_put(const struct internal_messages *t, int rank,
			     const void *body, size_t bytes)
{
	struct peer *peer;

	TRY(comm_peer(t->comm, rank, &peer));
	return message_put(peer, TP_COLLECTIVE, t->signature, TP_DATA, body,
			   bytes, NULL);
}

uint64_t internal_under_way(const struct internal_messages *t, int rank)
{
	const struct channel *channel =
		&t->comm->peers[rank].channel[TP_COLLECTIVE];

	uint64_t released;

	if (!channel->out.released)
		return 0;
	/* A receiver that is ahead also releases messages without content,
	 * which nobody sends. */
	released = atomic_load_explicit(channel->out.released,
					memory_order_acquire);
	return released < channel->out_base ? channel->out_base - released : 0;
}

/* The message belongs to an operation: the peer has made another call. */
static dicomm_result_t mismatch(const struct internal_messages *t, int rank)
{
	if (t->before)
		return wait_mismatch(t->comm, &t->before->call,
				     t->before->number, rank);
	return FAIL(DICOMM_ERR_INTERNAL,
		    "rank %d: an unknown message from rank %d", t->comm->rank,
		    rank);
}

dicomm_result_t internal_take(const struct internal_messages *t, int rank,
			      void *into, size_t *bytes)
{
	const uint8_t *body;
	struct tp_line *line;
	struct peer *peer;
	struct channel *channel;
	uint64_t seq;

	TRY(comm_peer(t->comm, rank, &peer));
	channel = &peer->channel[TP_COLLECTIVE];
	seq = channel->in_base + 1;
	TRY(message_look(t->comm, peer, TP_COLLECTIVE, seq, &line));
	body = message_payload(channel, seq, line);
	if (!body && line->kind != TP_REF)
		return message_malformed(rank, line);
	if (line->signature != t->signature || !body ||
	    (into && line->len != *bytes))
		return mismatch(t, rank);
	*bytes = line->len;
	if (into)
		memcpy(into, body, line->len);
	channel->in_base = seq;
	message_consumed(peer, TP_COLLECTIVE, seq);
	return DICOMM_SUCCESS;
}
