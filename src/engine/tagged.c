/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives with a tag: matches them, and moves their messages. */
#include "src/engine/tagged.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/type.h"
#include "src/core/fault.h"
#include "src/core/memory.h"
#include "src/core/paths.h"
#include "src/engine/engine.h"
#include "src/engine/matching.h"
#include "src/engine/order.h"
#include "src/engine/step.h"
#include "src/message/headed.h"
#include "src/message/receive.h"

/* Signature of messages that begin with a head; all others have the number of
 * an offer. */
#define HEAD UINT32_MAX
/* What an eager message costs beside its bytes, where it is unexpected */
#define COST 64

enum what { EAGER, OFFER, READY, TAKEN };

struct head {
	uint32_t what, type;
	int32_t tag;
	uint32_t id; /* of the offer */
	uint64_t count;
	uint64_t taken; /* bytes lent by the receiver of this head */
};
_Static_assert(sizeof(struct head) == HEADED_BYTES, "as it travels");

/* A message for which no receive was posted yet, or none that has begun */
struct unexpected {
	struct arrival arrival; /* first */
	struct head head;
	uint8_t body[];
};

struct partner {
	/* Sends that have begun, by what is next: to announce them, to hear
	 * that the receiver is ready, to send their bytes */
	struct op_list ready, offered, pushed;
	/* Receives that have begun and whose offer was found, by what is next:
	 * to say so, to take their bytes, to read what a reference refers to */
	struct op_list found, coming, read;
	/* The last operation of the driver that looks for messages of this
	 * peer */
	struct operation *last_look;
	uint32_t offers;            /* so far */
	uint64_t lent, returned;    /* to the peer */
	uint64_t taken, told;       /* of what the peer lent */
	uint64_t borrowed;          /* all that the peer lent, taken or not */
	struct headed_places heads; /* with the bytes of eager messages */
};

struct tagged {
	uint64_t calls;
	struct matching matching;
	const struct operation *turning; /* whose turn it is */
	struct operation *last_look;     /* as of a partner: at all peers */
	struct partner partners[];       /* [ranks] */
};

static struct partner *partner_of(const struct dicomm_comm *comm, int rank)
{
	return &comm->tagged->partners[rank];
}

static struct channel *channel_of(struct peer *peer)
{
	return &peer->channel[TP_TAGGED];
}

/* ---- to a peer ---- */

static dicomm_result_t connect_to(struct dicomm_comm *comm, int rank)
{
	return headed_connect(comm, rank, TP_TAGGED,
			      &partner_of(comm, rank)->heads);
}

/* AGAIN: later. */
static dicomm_result_t put_head(struct dicomm_comm *comm, int rank,
				struct head head, const void *body, size_t len)
{
	struct peer *peer = &comm->peers[rank];
	struct partner *to = partner_of(comm, rank);
	struct channel *channel = channel_of(peer);
	uint64_t last = channel->out_last;
	uint8_t *at;

	TRY(channel_connect_out(peer, TP_TAGGED));
	at = headed_place(&to->heads, peer, TP_TAGGED);
	if (!at)
		return DICOMM_AGAIN;
	head.taken = to->taken;
	memcpy(at, &head, sizeof(head));
	if (len)
		memcpy(at + sizeof(head), body, len);
	TRY(message_put_next(peer, TP_TAGGED, HEAD, TP_DATA, at,
			     sizeof(head) + len, NULL));
	to->told = head.taken;
	/* Nobody waits for a count: this rank may leave before it was
	 * received. */
	if (head.what == TAKEN)
		channel->out_last = last;
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
	if (op != op->comm->tagged->turning)
		order_wake(op);
	if (call->function == CALL_SEND) {
		op->comm->stats.messages_sent++;
		op->comm->stats.bytes_sent += op->tagged.bytes;
		return;
	}
	op->comm->stats.messages_received++;
	op->comm->stats.bytes_received += op->tagged.bytes;
	if (call->status)
		*call->status = (dicomm_status_t){.source = call->root,
						  .tag = call->tag,
						  .count = call->count};
}

/* The send is known to the peer, so the next one of its tag may follow. */
static void leave_line(struct operation *op)
{
	struct partner *to = partner_of(op->comm, op->call.root);
	struct operation *next;

	op_list_remove(&to->ready, op);
	next = matching_told(&op->comm->tagged->matching, op);
	if (next)
		op_list_append(&to->ready, next);
}

/* Tell the peer that there is a message: all of it, or that it is here. */
static dicomm_result_t announce(struct operation *op)
{
	int rank = op->call.root;
	struct partner *to = partner_of(op->comm, rank);
	size_t bytes = op->tagged.bytes, cost = bytes + COST;

	if (bytes <= to->heads.eager &&
	    to->lent - to->returned + cost <= TAGGED_LENT) {
		TRY(put_head(op->comm, rank, head_of(op, EAGER), op->call.send,
			     bytes));
		to->lent += cost;
		leave_line(op);
		done(op);
		return DICOMM_SUCCESS;
	}
	op->tagged.id = to->offers % HEAD;
	TRY(put_head(op->comm, rank, head_of(op, OFFER), NULL, 0));
	to->offers++;
	op->tagged.state = TAGGED_OFFERED;
	leave_line(op);
	op_list_append(&to->offered, op);
	return DICOMM_SUCCESS;
}

/* The receivers are ready: send the bytes. */
static dicomm_result_t push_all(struct partner *to, bool *progressed)
{
	for (struct operation *op = to->pushed.first, *next; op; op = next) {
		struct message_send *out = &op->tagged.out;
		dicomm_result_t status = message_send_turn(out, progressed);

		next = op->tagged.next;
		/* It lacks a slot, and so do those behind it. */
		if (status == DICOMM_AGAIN)
			break;
		TRY(status);
		if (!message_send_released(out))
			continue;
		*progressed = true;
		op_list_remove(&to->pushed, op);
		done(op);
	}
	return DICOMM_SUCCESS;
}

/* Sends of one tag to a peer become known in call order, since their messages
 * must not overtake each other. */
static dicomm_result_t progress_sends(struct partner *to, bool *progressed)
{
	while (to->ready.first) {
		dicomm_result_t status = announce(to->ready.first);

		if (status == DICOMM_AGAIN)
			break;
		TRY(status);
		*progressed = true;
	}
	return push_all(to, progressed);
}

/* ---- from a peer ---- */

static dicomm_result_t disagree(struct operation *op, int source,
				const struct head *head)
{
	struct call theirs = {.function = CALL_SEND,
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

/* The message is this receive's, which has begun. */
static dicomm_result_t receive(struct operation *op, const struct head *head,
			       const void *body)
{
	struct dicomm_comm *comm = op->comm;
	int source = op->call.root;
	struct partner *from = partner_of(comm, source);
	size_t bytes = op->tagged.bytes;

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
	op->tagged.in = (struct message_receive){.peer = &comm->peers[source],
						 .class = TP_TAGGED,
						 .signature = head->id,
						 .to = op->call.recv,
						 .left = bytes};
	op->tagged.state = TAGGED_FOUND;
	op_list_append(&from->found, op);
	return DICOMM_SUCCESS;
}

static dicomm_result_t copy(int source, const struct head *head,
			    const void *body, size_t len,
			    struct unexpected **out)
{
	struct unexpected *u = malloc(sizeof(*u) + len);

	if (!u)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "tags: no memory for a message of %zu bytes from "
			    "rank %d with tag %d",
			    len, source, head->tag);
	u->arrival.source = source;
	u->arrival.tag = head->tag;
	u->head = *head;
	if (len)
		memcpy(u->body, body, len);
	*out = u;
	return DICOMM_SUCCESS;
}

/* The message is this receive's, which may have to begin first. */
static dicomm_result_t match(struct operation *op, int source,
			     const struct head *head, const void *body,
			     size_t len)
{
	struct unexpected *u;

	op->call.root = source;
	if (head->type != (uint32_t)op->call.type ||
	    head->count != op->call.count)
		return disagree(op, source, head);
	if (op->tagged.begun)
		return receive(op, head, body);
	TRY(copy(source, head, body, len, &u));
	op->tagged.kept = &u->arrival;
	return DICOMM_SUCCESS;
}

static dicomm_result_t keep(struct tagged *t, int source,
			    const struct head *head, const void *body,
			    size_t len)
{
	struct unexpected *u;

	TRY(copy(source, head, body, len, &u));
	if (matching_keep(&t->matching, &u->arrival))
		return DICOMM_SUCCESS;
	free(u);
	return FAIL(DICOMM_ERR_NO_MEMORY,
		    "tags: no memory for messages from rank %d with tag %d",
		    source, head->tag);
}

/* Is that what a peer may announce? It sends no more bytes than it may lend. */
static bool is_message(struct partner *from, const struct head *head,
		       size_t len)
{
	size_t each = type_bytes((dicomm_datatype_t)head->type);

	if (!each)
		return false;
	if (head->what == OFFER)
		return !len && head->id != HEAD;
	if (head->count > HEADED_EAGER || len != head->count * each)
		return false;
	from->borrowed += len + COST;
	return from->borrowed - from->taken <= TAGGED_LENT;
}

/* A message or an offer has come. */
static dicomm_result_t arrive(struct dicomm_comm *comm, int source,
			      const struct head *head, const void *body,
			      size_t len, bool *to_any)
{
	struct tagged *t = comm->tagged;
	unsigned anys = t->matching.anys;
	struct operation *op;

	if (!is_message(partner_of(comm, source), head, len))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "tags: rank %d sent %zu bytes as %s %u of %llu "
			    "elements of type %u",
			    source, len,
			    head->what == OFFER ? "offer" : "message", head->id,
			    (unsigned long long)head->count, head->type);
	op = matching_receive(&t->matching, source, head->tag);
	*to_any = t->matching.anys != anys;
	return op ? match(op, source, head, body, len)
		  : keep(t, source, head, body, len);
}

static dicomm_result_t answered(struct dicomm_comm *comm, int source,
				uint32_t id)
{
	struct partner *to = partner_of(comm, source);
	struct operation *op = to->offered.first;

	while (op && op->tagged.id != id)
		op = op->tagged.next;
	if (!op)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "tags: rank %d is ready for offer %u, which "
			    "does not exist",
			    source, id);
	op->tagged.state = TAGGED_MOVING;
	op->tagged.out =
		(struct message_send){.peer = &comm->peers[source],
				      .class = TP_TAGGED,
				      .signature = id,
				      .from = op->call.send,
				      .bytes = op->tagged.bytes,
				      .threshold = comm->map_threshold};
	op_list_remove(&to->offered, op);
	op_list_append(&to->pushed, op);
	return DICOMM_SUCCESS;
}

static dicomm_result_t take_head(struct dicomm_comm *comm, int source,
				 const uint8_t *body, uint64_t len,
				 bool *to_any)
{
	struct partner *from = partner_of(comm, source);
	struct head head;

	if (!body || len < sizeof(head) || len > HEADED_STRIDE)
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
			      len - sizeof(head), to_any);
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
	struct partner *from = partner_of(comm, source);
	struct operation *op = from->coming.first;
	struct message_receive *in;
	const uint8_t *body;

	while (op && op->tagged.id != line->signature)
		op = op->tagged.next;
	if (!op)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "tags: rank %d sent %llu bytes of kind %u for "
			    "offer %u, which does not exist",
			    source, (unsigned long long)line->len, line->kind,
			    line->signature);
	in = &op->tagged.in;
	TRY(message_receive_take(in, seq, line, &body));
	if (!body) {
		op->tagged.state = TAGGED_READING;
		op_list_remove(&from->coming, op);
		op_list_append(&from->read, op);
		return DICOMM_SUCCESS;
	}
	memcpy(in->to, body, line->len);
	comm->stats.bytes_ring += line->len;
	/* From here on, the peer may write the line again. */
	message_receive_copied(in, seq, line->len);
	if (!in->left) {
		op_list_remove(&from->coming, op);
		done(op);
	}
	return DICOMM_SUCCESS;
}

/* Take what has come from a peer: all that fits into its slots, but no more
 * after a message that a receive from any source got. So each peer gets at most
 * one of those each time that all peers are looked at. */
static dicomm_result_t drain(struct dicomm_comm *comm, struct peer *peer,
			     bool *progressed)
{
	struct channel *channel = channel_of(peer);
	bool to_any = false;

	for (uint32_t i = 0; i < peer->limits.slots && !to_any; i++) {
		uint64_t seq = channel->in_base + 1;
		dicomm_result_t status;
		struct tp_line *line;

		if (!message_in_reach(channel, seq))
			break;
		status = message_look(comm, peer, TP_TAGGED, seq, &line);
		if (status == DICOMM_AGAIN)
			break;
		TRY(status);
		channel->in_base = seq;
		*progressed = true;
		if (line->signature != HEAD) {
			TRY(take_bytes(comm, peer->rank, seq, line));
			continue;
		}
		TRY(take_head(comm, peer->rank,
			      message_payload(channel, seq, line), line->len,
			      &to_any));
		message_consumed(peer, TP_TAGGED, seq);
	}
	return DICOMM_SUCCESS;
}

/* Move a part of what a reference refers to. */
static dicomm_result_t pull(struct operation *op, struct partner *from,
			    bool *progressed)
{
	struct message_receive *in = &op->tagged.in;
	dicomm_result_t status;
	uint64_t len;

	status = message_receive_piece(op->comm, in, in->to, MESSAGE_PIECE,
				       &len);
	if (status == DICOMM_AGAIN)
		return DICOMM_SUCCESS;
	TRY(status);
	*progressed = true;
	message_receive_moved(in, len);
	if (in->left)
		return DICOMM_SUCCESS;
	op_list_remove(&from->read, op);
	done(op);
	return DICOMM_SUCCESS;
}

/* Tell the sender that its message is awaited. */
static dicomm_result_t answer(struct operation *op, struct partner *from)
{
	TRY(put_head(op->comm, op->call.root, head_of(op, READY), NULL, 0));
	op_list_remove(&from->found, op);
	op->tagged.state = TAGGED_MOVING;
	if (op->tagged.bytes)
		op_list_append(&from->coming, op);
	else
		done(op);
	return DICOMM_SUCCESS;
}

static dicomm_result_t progress_recvs(struct dicomm_comm *comm, int rank,
				      bool *progressed)
{
	struct partner *from = partner_of(comm, rank);
	dicomm_result_t status;

	for (struct operation *op = from->read.first, *next; op; op = next) {
		next = op->tagged.next;
		TRY(pull(op, from, progressed));
	}
	while (from->found.first) {
		status = answer(from->found.first, from);
		if (status == DICOMM_AGAIN)
			break;
		TRY(status);
		*progressed = true;
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
	    op->tagged.bytes > comm->peers[rank].limits.eager_bytes)
		TRY(comm_mem_register(comm, op->call.send, op->tagged.bytes,
				      false, &op->handles[PLAN_SEND]));
	if (!matching_send(&comm->tagged->matching, op))
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "tags: no memory for a message to rank %d", rank);
	return DICOMM_SUCCESS;
}

/* Take what has come from all ranks that may send. */
static dicomm_result_t drain_all(struct dicomm_comm *comm, bool *progressed)
{
	struct peer *peer;

	for (int r = 0; r < comm->ranks; r++) {
		if (!comm->ways[r])
			continue;
		TRY(comm_peer(comm, r, &peer));
		TRY(drain(comm, peer, progressed));
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t post_recv(struct operation *op)
{
	struct matching *m = &op->comm->tagged->matching;
	const struct head *head;
	bool progressed;

	/* Sources whose messages are still in their inboxes take part, too. */
	if (op->call.root < 0 && matching_has(m, op->call.root, op->call.tag))
		TRY(drain_all(op->comm, &progressed));
	op->tagged.kept = matching_take(m, op->call.root, op->call.tag);
	if (op->tagged.kept) {
		head = &((const struct unexpected *)op->tagged.kept)->head;
		op->call.root = op->tagged.kept->source;
		if (head->type != (uint32_t)op->call.type ||
		    head->count != op->call.count)
			return disagree(op, op->call.root, head);
	} else if (!matching_post(m, op)) {
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "tags: no memory for a receive with tag %d",
			    op->call.tag);
	}
	return DICOMM_SUCCESS;
}

static void forget_kept(struct operation *op)
{
	free((struct unexpected *)op->tagged.kept);
	op->tagged.kept = NULL;
}

static dicomm_result_t post(struct operation *op)
{
	dicomm_result_t status;

	TRY(begin(op->comm));
	op->tagged = (struct tagged_op){.state = TAGGED_POSTED,
					.of_any = op->call.root < 0,
					.bytes = op->call.count *
						 type_bytes(op->call.type)};
	op->number = ++op->comm->tagged->calls;
	op->comm->stats.operations++;
	if (op->call.function == CALL_SEND)
		return post_send(op);
	status = post_recv(op);
	if (status != DICOMM_SUCCESS)
		forget_kept(op);
	return status;
}

/* What was queued before it on its stream has ended. */
static dicomm_result_t start(struct operation *op)
{
	struct tagged *t = op->comm->tagged;
	const struct unexpected *u;
	dicomm_result_t status;

	op->tagged.begun = true;
	if (op->call.function == CALL_SEND) {
		if (matching_may_tell(&t->matching, op))
			op_list_append(
				&partner_of(op->comm, op->call.root)->ready,
				op);
		return DICOMM_SUCCESS;
	}
	u = (const struct unexpected *)op->tagged.kept;
	if (!u)
		return DICOMM_SUCCESS;
	status = receive(op, &u->head, u->body);
	forget_kept(op);
	return status;
}

/* Look at all ranks that may send. */
static dicomm_result_t progress_all(struct dicomm_comm *comm, bool *progressed)
{
	for (int r = 0; r < comm->ranks; r++)
		if (comm->ways[r])
			TRY(progress(comm, r, progressed));
	return DICOMM_SUCCESS;
}

static dicomm_result_t progress_one(struct operation *op, bool *progressed)
{
	struct dicomm_comm *comm = op->comm;

	if (!op->tagged.begun)
		TRY(start(op));
	if (op->tagged.state == TAGGED_DONE)
		return DICOMM_SUCCESS;
	/* All sources take turns at receives from any. */
	return op->call.root < 0 || comm->tagged->matching.anys ||
			       (op->owner && op->tagged.of_any)
		       ? progress_all(comm, progressed)
		       : progress(comm, op->call.root, progressed);
}

/* The tail of the queue of the driver's operations that look for the same
 * messages: one that does is enough. */
static struct operation **queue_of(const struct operation *op)
{
	struct tagged *t = op->comm->tagged;

	return op->tagged.of_any ? &t->last_look
				 : &t->partners[op->call.root].last_look;
}

static enum schedule_result turn(struct operation *op, bool *progressed)
{
	struct tagged *t = op->comm->tagged;
	dicomm_result_t status;

	t->turning = op;
	status = progress_one(op, progressed);
	t->turning = NULL;
	if (op->tagged.state == TAGGED_DONE && status == DICOMM_SUCCESS)
		return SCHEDULE_DONE;
	if (op->owner && !op->queue)
		order_join(op, queue_of(op));
	return status == DICOMM_SUCCESS ? SCHEDULE_AGAIN
					: step_fail(op, status, op->call.root);
}

static void awaits(const struct operation *op, struct wait_for *f)
{
	f->peer = op->call.root;
	f->sending = op->call.function == CALL_SEND;
}

static void drop(struct operation *op)
{
	struct tagged *t = op->comm->tagged;
	struct partner *p;

	if (!t)
		return;
	forget_kept(op);
	if (op->call.function == CALL_SEND)
		matching_drop_send(&t->matching, op);
	else
		matching_drop(&t->matching, op);
	if (op->call.root < 0)
		return;
	p = &t->partners[op->call.root];
	op_list_remove(&p->ready, op);
	op_list_remove(&p->offered, op);
	op_list_remove(&p->pushed, op);
	op_list_remove(&p->found, op);
	op_list_remove(&p->coming, op);
	op_list_remove(&p->read, op);
}

const struct operation_kind tagged_kind = {.name = "tagged",
					   .post = post,
					   .turn = turn,
					   .awaits = awaits,
					   .drop = drop};

static void release(struct arrival *a)
{
	free((struct unexpected *)a);
}

void tagged_free(struct dicomm_comm *comm)
{
	struct tagged *t = comm->tagged;

	if (t)
		matching_free(&t->matching, release);
	for (int r = 0; t && r < comm->ranks; r++)
		free(t->partners[r].heads.at);
	free(t);
	comm->tagged = NULL;
}
