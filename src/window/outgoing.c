/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers to a peer: heads, bytes and references, in the order of a queue. */
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/device/device.h"
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

static dicomm_result_t put_head(struct dicomm_comm *comm, struct peer *peer,
				const struct partner *to, struct transfer *t)
{
	uint64_t bytes =
		t->head.what == WINDOW_GET || t->on_device ? 0 : t->head.bytes;
	uint64_t len = bytes <= to->heads.eager ? bytes : 0;

	if (!window_channel(peer)->out.released)
		TRY(channel_connect_out(peer, TP_WINDOW));
	TRY(put_with(peer, to, window_head_pack(&t->head), t->from, len));
	t->headed = true;
	t->send = (struct message_send){.peer = peer,
					.class = TP_WINDOW,
					.signature = WINDOW_BYTES,
					.from = t->from,
					.bytes = bytes,
					.threshold = comm->map_threshold,
					.moved = len};
	return DICOMM_SUCCESS;
}

/* Copy the next bytes from the device. */
static dicomm_result_t stage_next(struct dicomm_comm *comm, struct transfer *t)
{
	struct device *dev = comm->dev;
	struct stage *st = device_window_stage(dev, t, 0, true);
	uint64_t len = t->head.bytes - t->staged;

	if (!st)
		return DICOMM_AGAIN;
	if (len > dev->stage_bytes)
		len = dev->stage_bytes;
	t->stage = st;
	t->send.from = st->host;
	t->send.bytes = len;
	t->send.threshold = UINT64_MAX;
	t->send.moved = t->send.until = 0;
	dev->unmarked = true;
	TRY(dev->work->copy(dev->stream, st->device, t->from + t->staged, len));
	t->staged += len;
	return device_mark(dev, st);
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
		TRY(message_send_turn(&t->send, moved));
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
	if (t->head.what != WINDOW_GET && t->on_device)
		TRY(send_from_device(comm, t, moved));
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
