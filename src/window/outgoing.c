/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers to a peer: heads, bytes and references, in the order of a queue. */
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/connect.h"
#include "src/core/message.h"
#include "src/core/paths.h"
#include "src/device/device.h"
#include "src/window/window.h"

#define STRIDE (WINDOW_HEAD_BYTES + WINDOW_EAGER)

static uint32_t eager_bytes(const struct peer *peer)
{
	uint64_t most = peer->limits.eager_bytes - WINDOW_HEAD_BYTES;

	return most < WINDOW_EAGER ? (uint32_t)most : WINDOW_EAGER;
}

static uint32_t power_of_two(uint32_t least)
{
	uint32_t n = 1;

	while (n < least)
		n *= 2;
	return n;
}

dicomm_result_t outgoing_connect(struct dicomm_comm *comm, int rank)
{
	struct partner *to = partner_of(comm, rank);
	struct peer *peer = &comm->peers[rank];
	dicomm_result_t status;

	if (to->room)
		return DICOMM_SUCCESS;
	TRY(comm_peer(comm, rank, &peer));
	if (peer->limits.eager_bytes <= WINDOW_HEAD_BYTES)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "rank %d: %s has no one-sided messages there", rank,
			    peer->transport->name);
	to->eager = eager_bytes(peer);
	to->room_mask = power_of_two(peer->limits.slots) - 1;
	to->room = malloc((to->room_mask + 1) * STRIDE);
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

/* The peer writes how far it has released whenever it takes a message, so a
 * look there costs this rank a cache miss: it looks when it runs out. */
static bool may_leave(const struct peer *peer, struct partner *to, uint64_t seq)
{
	if (__builtin_expect(seq <= to->credit, 1))
		return true;
	to->credit = atomic_load_explicit(peer->channel[TP_WINDOW].out.released,
					  memory_order_acquire) +
		     peer->limits.slots;
	return seq <= to->credit;
}

/* Put the next message. AGAIN: later. */
static dicomm_result_t put(struct peer *peer, struct partner *to,
			   uint32_t signature, enum tp_kind kind,
			   const void *body, uint64_t len)
{
	struct channel *channel = window_channel(peer);
	uint64_t seq = channel->out_base + 1;
	dicomm_result_t status;

	if (!channel->out.released)
		TRY(comm_connect_out(peer, TP_WINDOW));
	if (!may_leave(peer, to, seq))
		return DICOMM_AGAIN;
	status = peer->transport->put(peer->tp, TP_WINDOW, seq, signature, kind,
				      body, len);
	if (status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS)
		channel->out_base = channel->out_last = seq;
	return status;
}

/* A head and the bytes that go with it, len of them. They lie where nothing
 * changes them while the transport may still read them. */
static inline dicomm_result_t put_with(struct peer *peer, struct partner *to,
				       struct window_words words,
				       const void *from, uint64_t len)
{
	struct channel *channel = window_channel(peer);
	uint64_t seq = channel->out_base + 1;
	dicomm_result_t status;
	uint8_t *room;

	if (!may_leave(peer, to, seq))
		return DICOMM_AGAIN;
	room = to->room + (seq & to->room_mask) * STRIDE;
	memcpy(room, &words.first, 8);
	memcpy(room + 8, &words.offset, 8);
	memcpy(room + 16, &words.bytes, 8);
	memcpy(room + 24, &words.last, 8);
	if (len)
		window_copy(room + WINDOW_HEAD_BYTES, from, len);
	status = peer->transport->put(peer->tp, TP_WINDOW, seq, WINDOW_HEAD,
				      TP_DATA, room, WINDOW_HEAD_BYTES + len);
	if (status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS)
		channel->out_base = channel->out_last = seq;
	return status;
}

static dicomm_result_t put_head(struct peer *peer, struct partner *to,
				struct transfer *t)
{
	uint64_t len = t->head.what == WINDOW_GET ? 0 : t->head.bytes;
	dicomm_result_t status;

	if (!window_channel(peer)->out.released)
		TRY(comm_connect_out(peer, TP_WINDOW));
	if (len > to->eager || t->on_device)
		len = 0;
	status = put_with(peer, to, window_head_pack(&t->head), t->from, len);
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
				 struct peer *peer, struct partner *to,
				 struct transfer *t, bool *moved)
{
	struct channel *channel = window_channel(peer);
	uint64_t bytes = t->head.bytes;
	struct tp_ref ref;
	dicomm_result_t status;

	if (!t->moved && refer(comm, peer, t, &ref)) {
		TRY(put(peer, to, WINDOW_BYTES, TP_REF, &ref, bytes));
		t->moved = bytes;
		t->seq = channel->out_base;
		return DICOMM_SUCCESS;
	}
	for (int i = 0; t->moved < bytes && i < WINDOW_BUDGET; i++) {
		uint64_t len = bytes - t->moved;

		if (len > peer->limits.eager_bytes)
			len = peer->limits.eager_bytes;
		status = put(peer, to, WINDOW_BYTES, TP_DATA,
			     t->from + t->moved, len);
		if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
			return status;
		*moved = true;
		t->moved += len;
		if (status == DICOMM_IN_PROGRESS)
			t->seq = channel->out_base;
	}
	return t->moved < bytes ? DICOMM_AGAIN : DICOMM_SUCCESS;
}

/* Copy the next bytes from the device. */
static dicomm_result_t stage_next(struct dicomm_comm *comm, struct transfer *t)
{
	struct device *dev = comm->dev;
	struct stage *st = device_window_stage(dev, t, 0, true);
	uint64_t len = t->head.bytes - t->moved;

	if (!st)
		return DICOMM_AGAIN;
	if (len > dev->stage_bytes)
		len = dev->stage_bytes;
	t->stage = st;
	t->staged_from = t->moved;
	t->staged = t->moved + len;
	t->staged_seq = 0;
	dev->unmarked = true;
	TRY(dev->work->copy(dev->stream, st->device, t->from + t->moved, len));
	return device_mark(dev, st);
}

/* Put messages of what is staged. */
static dicomm_result_t put_staged(struct peer *peer, struct partner *to,
				  struct transfer *t, bool *moved)
{
	while (t->moved < t->staged) {
		uint64_t len = t->staged - t->moved;
		dicomm_result_t status;

		if (len > peer->limits.eager_bytes)
			len = peer->limits.eager_bytes;
		status = put(peer, to, WINDOW_BYTES, TP_DATA,
			     t->stage->host + (t->moved - t->staged_from), len);
		if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
			return status;
		*moved = true;
		t->moved += len;
		if (status == DICOMM_IN_PROGRESS)
			t->staged_seq = window_channel(peer)->out_base;
	}
	t->stage->phase = STAGE_SENT;
	return DICOMM_SUCCESS;
}

/* The same as put_bytes(), from the memory of a device. */
static dicomm_result_t put_from_device(struct dicomm_comm *comm,
				       struct peer *peer, struct partner *to,
				       struct transfer *t, bool *moved)
{
	for (;;) {
		if (!t->stage) {
			if (t->moved == t->head.bytes)
				return DICOMM_SUCCESS;
			TRY(stage_next(comm, t));
			*moved = true;
		}
		if (t->stage->phase == STAGE_QUEUED)
			return DICOMM_AGAIN;
		if (t->stage->phase == STAGE_REACHED)
			TRY(put_staged(peer, to, t, moved));
		if (atomic_load_explicit(window_channel(peer)->out.released,
					 memory_order_acquire) < t->staged_seq)
			return DICOMM_AGAIN;
		device_stage_free(comm->dev, t->stage);
		t->stage = NULL;
		*moved = true;
	}
}

static dicomm_result_t send_one(struct dicomm_comm *comm, struct peer *peer,
				struct partner *to, struct transfer *t,
				bool *moved)
{
	if (!t->headed) {
		TRY(put_head(peer, to, t));
		*moved = true;
	}
	if (t->head.what != WINDOW_GET && t->on_device)
		TRY(put_from_device(comm, peer, to, t, moved));
	else if (t->head.what != WINDOW_GET && t->moved < t->head.bytes)
		TRY(put_bytes(comm, peer, to, t, moved));
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

bool outgoing_quick(struct dicomm_comm *comm, int rank, const void *from,
		    uint64_t first, uint64_t offset, uint64_t bytes,
		    uint64_t last)
{
	struct partner *to = partner_of(comm, rank);
	struct peer *peer = &comm->peers[rank];
	dicomm_result_t status;

	if (!to->room || to->first || bytes > to->eager ||
	    !window_channel(peer)->out.released)
		return false;
	/* A failure comes again, and is reported then. */
	status = put_with(peer, to,
			  (struct window_words){first, offset, bytes, last},
			  from, bytes);
	if (__builtin_expect(status != DICOMM_SUCCESS, 0) &&
	    status != DICOMM_IN_PROGRESS)
		return false;
	comm->stats.messages_sent++;
	comm->stats.bytes_sent += bytes;
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
