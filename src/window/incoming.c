/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers from a peer: bytes go into windows, signals count. */
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/message/headed.h"
#include "src/message/receive.h"
#include "src/device/device_ref.h"
#include "src/window/window.h"

struct signal_count *signal_of(struct partner *from, int signal, int context)
{
	struct signal_count **row = &from->signals[context];

	if (!*row)
		*row = calloc(DICOMM_SIGNALS, sizeof(**row));
	return *row ? &(*row)[signal] : NULL;
}

/* All bytes of the transfer are there. */
static dicomm_result_t arrived(struct dicomm_comm *comm, int source,
			       struct partner *from)
{
	const struct window_head *head = &from->now;
	struct signal_count *count;

	comm->stats.messages_received++;
	comm->stats.bytes_received += head->bytes;
	if (head->what == WINDOW_REPLY) {
		struct window_call *c = from->gets;

		from->gets = c->next;
		c->arrived = true;
		return DICOMM_SUCCESS;
	}
	if (head->signal == WINDOW_NO_SIGNAL)
		return DICOMM_SUCCESS;
	count = signal_of(from, head->signal, head->context);
	if (!count)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "windows: no memory for signals of rank %d",
			    source);
	count->arrived++;
	return DICOMM_SUCCESS;
}

/* The device copies bytes that it sees where they belong. */
static dicomm_result_t copy_from(struct device *dev, struct partner *from,
				 struct stage *st, const void *src,
				 uint64_t len)
{
	dev->unmarked = true;
	TRY(dev->work->copy(dev->stream, from->in.to, src, len));
	return device_mark(dev, st);
}

/* The bytes in a staging buffer go where they belong. */
static dicomm_result_t land(struct dicomm_comm *comm, struct partner *from,
			    struct stage *st, uint64_t len)
{
	if (st->at == st->exported)
		comm->stats.bytes_copied += len;
	else
		comm->stats.bytes_staged += len;
	return copy_from(comm->dev, from, st, st->seen, len);
}

static struct stage *landing(struct dicomm_comm *comm, struct partner *from)
{
	struct stage *st =
		device_window_stage(comm->dev, from, from->landings + 1, false);

	from->landings += st != NULL;
	if (st)
		device_stage_place(comm->dev, from->in.peer, st);
	return st;
}

/* Bytes of a message go where they belong. AGAIN: no staging buffer is free. */
static dicomm_result_t deposit(struct dicomm_comm *comm, struct partner *from,
			       const void *src, uint64_t len)
{
	struct stage *st = NULL;

	if (device_has_memory(comm->dev)) {
		if (from->in.peer->by_reference)
			return FAIL(DICOMM_ERR_INTERNAL,
				    "windows: rank %d sent a message of %llu "
				    "bytes, not a reference to them",
				    from->in.peer->rank,
				    (unsigned long long)len);
		if (len > comm->dev->stage_bytes)
			return FAIL(DICOMM_ERR_INTERNAL,
				    "windows: rank %d sent a message of %llu "
				    "bytes, for a staging buffer of %zu",
				    from->in.peer->rank,
				    (unsigned long long)len,
				    comm->dev->stage_bytes);
		st = landing(comm, from);
		if (!st)
			return DICOMM_AGAIN;
	}
	comm->stats.bytes_ring += len;
	window_copy(st ? st->at : from->in.to, src, len);
	return st ? land(comm, from, st, len) : DICOMM_SUCCESS;
}

/* All bytes were taken; on a device they may be under way. */
static dicomm_result_t complete(struct dicomm_comm *comm, int source,
				struct partner *from)
{
	from->lands = from->now.bytes && device_has_memory(comm->dev);
	return from->lands ? DICOMM_SUCCESS : arrived(comm, source, from);
}

/* AGAIN: bytes of the last transfer are still under way. */
static dicomm_result_t landed(struct dicomm_comm *comm, int source,
			      struct partner *from)
{
	if (device_stage_of(comm->dev, from, STAGE_WINDOW, from->landings))
		return DICOMM_AGAIN;
	from->lands = false;
	return arrived(comm, source, from);
}

static dicomm_result_t invalid(int source, const struct window_head *head)
{
	return FAIL(DICOMM_ERR_INTERNAL,
		    "windows: rank %d sent a head %u of window %u, offset "
		    "%llu, %llu bytes, signal %u, context %u",
		    source, head->what, head->window,
		    (unsigned long long)head->offset,
		    (unsigned long long)head->bytes, head->signal,
		    head->context);
}

/* The window of a put may go while its bytes are still to come, where the peer
 * deregisters before it has sent them. */
static dicomm_result_t still_there(const struct dicomm_comm *comm, int source,
				   const struct partner *from)
{
	const struct window_head *head = &from->now;

	if (head->what != WINDOW_PUT || window_find(comm, head->window))
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_USAGE,
		    "windows: bytes of rank %d for window %u, which rank %d "
		    "has deregistered",
		    source, head->window, comm->rank);
}

/* Where the bytes of a put or a get are, and who reaches them */
static dicomm_result_t locate(struct dicomm_comm *comm, int source,
			      const struct window_head *head, uint8_t **at,
			      struct buffer_reach *reach)
{
	const struct dicomm_window *w = window_find(comm, head->window);
	uint64_t end;

	if (!w)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "windows: rank %d %s window %u, which rank %d has "
			    "deregistered",
			    source,
			    head->what == WINDOW_PUT ? "puts into"
						     : "gets from",
			    head->window, comm->rank);
	if (__builtin_add_overflow(head->offset, head->bytes, &end) ||
	    end > w->bytes)
		return invalid(source, head);
	*at = w->at + head->offset;
	*reach = user_buffer_reach(comm, w->buffer);
	return DICOMM_SUCCESS;
}

static dicomm_result_t reply(struct dicomm_comm *comm, int source,
			     const struct window_head *head)
{
	struct transfer *t = calloc(1, sizeof(*t));
	uint8_t *at = NULL;
	dicomm_result_t status;

	if (!t)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "windows: no memory for a reply to rank %d",
			    source);
	status = locate(comm, source, head, &at, &t->reach);
	if (status == DICOMM_SUCCESS)
		status = outgoing_connect(comm, source);
	if (status != DICOMM_SUCCESS) {
		free(t);
		return status;
	}
	t->head = *head;
	t->head.what = WINDOW_REPLY;
	t->from = at;
	t->on_device = head->bytes && device_has_memory(comm->dev);
	t->owned = true;
	outgoing_add(partner_of(comm, source), t);
	return DICOMM_SUCCESS;
}

/* A reply is that of the first get: they come in order. */
static dicomm_result_t answered(int source, struct partner *from)
{
	const struct window_call *c = from->gets;

	if (!c || c->out.head.get != from->now.get ||
	    c->out.head.bytes != from->now.bytes)
		return invalid(source, &from->now);
	from->in.to = c->into;
	from->reach = c->out.reach;
	return DICOMM_SUCCESS;
}

/* Most messages are a whole short put into a window that is there, and its
 * context has had a signal before. False: nothing has happened. */
static inline bool take_whole(struct dicomm_comm *comm, struct partner *from,
			      const uint8_t *body, uint64_t len)
{
	const struct dicomm_window *w = comm->windows->first;
	struct signal_count *row = NULL;
	struct window_head head;
	uint64_t end;

	if (!body || len < HEADED_BYTES || from->in.left)
		return false;
	window_head_load(&head, body);
	if (head.what != WINDOW_PUT || head.bytes != len - HEADED_BYTES ||
	    head.signal >= DICOMM_SIGNALS ||
	    head.context >= DICOMM_SIGNAL_CONTEXTS ||
	    !(row = from->signals[head.context]))
		return false;
	if (head.bytes) {
		while (w && w->id != head.window)
			w = w->next;
		if (!w || w->on_device ||
		    __builtin_add_overflow(head.offset, head.bytes, &end) ||
		    end > w->bytes)
			return false;
		window_copy(w->at + head.offset, body + HEADED_BYTES,
			    head.bytes);
	}
	row[head.signal].arrived++;
	comm->stats.messages_received++;
	comm->stats.bytes_received += head.bytes;
	comm->stats.bytes_ring += head.bytes;
	return true;
}

static dicomm_result_t take_head(struct dicomm_comm *comm, int source,
				 const uint8_t *body, uint64_t len)
{
	struct partner *from = partner_of(comm, source);
	struct window_head *head = &from->now;

	if (__builtin_expect(!body || len < HEADED_BYTES || from->in.left, 0))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "windows: rank %d sent %s of %llu bytes as a head, "
			    "and has %llu bytes to send",
			    source, body ? "a message" : "a reference",
			    (unsigned long long)len,
			    (unsigned long long)from->in.left);
	window_head_load(head, body);
	body += HEADED_BYTES;
	len -= HEADED_BYTES;
	if (head->what == WINDOW_GET)
		return len ? invalid(source, head) : reply(comm, source, head);
	if (head->what == WINDOW_REPLY)
		TRY(answered(source, from));
	else if (head->what != WINDOW_PUT ||
		 (head->signal != WINDOW_NO_SIGNAL &&
		  (head->signal >= DICOMM_SIGNALS ||
		   head->context >= DICOMM_SIGNAL_CONTEXTS)))
		return invalid(source, head);
	else if (head->bytes)
		TRY(locate(comm, source, head, &from->in.to, &from->reach));
	if (len && len != head->bytes)
		return invalid(source, head);
	if (len)
		TRY(deposit(comm, from, body, len));
	from->in.left = head->bytes - len;
	return from->in.left ? DICOMM_SUCCESS : complete(comm, source, from);
}

/* Some bytes of the transfer were taken. */
static dicomm_result_t took(struct dicomm_comm *comm, struct partner *from)
{
	if (!from->in.left) {
		from->in.left = from->later;
		from->later = 0;
	}
	return from->in.left ? DICOMM_SUCCESS
			     : complete(comm, from->in.peer->rank, from);
}

/* The device copies bytes of a neighbour that it sees. The message is released
 * when they are here. AGAIN: no staging buffer is free for its event, or the
 * neighbour has given up, of which this rank will hear. */
static dicomm_result_t fetch(struct dicomm_comm *comm, struct partner *from,
			     uint64_t seq, const void *src, uint64_t len)
{
	struct peer *peer = from->in.peer;
	struct stage *st = landing(comm, from);
	dicomm_result_t status;

	if (!st)
		return DICOMM_AGAIN;
	if (!device_ref_begin(peer)) {
		device_stage_free(comm->dev, st);
		from->landings--;
		return DICOMM_AGAIN;
	}
	st->from = peer;
	st->class = TP_WINDOW;
	st->seq = seq;
	st->mapped = false;
	status = copy_from(comm->dev, from, st, src, len);
	device_ref_end(comm->dev, peer, st, status);
	return status;
}

/* The host copies bytes that a device has written into host memory for it. */
static dicomm_result_t fetch_to_host(struct dicomm_comm *comm,
				     struct partner *from, uint64_t seq,
				     const void *src, uint64_t len)
{
	struct peer *peer = from->in.peer;

	memcpy(from->in.to, src, len);
	comm->stats.bytes_landed += len;
	message_consumed(peer, TP_WINDOW, seq);
	/* Its sender waits for that. */
	peer->transport->flush(peer->device);
	return DICOMM_SUCCESS;
}

/* Where the bytes of a memory reference are. A rank's own are where it says. */
static dicomm_result_t find(const struct dicomm_comm *comm,
			    const struct peer *peer,
			    const struct memory_ref *ref,
			    struct memory_place *place)
{
	if (peer->rank != comm->rank)
		return memory_ref_locate(comm, peer, ref, place);
	place->at = (const void *)(uintptr_t)ref->offset;
	place->seen = true;
	return DICOMM_SUCCESS;
}

/* Is it a message that says where the bytes are in memory of the peer? */
static bool refers(const struct dicomm_comm *comm, const struct peer *peer,
		   const struct tp_line *line)
{
	return (peer->has_peer_access || peer->rank == comm->rank) &&
	       line->signature == memory_ref_signature(WINDOW_BYTES);
}

static dicomm_result_t take_mem_ref(struct dicomm_comm *comm,
				    struct partner *from, uint64_t seq,
				    const struct tp_line *line)
{
	struct peer *peer = from->in.peer;
	const uint8_t *body = message_payload(window_channel(peer), seq, line);
	struct memory_place place = {NULL, false, false};
	struct memory_ref ref = {.bytes = 0};

	if (body && line->len == sizeof(ref))
		memcpy(&ref, body, sizeof(ref));
	if (!ref.bytes || ref.bytes > from->in.left)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "windows: rank %d sent a reference of %llu bytes, "
			    "to %llu, and has %llu to send",
			    peer->rank, (unsigned long long)line->len,
			    (unsigned long long)ref.bytes,
			    (unsigned long long)from->in.left);
	TRY(still_there(comm, peer->rank, from));
	TRY(find(comm, peer, &ref, &place));
	TRY((device_has_memory(comm->dev) ? fetch : fetch_to_host)(
		comm, from, seq, place.at, ref.bytes));
	from->in.to += ref.bytes;
	from->in.left -= ref.bytes;
	return took(comm, from);
}

static dicomm_result_t take_bytes(struct dicomm_comm *comm,
				  struct partner *from, uint64_t seq,
				  const struct tp_line *line)
{
	int source = from->in.peer->rank;
	const uint8_t *body;

	if (refers(comm, from->in.peer, line))
		return take_mem_ref(comm, from, seq, line);
	if (line->kind == TP_REF && line->len && line->len < from->in.left) {
		from->later = from->in.left - line->len;
		from->in.left = line->len;
	}
	TRY(message_receive_take(&from->in, seq, line, &body));
	TRY(still_there(comm, source, from));
	if (!body)
		return DICOMM_SUCCESS;
	TRY(deposit(comm, from, body, line->len));
	message_receive_copied(&from->in, seq, line->len);
	return took(comm, from);
}

/* Returns true if a transport brings the bytes to their place. */
static bool come_in_place(const struct dicomm_comm *comm,
			  const struct partner *from)
{
	const struct peer *peer = from->in.peer;

	return peer->by_reference &&
	       from->reach.transports >> __builtin_ctz(comm->ways[peer->rank]) &
		       1;
}

/* Move a part of what a reference refers to. */
static dicomm_result_t pull(struct dicomm_comm *comm, struct partner *from,
			    bool *moved)
{
	int source = from->in.peer->rank;
	uint64_t most = MESSAGE_PIECE, len;
	void *into = from->in.to;
	dicomm_result_t status;

	TRY(still_there(comm, source, from));
	if (device_has_memory(comm->dev) && !come_in_place(comm, from)) {
		if (!from->stage)
			from->stage = landing(comm, from);
		if (!from->stage)
			return DICOMM_SUCCESS;
		into = from->stage->at;
		if (most > comm->dev->stage_bytes)
			most = comm->dev->stage_bytes;
	}
	status = message_receive_piece(comm, &from->in, into, most, &len);
	if (status == DICOMM_AGAIN)
		return DICOMM_SUCCESS;
	TRY(status);
	if (from->stage)
		TRY(land(comm, from, from->stage, len));
	from->stage = NULL;
	*moved = true;
	message_receive_moved(&from->in, len);
	return took(comm, from);
}

dicomm_result_t incoming_one(struct dicomm_comm *comm, int rank, bool *moved,
			     bool *more)
{
	struct partner *from = partner_of(comm, rank);
	struct peer *peer = &comm->peers[rank];
	struct channel *channel = window_channel(peer);
	uint64_t seq = channel->in_base + 1;
	const struct tp_line *line;
	const uint8_t *body;
	dicomm_result_t status = DICOMM_SUCCESS;

	*more = false;
	if (__builtin_expect(from->lands, 0)) {
		status = landed(comm, rank, from);
		if (status == DICOMM_AGAIN)
			return DICOMM_SUCCESS;
		TRY(status);
		*moved = true;
	}
	if (from->in.seq) {
		TRY(pull(comm, from, moved));
		*more = !from->in.seq;
		return DICOMM_SUCCESS;
	}
	line = message_arrived(channel, seq);
	*more = line != NULL;
	if (!line)
		return DICOMM_SUCCESS;
	channel->in_base = seq;
	if (__builtin_expect(line->signature != WINDOW_HEAD, 0)) {
		status = take_bytes(comm, from, seq, line);
	} else {
		body = message_payload(channel, seq, line);
		if (!take_whole(comm, from, body, line->len))
			status = take_head(comm, rank, body, line->len);
		if (status == DICOMM_SUCCESS)
			message_consumed(peer, TP_WINDOW, seq);
	}
	if (__builtin_expect(status == DICOMM_AGAIN, 0)) {
		channel->in_base = seq - 1;
		*more = false;
		return DICOMM_SUCCESS;
	}
	*moved = true;
	return status;
}

dicomm_result_t incoming_turn(struct dicomm_comm *comm, int rank, bool *moved)
{
	bool more = true;

	for (int i = 0; more && i < WINDOW_BUDGET; i++)
		TRY(incoming_one(comm, rank, moved, &more));
	return DICOMM_SUCCESS;
}
