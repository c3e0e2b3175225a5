/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers to a peer: heads, bytes and references, in the order of a queue. */
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/device/device_ref.h"
#include "src/message/headed.h"
#include "src/window/window.h"

dicomm_result_t outgoing_connect(struct dicomm_comm *comm, int rank)
{
	struct partner *to = partner_of(comm, rank);

	if (to->heads.at)
		return DICOMM_SUCCESS;
	TRY(headed_connect(comm, rank, TP_WINDOW, &to->heads));
	comm->windows->outs[comm->windows->nouts++] = rank;
	return DICOMM_SUCCESS;
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

/* A head and the bytes that go with it, len of them. */
static inline dicomm_result_t put_with(struct peer *peer,
				       const struct partner *to,
				       struct window_words words,
				       const void *from, uint64_t len)
{
	uint8_t *at = headed_place(&to->heads, peer, TP_WINDOW);

	if (!at)
		return DICOMM_AGAIN;
	memcpy(at, &words.first, 8);
	memcpy(at + 8, &words.offset, 8);
	memcpy(at + 16, &words.bytes, 8);
	memcpy(at + 24, &words.last, 8);
	if (len)
		window_copy(at + HEADED_BYTES, from, len);
	return message_put_next(peer, TP_WINDOW, WINDOW_HEAD, TP_DATA, at,
				HEADED_BYTES + len, NULL);
}

/* Returns true if a transport between the two reaches the buffer. */
static bool is_reached(const struct dicomm_comm *comm, const struct peer *peer,
		       const struct buffer_reach *reach)
{
	return peer->by_reference &&
	       reach->transports >> __builtin_ctz(comm->ways[peer->rank]) & 1;
}

/* How do bytes of this rank's device go? The device has written them: the call
 * has waited for its stream, and what is put into a window counts when it is
 * there. */
static enum transfer_way way_of(const struct dicomm_comm *comm,
				const struct peer *peer, struct transfer *t)
{
	bool refers = device_ref_in_place(comm, peer, t->reach.offer, t->from,
					  &t->mem_ref);

	t->mem_ref.bytes = t->head.bytes;
	if (refers || peer->rank == comm->rank)
		return TRANSFER_MEM_REF;
	return is_reached(comm, peer, &t->reach) ? TRANSFER_REF
						 : TRANSFER_STAGES;
}

static dicomm_result_t put_head(struct dicomm_comm *comm, struct peer *peer,
				const struct partner *to, struct transfer *t)
{
	uint64_t bytes = t->head.what == WINDOW_GET ? 0 : t->head.bytes;
	uint64_t len = bytes <= to->heads.eager && !t->on_device ? bytes : 0;

	if (!window_channel(peer)->out.released)
		TRY(channel_connect_out(peer, TP_WINDOW));
	TRY(put_with(peer, to, window_head_pack(&t->head), t->from, len));
	t->headed = true;
	if (t->on_device)
		t->way = way_of(comm, peer, t);
	t->send = (struct message_send){.peer = peer,
					.class = TP_WINDOW,
					.signature = WINDOW_BYTES,
					.from = t->from,
					.bytes = bytes,
					.threshold = comm->map_threshold,
					.moved = len};
	return DICOMM_SUCCESS;
}

/* Choose host or device memory of the stage. */
static void place_stage(const struct device *dev, const struct peer *peer,
			struct stage *st)
{
	device_stage_place(dev, peer, st);
	if (device_ref_in_device(peer))
		st->at = st->seen = st->exported;
}

/* Copy the next bytes from the device. */
static dicomm_result_t stage_next(struct dicomm_comm *comm, struct transfer *t)
{
	struct device *dev = comm->dev;
	const struct peer *peer = t->send.peer;
	struct stage *st = device_window_stage(dev, t, 0, true);
	uint64_t len = t->head.bytes - t->staged, most = dev->stage_bytes;

	if (!st)
		return DICOMM_AGAIN;
	place_stage(dev, peer, st);
	if (st->at == st->exported)
		most = dev->exported_bytes;
	if (len > most)
		len = most;
	t->stage = st;
	t->send.from = st->at;
	t->send.bytes = len;
	t->send.threshold = UINT64_MAX;
	t->send.moved = t->send.until = 0;
	if (peer->has_peer_access)
		st->mem_ref = device_ref_to_stage(dev, peer, st);
	st->mem_ref.bytes = len;
	if (st->at == st->exported)
		comm->stats.bytes_copied += len;
	dev->unmarked = true;
	TRY(dev->work->copy(dev->stream, st->seen, t->from + t->staged, len));
	t->staged += len;
	return device_mark(dev, st);
}

static dicomm_result_t send_stage(struct transfer *t, bool *moved)
{
	if (t->send.moved == t->send.bytes)
		return DICOMM_SUCCESS;
	return t->send.peer->has_peer_access
		       ? message_send_ref(&t->send, &t->stage->mem_ref)
		       : message_send_turn(&t->send, moved);
}

/* Send the bytes of one staging buffer after the other. */
static dicomm_result_t send_from_device(struct dicomm_comm *comm,
					struct transfer *t, bool *moved)
{
	for (;;) {
		if (!t->stage) {
			if (t->staged == t->head.bytes)
				return DICOMM_SUCCESS;
			TRY(stage_next(comm, t));
			*moved = true;
		}
		if (t->stage->phase == STAGE_QUEUED)
			return DICOMM_AGAIN;
		TRY(send_stage(t, moved));
		t->stage->phase = STAGE_SENT;
		if (!message_send_released(&t->send))
			return DICOMM_AGAIN;
		device_stage_free(comm->dev, t->stage);
		t->stage = NULL;
		*moved = true;
	}
}

static dicomm_result_t send_one(struct dicomm_comm *comm, struct peer *peer,
				const struct partner *to, struct transfer *t,
				bool *moved)
{
	if (!t->headed) {
		TRY(put_head(comm, peer, to, t));
		*moved = true;
	}
	if (t->on_device && t->way == TRANSFER_STAGES)
		TRY(send_from_device(comm, t, moved));
	else if (t->on_device && t->way == TRANSFER_MEM_REF)
		TRY(message_send_ref(&t->send, &t->mem_ref));
	else
		TRY(message_send_turn(&t->send, moved));
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

	while ((t = to->unsent)) {
		dicomm_result_t status = send_one(comm, peer, to, t, moved);

		if (status == DICOMM_AGAIN)
			break;
		TRY(status);
		to->unsent = t->next;
	}
	while ((t = to->first) != to->unsent &&
	       message_send_released(&t->send)) {
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
	const struct partner *to = partner_of(comm, rank);
	struct peer *peer = &comm->peers[rank];

	if (!to->heads.at || to->first || bytes > to->heads.eager ||
	    !window_channel(peer)->out.released)
		return false;
	/* A failure comes again, and is reported then. */
	if (put_with(peer, to,
		     (struct window_words){first, offset, bytes, last}, from,
		     bytes) != DICOMM_SUCCESS)
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
