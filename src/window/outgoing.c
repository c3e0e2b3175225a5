/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers to a peer: heads, bytes and references, in the order of a queue. */
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/connect.h"
#include "src/core/message.h"
#include "src/core/paths.h"
#include "src/window/window.h"

static size_t stride(void)
{
	return sizeof(struct window_head) + WINDOW_EAGER;
}

static uint64_t eager_bytes(const struct peer *peer)
{
	uint64_t most = peer->limits.eager_bytes - sizeof(struct window_head);

	return most < WINDOW_EAGER ? most : WINDOW_EAGER;
}

dicomm_result_t outgoing_connect(struct dicomm_comm *comm, int rank)
{
	struct partner *to = partner_of(comm, rank);
	struct peer *peer = &comm->peers[rank];
	dicomm_result_t status;

	if (to->room)
		return DICOMM_SUCCESS;
	TRY(comm_peer(comm, rank, &peer));
	if (peer->limits.eager_bytes <= sizeof(struct window_head))
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "rank %d: %s has no one-sided messages there", rank,
			    peer->transport->name);
	to->room = malloc(peer->limits.slots * stride());
	if (!to->room)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "windows: no memory for messages to rank %d", rank);
	comm->windows->outs[comm->windows->nouts++] = rank;
	/* Messages wait until it is connected. */
	status = comm_connect_out(peer, TP_WINDOW);
	return status == DICOMM_AGAIN ? DICOMM_SUCCESS : status;
}

void outgoing_add(struct partner *to, struct transfer *t)
{
	struct transfer **at = &to->first;

	while (*at)
		at = &(*at)->next;
	t->next = NULL;
	*at = t;
	if (!to->unsent)
		to->unsent = t;
}

void outgoing_remove(struct partner *to, const struct transfer *t)
{
	struct transfer **at = &to->first;

	while (*at && *at != t)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = t->next;
	if (to->unsent == t)
		to->unsent = t->next;
}

/* Put the next message. AGAIN: later. */
static dicomm_result_t put(struct peer *peer, uint32_t signature,
			   enum tp_kind kind, const void *body, uint64_t len)
{
	struct channel *channel = window_channel(peer);
	uint64_t seq = channel->out_base + 1;
	dicomm_result_t status;

	if (!channel->out.released)
		TRY(comm_connect_out(peer, TP_WINDOW));
	if (!message_may_leave(peer, channel, seq, false))
		return DICOMM_AGAIN;
	status = peer->transport->put(peer->tp, TP_WINDOW, seq, signature, kind,
				      body, len);
	if (status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS)
		channel->out_base = channel->out_last = seq;
	return status;
}

static dicomm_result_t put_head(struct peer *peer, struct partner *to,
				struct transfer *t)
{
	struct channel *channel = window_channel(peer);
	uint64_t seq = channel->out_base + 1;
	uint64_t len = t->head.what == WINDOW_GET ? 0 : t->head.bytes;
	dicomm_result_t status;
	uint8_t *room;

	if (!channel->out.released)
		TRY(comm_connect_out(peer, TP_WINDOW));
	/* Before that, the transport may still read the room. */
	if (!message_may_leave(peer, channel, seq, false))
		return DICOMM_AGAIN;
	if (len > eager_bytes(peer))
		len = 0;
	room = to->room + seq % peer->limits.slots * stride();
	memcpy(room, &t->head, sizeof(t->head));
	if (len)
		memcpy(room + sizeof(t->head), t->from, len);
	status = put(peer, WINDOW_HEAD, TP_DATA, room, sizeof(t->head) + len);
	if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
		return status;
	t->headed = true;
	t->moved = len;
	return DICOMM_SUCCESS;
}

/* Is one reference better than many messages? */
static bool refer(const struct dicomm_comm *comm, struct peer *peer,
		  const struct transfer *t, struct tp_ref *ref)
{
	uint64_t bytes = t->head.bytes;

	if (bytes < comm->map_threshold || peer->limits.prefers_eager ||
	    (!peer->transport->intra_node && bytes <= peer->limits.eager_bytes))
		return false;
	return peer->transport->offer(peer->tp, t->from, bytes, TP_WANT_COPY,
				      ref);
}

static dicomm_result_t put_bytes(const struct dicomm_comm *comm,
				 struct peer *peer, struct transfer *t,
				 bool *moved)
{
	struct channel *channel = window_channel(peer);
	uint64_t bytes = t->head.bytes;
	struct tp_ref ref;
	dicomm_result_t status;

	if (!t->moved && refer(comm, peer, t, &ref)) {
		TRY(put(peer, WINDOW_BYTES, TP_REF, &ref, bytes));
		t->moved = bytes;
		t->seq = channel->out_base;
		return DICOMM_SUCCESS;
	}
	for (int i = 0; t->moved < bytes && i < WINDOW_BUDGET; i++) {
		uint64_t len = bytes - t->moved;

		if (len > peer->limits.eager_bytes)
			len = peer->limits.eager_bytes;
		status = put(peer, WINDOW_BYTES, TP_DATA, t->from + t->moved,
			     len);
		if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
			return status;
		*moved = true;
		t->moved += len;
		if (status == DICOMM_IN_PROGRESS)
			t->seq = channel->out_base;
	}
	return t->moved < bytes ? DICOMM_AGAIN : DICOMM_SUCCESS;
}

static dicomm_result_t send_one(const struct dicomm_comm *comm,
				struct peer *peer, struct partner *to,
				struct transfer *t, bool *moved)
{
	if (!t->headed) {
		TRY(put_head(peer, to, t));
		*moved = true;
	}
	if (t->head.what != WINDOW_GET && t->moved < t->head.bytes)
		TRY(put_bytes(comm, peer, t, moved));
	*moved = true;
	return DICOMM_SUCCESS;
}

static void done(struct dicomm_comm *comm, struct transfer *t)
{
	comm->stats.messages_sent++;
	if (t->head.what != WINDOW_GET)
		comm->stats.bytes_sent += t->head.bytes;
	if (t->owned)
		free(t);
	else
		t->done = true;
}

dicomm_result_t outgoing_turn(struct dicomm_comm *comm, int rank, bool *moved)
{
	struct partner *to = partner_of(comm, rank);
	struct peer *peer = &comm->peers[rank];
	struct transfer *t;
	uint64_t released;

	while ((t = to->unsent)) {
		dicomm_result_t status = send_one(comm, peer, to, t, moved);

		if (status == DICOMM_AGAIN)
			break;
		TRY(status);
		to->unsent = t->next;
	}
	if (to->first == to->unsent)
		return DICOMM_SUCCESS;
	released = atomic_load_explicit(window_channel(peer)->out.released,
					memory_order_acquire);
	while ((t = to->first) != to->unsent && released >= t->seq) {
		to->first = t->next;
		*moved = true;
		done(comm, t);
	}
	return DICOMM_SUCCESS;
}

bool outgoing_quick(struct dicomm_comm *comm, int rank,
		    const struct window_head *head, const void *from)
{
	struct partner *to = partner_of(comm, rank);
	struct peer *peer = &comm->peers[rank];
	struct transfer t;

	if (!to->room || to->first || head->bytes > eager_bytes(peer))
		return false;
	t.head = *head;
	t.from = from;
	/* A failure comes again, and is reported then. */
	if (put_head(peer, to, &t) != DICOMM_SUCCESS)
		return false;
	comm->stats.messages_sent++;
	comm->stats.bytes_sent += head->bytes;
	return true;
}

bool outgoing_pending(struct dicomm_comm *comm, int rank)
{
	const struct partner *to = partner_of(comm, rank);
	const struct channel *channel = window_channel(&comm->peers[rank]);

	return to->first || to->gets ||
	       (channel->out.released &&
		atomic_load_explicit(channel->out.released,
				     memory_order_acquire) < channel->out_last);
}
