/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives with a tag: matches them, and moves their messages. */
#include "src/engine/tagged.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/type.h"
#include "src/core/connect.h"
#include "src/core/fault.h"
#include "src/core/memory.h"
#include "src/core/message.h"
#include "src/core/paths.h"
#include "src/engine/step.h"

/* Signature of messages that begin with a head; all others have the number of
 * an offer. */
#define HEAD UINT32_MAX
/* What an eager message costs beside its bytes, where it is unexpected */
#define COST 64
/* Bytes copied, and messages taken or put, in one turn */
#define PIECE_BYTES (UINT64_C(1) << 20)
#define TURN_BUDGET 64

enum what { EAGER, OFFER, READY, TAKEN };

struct head {
	uint32_t what, type;
	int32_t tag;
	uint32_t id; /* of the offer */
	uint64_t count;
	uint64_t taken; /* bytes lent by the receiver of this head */
};

/* A message for which no receive was posted yet */
struct unexpected {
	struct unexpected *next;
	int source;
	struct head head;
	uint8_t body[];
};

struct partner {
	/* Sends that are not done, in call order */
	struct operation *sends;
	/* Receives whose offer was found and whose bytes are to come */
	struct operation *recvs;
	uint32_t offers;         /* so far */
	uint64_t lent, returned; /* to the peer */
	uint64_t taken, told;    /* of what the peer lent */
	uint64_t borrowed;       /* all that the peer lent, taken or not */
	/* Heads, and the bytes of eager messages, while they are sent: a place
	 * for each slot */
	uint8_t *room;
};

struct tagged {
	uint64_t calls;
	struct operation
		*posted; /* receives without a message, in call order */
	struct unexpected *first, **last; /* in order of arrival */
	struct partner partners[];        /* [ranks] */
};

static void append(struct operation **list, struct operation *op)
{
	while (*list)
		list = &(*list)->tagged.next;
	op->tagged.next = NULL;
	*list = op;
}

static void unlink_from(struct operation **list, const struct operation *op)
{
	while (*list && *list != op)
		list = &(*list)->tagged.next;
	if (*list)
		*list = op->tagged.next;
}

static size_t bytes_of(const struct operation *op)
{
	return op->call.count * type_bytes(op->call.type);
}

static struct partner *partner_of(const struct dicomm_comm *comm, int rank)
{
	return &comm->tagged->partners[rank];
}

static struct channel *channel_of(struct peer *peer)
{
	return &peer->channel[TP_TAGGED];
}

static size_t room_stride(void)
{
	return sizeof(struct head) + TAGGED_EAGER;
}

static size_t eager_bytes(const struct peer *peer)
{
	size_t most = peer->limits.eager_bytes - sizeof(struct head);

	return most < TAGGED_EAGER ? most : TAGGED_EAGER;
}

/* ---- to a peer ---- */

static dicomm_result_t connect_to(struct dicomm_comm *comm, int rank)
{
	struct partner *to = partner_of(comm, rank);
	struct peer *peer;
	dicomm_result_t status;

	TRY(comm_peer(comm, rank, &peer));
	if (peer->limits.eager_bytes <= sizeof(struct head))
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "rank %d: %s sends no message with a tag there",
			    rank, peer->transport->name);
	if (!to->room)
		to->room = malloc(peer->limits.slots * room_stride());
	if (!to->room)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "tags: no memory for messages to rank %d", rank);
	/* The messages wait until it is connected. */
	status = comm_connect_out(peer, TP_TAGGED);
	return status == DICOMM_AGAIN ? DICOMM_SUCCESS : status;
}

static dicomm_result_t may_leave(struct peer *peer, uint64_t seq)
{
	TRY(comm_connect_out(peer, TP_TAGGED));
	return message_may_leave(peer, channel_of(peer), seq, false)
		       ? DICOMM_SUCCESS
		       : DICOMM_AGAIN;
}

/* Put the next message. AGAIN: later. */
static dicomm_result_t put(struct peer *peer, uint32_t signature,
			   enum tp_kind kind, const void *body, uint64_t len)
{
	struct channel *channel = channel_of(peer);
	uint64_t seq = channel->out_base + 1;
	dicomm_result_t status;

	TRY(may_leave(peer, seq));
	status = peer->transport->put(peer->tp, TP_TAGGED, seq, signature, kind,
				      body, len);
	if (status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS)
		channel->out_base = seq;
	return status;
}

static dicomm_result_t put_head(struct dicomm_comm *comm, int rank,
				struct head head, const void *body, size_t len)
{
	struct peer *peer = &comm->peers[rank];
	struct partner *to = partner_of(comm, rank);
	struct channel *channel = channel_of(peer);
	uint64_t seq = channel->out_base + 1;
	uint8_t *room = to->room + seq % peer->limits.slots * room_stride();
	dicomm_result_t status;

	/* Before that, the transport may still read the room. */
	TRY(may_leave(peer, seq));
	head.taken = to->taken;
	memcpy(room, &head, sizeof(head));
	if (len)
		memcpy(room + sizeof(head), body, len);
	status = put(peer, HEAD, TP_DATA, room, sizeof(head) + len);
	if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
		return status;
	to->told = head.taken;
	/* Nobody waits for a count: this rank may leave before it was
	 * received. */
	if (head.what != TAKEN)
		channel->out_last = seq;
	return DICOMM_SUCCESS;
}

static struct head head_of(const struct operation *op, enum what what)
{
	return (struct head){.what = what,
			     .type = op->call.type,
			     .tag = op->call.tag,
			     .id = op->tagged.id,
			     .count = op->call.count};
}

static void done(struct operation *op)
{
	const struct call *call = &op->call;

	op->tagged.state = TAGGED_DONE;
	if (call->coll == COLL_SEND) {
		unlink_from(&partner_of(op->comm, call->root)->sends, op);
		op->comm->stats.messages_sent++;
		op->comm->stats.bytes_sent += bytes_of(op);
		return;
	}
	op->comm->stats.messages_received++;
	op->comm->stats.bytes_received += bytes_of(op);
	if (call->status)
		*call->status = (dicomm_status_t){.source = call->root,
						  .tag = call->tag,
						  .count = call->count};
}

/* Tell the peer that there is a message: all of it, or that it is here. */
static dicomm_result_t announce(struct operation *op)
{
	int rank = op->call.root;
	struct partner *to = partner_of(op->comm, rank);
	size_t bytes = bytes_of(op), cost = bytes + COST;

	if (bytes <= eager_bytes(&op->comm->peers[rank]) &&
	    to->lent - to->returned + cost <= TAGGED_LENT) {
		TRY(put_head(op->comm, rank, head_of(op, EAGER), op->call.send,
			     bytes));
		to->lent += cost;
		done(op);
		return DICOMM_SUCCESS;
	}
	op->tagged.id = to->offers % HEAD;
	TRY(put_head(op->comm, rank, head_of(op, OFFER), NULL, 0));
	to->offers++;
	op->tagged.state = TAGGED_OFFERED;
	return DICOMM_SUCCESS;
}

/* Is one reference better than many messages? */
static bool refer(const struct operation *op, struct peer *peer,
		  struct tp_ref *ref)
{
	uint64_t bytes = bytes_of(op);

	if (bytes < op->comm->map_threshold || peer->limits.prefers_eager ||
	    (!peer->transport->intra_node && bytes <= peer->limits.eager_bytes))
		return false;
	return peer->transport->offer(peer->tp, op->call.send, bytes,
				      TP_WANT_COPY, ref);
}

/* The receiver is ready: send the bytes. */
static dicomm_result_t push(struct operation *op)
{
	struct peer *peer = &op->comm->peers[op->call.root];
	struct channel *channel = channel_of(peer);
	struct tagged_op *t = &op->tagged;
	uint64_t bytes = bytes_of(op);
	struct tp_ref ref;
	dicomm_result_t status;

	if (!t->moved && refer(op, peer, &ref)) {
		TRY(put(peer, t->id, TP_REF, &ref, bytes));
		t->moved = bytes;
		t->seq = channel->out_last = channel->out_base;
	}
	for (int i = 0; t->moved < bytes && i < TURN_BUDGET; i++) {
		uint64_t len = bytes - t->moved;

		if (len > peer->limits.eager_bytes)
			len = peer->limits.eager_bytes;
		status = put(peer, t->id, TP_DATA,
			     (const uint8_t *)op->call.send + t->moved, len);
		if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
			return status;
		t->moved += len;
		channel->out_last = channel->out_base;
		if (status == DICOMM_IN_PROGRESS)
			t->seq = channel->out_base;
	}
	if (t->moved < bytes ||
	    atomic_load_explicit(channel->out.released, memory_order_acquire) <
		    t->seq)
		return DICOMM_AGAIN;
	done(op);
	return DICOMM_SUCCESS;
}

/* Sends to a peer become known in call order, since messages of one tag must
 * not overtake each other. */
static dicomm_result_t progress_sends(struct partner *to, bool *progressed)
{
	struct operation *op = to->sends, *next;
	bool blocked = false;

	for (; op; op = next) {
		dicomm_result_t status = DICOMM_AGAIN;
		uint64_t moved = op->tagged.moved;

		next = op->tagged.next;
		if (op->tagged.state == TAGGED_MOVING) {
			status = push(op);
		} else if (op->tagged.state == TAGGED_POSTED && !blocked) {
			status = announce(op);
			blocked = status == DICOMM_AGAIN;
		}
		if (status == DICOMM_SUCCESS || op->tagged.moved != moved)
			*progressed = true;
		else if (status != DICOMM_AGAIN)
			return status;
	}
	return DICOMM_SUCCESS;
}

/* ---- from a peer ---- */

static dicomm_result_t disagree(struct operation *op, int source,
				const struct head *head)
{
	struct call theirs = {.coll = COLL_SEND,
			      .type = (dicomm_datatype_t)head->type,
			      .count = head->count,
			      .tag = head->tag};
	char mine[128], other[128];

	call_text(&op->call, mine, sizeof(mine));
	call_text(&theirs, other, sizeof(other));
	return fault_raise(op->comm, DICOMM_ERR_INVALID_USAGE, source, true,
			   "ranks disagree about a message from rank %d to "
			   "rank %d: rank %d called %s, rank %d called %s",
			   source, op->comm->rank, op->comm->rank, mine, source,
			   other);
}

/* The message is this receive's. */
static dicomm_result_t match(struct operation *op, int source,
			     const struct head *head, const void *body)
{
	struct dicomm_comm *comm = op->comm;
	struct partner *from = partner_of(comm, source);
	size_t bytes = bytes_of(op);

	op->call.root = source;
	if (head->type != (uint32_t)op->call.type ||
	    head->count != op->call.count)
		return disagree(op, source, head);
	if (head->what == EAGER) {
		if (bytes)
			memcpy(op->call.recv, body, bytes);
		from->taken += bytes + COST;
		comm->stats.bytes_ring += bytes;
		done(op);
		return DICOMM_SUCCESS;
	}
	TRY(connect_to(comm, source));
	if (comm->peers[source].limits.needs_mem_reg && bytes)
		TRY(comm_mem_register(comm, op->call.recv, bytes, true,
				      &op->handles[PLAN_RECV]));
	op->tagged.id = head->id;
	op->tagged.state = TAGGED_FOUND;
	append(&from->recvs, op);
	return DICOMM_SUCCESS;
}

static bool fits(const struct operation *op, int source, int tag)
{
	return op->call.tag == tag &&
	       (op->call.root < 0 || op->call.root == source);
}

static dicomm_result_t keep(struct tagged *t, int source,
			    const struct head *head, const void *body,
			    size_t len)
{
	struct unexpected *u = malloc(sizeof(*u) + len);

	if (!u)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "tags: no memory for a message of %zu bytes from "
			    "rank %d with tag %d",
			    len, source, head->tag);
	u->next = NULL;
	u->source = source;
	u->head = *head;
	if (len)
		memcpy(u->body, body, len);
	*t->last = u;
	t->last = &u->next;
	return DICOMM_SUCCESS;
}

/* Is that what a peer may announce? It sends no more bytes than it may lend. */
static bool is_message(struct partner *from, const struct head *head,
		       size_t len)
{
	if (!type_valid((dicomm_datatype_t)head->type))
		return false;
	if (head->what == OFFER)
		return !len && head->id != HEAD;
	if (head->count > TAGGED_EAGER ||
	    len != head->count * type_bytes((dicomm_datatype_t)head->type))
		return false;
	from->borrowed += len + COST;
	return from->borrowed - from->taken <= TAGGED_LENT;
}

/* A message or an offer has come. */
static dicomm_result_t arrive(struct dicomm_comm *comm, int source,
			      const struct head *head, const void *body,
			      size_t len)
{
	struct tagged *t = comm->tagged;
	struct operation *op = t->posted;

	if (!is_message(partner_of(comm, source), head, len))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "tags: rank %d sent %zu bytes as %s %u of %llu "
			    "elements of type %u",
			    source, len,
			    head->what == OFFER ? "offer" : "message", head->id,
			    (unsigned long long)head->count, head->type);
	while (op && !fits(op, source, head->tag))
		op = op->tagged.next;
	if (!op)
		return keep(t, source, head, body, len);
	unlink_from(&t->posted, op);
	return match(op, source, head, body);
}

static dicomm_result_t answered(struct dicomm_comm *comm, int source,
				uint32_t id)
{
	struct operation *op = partner_of(comm, source)->sends;

	while (op &&
	       (op->tagged.state != TAGGED_OFFERED || op->tagged.id != id))
		op = op->tagged.next;
	if (!op)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "tags: rank %d is ready for offer %u, which is "
			    "none",
			    source, id);
	op->tagged.state = TAGGED_MOVING;
	return DICOMM_SUCCESS;
}

static dicomm_result_t take_head(struct dicomm_comm *comm, int source,
				 const uint8_t *body, uint64_t len)
{
	struct partner *from = partner_of(comm, source);
	struct head head;

	if (!body || len < sizeof(head) || len > room_stride())
		return FAIL(DICOMM_ERR_INTERNAL,
			    "tags: rank %d sent %s of %llu bytes as a head",
			    source, body ? "a message" : "a reference",
			    (unsigned long long)len);
	memcpy(&head, body, sizeof(head));
	if (head.what > TAKEN || head.taken < from->returned ||
	    head.taken > from->lent ||
	    (head.what >= READY && len > sizeof(head)))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "tags: rank %d sent a head %u with %llu bytes "
			    "behind it, which returns %llu of %llu bytes",
			    source, head.what,
			    (unsigned long long)(len - sizeof(head)),
			    (unsigned long long)head.taken,
			    (unsigned long long)from->lent);
	from->returned = head.taken;
	switch (head.what) {
	case EAGER:
	case OFFER:
		return arrive(comm, source, &head, body + sizeof(head),
			      len - sizeof(head));
	case READY:
		return answered(comm, source, head.id);
	default:
		return DICOMM_SUCCESS;
	}
}

/* Bytes of a message that was offered, or a reference to them */
static dicomm_result_t take_bytes(struct dicomm_comm *comm, int source,
				  uint64_t seq, const struct tp_line *line)
{
	struct peer *peer = &comm->peers[source];
	struct partner *from = partner_of(comm, source);
	struct operation *op = from->recvs;
	const uint8_t *body = message_payload(channel_of(peer), seq, line);
	uint64_t left;

	while (op && (op->tagged.state != TAGGED_MOVING ||
		      op->tagged.id != line->signature))
		op = op->tagged.next;
	left = op ? bytes_of(op) - op->tagged.moved : 0;
	if (!op || !line->len || line->len > left ||
	    (!body && (line->kind != TP_REF || line->len != left)))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "tags: rank %d sent %llu bytes of kind %u for "
			    "offer %u, of which %llu are to come",
			    source, (unsigned long long)line->len, line->kind,
			    line->signature, (unsigned long long)left);
	if (!body) {
		memcpy(&op->tagged.ref, line->room, sizeof(op->tagged.ref));
		op->tagged.seq = seq;
		op->tagged.state = TAGGED_READING;
		return DICOMM_SUCCESS;
	}
	memcpy((uint8_t *)op->call.recv + op->tagged.moved, body, line->len);
	comm->stats.bytes_ring += line->len;
	op->tagged.moved += line->len;
	message_consumed(peer, TP_TAGGED, seq);
	if (line->len == left) {
		unlink_from(&from->recvs, op);
		done(op);
	}
	return DICOMM_SUCCESS;
}

/* Take all that has come from a peer. */
static dicomm_result_t drain(struct dicomm_comm *comm, struct peer *peer,
			     bool *progressed)
{
	struct channel *channel = channel_of(peer);
	dicomm_result_t status;

	if (!channel->in.lines) {
		status = comm_connect_in(comm, peer, TP_TAGGED);
		if (status == DICOMM_AGAIN)
			return DICOMM_SUCCESS;
		TRY(status);
	}
	for (int i = 0; i < TURN_BUDGET; i++) {
		uint64_t seq = channel->in_base + 1;
		const struct tp_line *line;

		if (!message_in_reach(channel, seq))
			break;
		line = message_arrived(channel, seq);
		if (!line)
			break;
		channel->in_base = seq;
		*progressed = true;
		if (line->signature != HEAD) {
			TRY(take_bytes(comm, peer->rank, seq, line));
			continue;
		}
		TRY(take_head(comm, peer->rank,
			      message_payload(channel, seq, line), line->len));
		message_consumed(peer, TP_TAGGED, seq);
	}
	return DICOMM_SUCCESS;
}

/* Read a part of what a reference refers to. */
static dicomm_result_t read_part(struct operation *op, struct peer *peer,
				 uint64_t *len)
{
	struct tagged_op *t = &op->tagged;
	uint8_t *at = (uint8_t *)op->call.recv + t->moved;
	uint64_t bytes = bytes_of(op);
	dicomm_result_t status;
	const void *src;

	if (t->reading) {
		*len = t->reading;
		return peer->transport->read_status(peer->tp, TP_TAGGED,
						    t->seq);
	}
	*len = bytes - t->moved < PIECE_BYTES ? bytes - t->moved : PIECE_BYTES;
	status = peer->transport->map(peer->tp, &t->ref, bytes, &src);
	if (status == DICOMM_SUCCESS) {
		memcpy(at, (const uint8_t *)src + t->moved, *len);
		op->comm->stats.bytes_mapped += *len;
		return step_intact(peer);
	}
	if (status != DICOMM_ERR_UNSUPPORTED)
		return status;
	status = step_read(op->comm, peer, TP_TAGGED, t->seq, &t->ref, t->moved,
			   at, *len);
	if (status == DICOMM_IN_PROGRESS)
		t->reading = *len;
	return status;
}

static dicomm_result_t pull(struct operation *op, struct partner *from,
			    bool *progressed)
{
	struct peer *peer = &op->comm->peers[op->call.root];
	struct tagged_op *t = &op->tagged;
	uint64_t len;
	dicomm_result_t status = read_part(op, peer, &len);

	if (status == DICOMM_IN_PROGRESS || status == DICOMM_AGAIN)
		return DICOMM_SUCCESS;
	TRY(status);
	*progressed = true;
	t->reading = 0;
	t->moved += len;
	if (t->moved < bytes_of(op)) {
		/* A sender in this process that aborts waits for whoever reads
		 * its memory. */
		peer->transport->release(peer->tp, TP_TAGGED,
					 message_done(channel_of(peer)));
		return DICOMM_SUCCESS;
	}
	message_consumed(peer, TP_TAGGED, t->seq);
	unlink_from(&from->recvs, op);
	done(op);
	return DICOMM_SUCCESS;
}

static dicomm_result_t progress_recvs(struct dicomm_comm *comm, int rank,
				      bool *progressed)
{
	struct partner *from = partner_of(comm, rank);
	struct operation *op = from->recvs, *next;
	dicomm_result_t status;

	for (; op; op = next) {
		next = op->tagged.next;
		if (op->tagged.state == TAGGED_READING)
			TRY(pull(op, from, progressed));
		if (op->tagged.state != TAGGED_FOUND)
			continue;
		status = put_head(comm, rank, head_of(op, READY), NULL, 0);
		if (status == DICOMM_AGAIN)
			continue;
		TRY(status);
		*progressed = true;
		op->tagged.state = TAGGED_MOVING;
		if (bytes_of(op))
			continue;
		unlink_from(&from->recvs, op);
		done(op);
	}
	/* Before the first answer there is no channel to that rank. It offers
	 * what it may not lend, so there will be one. */
	if (from->taken - from->told < TAGGED_LENT / 4 ||
	    !channel_of(&comm->peers[rank])->out.released)
		return DICOMM_SUCCESS;
	status = put_head(comm, rank, (struct head){.what = TAKEN}, NULL, 0);
	return status == DICOMM_AGAIN ? DICOMM_SUCCESS : status;
}

static dicomm_result_t progress(struct dicomm_comm *comm, int rank,
				bool *progressed)
{
	struct peer *peer;

	TRY(comm_peer(comm, rank, &peer));
	TRY(drain(comm, peer, progressed));
	TRY(progress_sends(partner_of(comm, rank), progressed));
	return progress_recvs(comm, rank, progressed);
}

/* ---- operations ---- */

static dicomm_result_t begin(struct dicomm_comm *comm)
{
	struct tagged *t;

	if (comm->tagged)
		return DICOMM_SUCCESS;
	t = calloc(1,
		   sizeof(*t) + (size_t)comm->ranks * sizeof(t->partners[0]));
	if (!t)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "tags: no memory for %d ranks", comm->ranks);
	t->last = &t->first;
	comm->tagged = t;
	return DICOMM_SUCCESS;
}

static dicomm_result_t post_send(struct operation *op)
{
	struct dicomm_comm *comm = op->comm;
	int rank = op->call.root;

	TRY(connect_to(comm, rank));
	/* Long messages are offered, and may be read from where they are. */
	if (comm->peers[rank].limits.needs_mem_reg &&
	    bytes_of(op) > comm->peers[rank].limits.eager_bytes)
		TRY(comm_mem_register(comm, op->call.send, bytes_of(op), false,
				      &op->handles[PLAN_SEND]));
	append(&partner_of(comm, rank)->sends, op);
	return DICOMM_SUCCESS;
}

static dicomm_result_t post_recv(struct operation *op)
{
	struct tagged *t = op->comm->tagged;
	struct unexpected **at = &t->first, *u;
	dicomm_result_t status;

	while (*at && !fits(op, (*at)->source, (*at)->head.tag))
		at = &(*at)->next;
	u = *at;
	if (!u) {
		append(&t->posted, op);
		return DICOMM_SUCCESS;
	}
	*at = u->next;
	if (!u->next)
		t->last = at;
	status = match(op, u->source, &u->head, u->body);
	free(u);
	return status;
}

dicomm_result_t tagged_post(struct operation *op)
{
	TRY(begin(op->comm));
	op->tagged = (struct tagged_op){.state = TAGGED_POSTED};
	op->number = ++op->comm->tagged->calls;
	op->comm->stats.operations++;
	return op->call.coll == COLL_SEND ? post_send(op) : post_recv(op);
}

/* Look at all ranks that may send. */
static dicomm_result_t progress_all(struct operation *op, bool *progressed)
{
	struct dicomm_comm *comm = op->comm;

	for (int r = 0; r < comm->ranks; r++)
		if (comm->peers[r].transports && op->call.root < 0)
			TRY(progress(comm, r, progressed));
	return DICOMM_SUCCESS;
}

enum schedule_result tagged_turn(struct operation *op, bool *progressed)
{
	struct dicomm_comm *comm = op->comm;
	dicomm_result_t status = DICOMM_SUCCESS;

	if (op->tagged.state != TAGGED_DONE)
		status = op->call.root < 0
				 ? progress_all(op, progressed)
				 : progress(comm, op->call.root, progressed);
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, op->call.root);
	return op->tagged.state == TAGGED_DONE ? SCHEDULE_DONE : SCHEDULE_AGAIN;
}

void tagged_drop(struct operation *op)
{
	struct tagged *t = op->comm->tagged;

	if (!t)
		return;
	unlink_from(&t->posted, op);
	if (op->call.root < 0)
		return;
	unlink_from(&t->partners[op->call.root].sends, op);
	unlink_from(&t->partners[op->call.root].recvs, op);
}

void tagged_free(struct dicomm_comm *comm)
{
	struct tagged *t = comm->tagged;

	for (struct unexpected *u = t ? t->first : NULL, *next; u; u = next) {
		next = u->next;
		free(u);
	}
	for (int r = 0; t && r < comm->ranks; r++)
		free(t->partners[r].room);
	free(t);
	comm->tagged = NULL;
}
