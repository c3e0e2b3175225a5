/* SPDX-License-Identifier: BSD-3-Clause */
/* One step of an operation on one slice: a message, a copy or a reduction. */
#include "src/engine/step.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/member.h"
#include "src/core/fault.h"
#include "src/core/memory.h"
#include "src/core/wait.h"
#include "src/message/memory_ref.h"
#include "src/message/receive.h"

static inline uint8_t *buffer_of(const struct operation *op, uint8_t buffer)
{
	switch (buffer) {
	case PLAN_SEND:
		return (uint8_t *)(uintptr_t)op->call.send;
	case PLAN_RECV:
		return op->call.recv;
	default:
		return op->comm->scratch.at;
	}
}

struct piece step_locate(const struct operation *op, const struct span *s,
			 uint64_t k)
{
	struct extent x = prepared_extent(op->prep, &op->call, s, k);

	return (struct piece){buffer_of(op, s->buffer) + x.at, x.n,
			      x.n * op->prep->elem_bytes};
}

enum schedule_result step_fail(struct operation *op, dicomm_result_t status,
			       int peer)
{
	fault_own(op->comm, status, peer);
	return SCHEDULE_FAILED;
}

/* Bytes of the block of a span that has no parts */
static uint64_t whole_bytes(const struct operation *op, const struct span *s)
{
	return prepared_block(op->prep, &op->call, s) * op->prep->elem_bytes;
}

static uint64_t slices_of(const struct operation *op, uint64_t bytes)
{
	uint64_t slice = op->prep->slice * op->prep->elem_bytes;

	return (bytes + slice - 1) / slice;
}

/* Does the step send or receive a whole block, without waiting for another
 * step? */
static bool is_ready_whole(const struct operation *op, const struct step *step,
			   const struct span *s)
{
	return op->prep->slices > 1 && !step->dep_count && s->parts == 1 &&
	       s->nblocks == 1 && s->buffer != PLAN_SCRATCH;
}

/* Signature of a step's message. The ranks may not share all counts, but the
 * two ranks of a pair share one. */
uint32_t step_signature(const struct operation *op, const struct step *step)
{
	uint64_t n;

	if (!coll_counts_in_pairs(op->call.function))
		return op->signature;
	n = call_pair_count(&op->call, step->peer, step->kind == STEP_SEND);
	return op->signature ^
	       (uint32_t)(n * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

/* The root of a broadcast has just written what it sends, so it is in the cache
 * of the root's core anyway. */
enum tp_want step_want(const struct prepared *prep)
{
	unsigned function = prep->key.function;

	if (call_reduces(function) || function == COLL_BROADCAST)
		return TP_WANT_LOAD;
	if (call_rooted(function) || prep->class == TP_POINT_TO_POINT)
		return TP_WANT_COPY;
	return TP_WANT_EXCHANGE;
}

/* The reference to send if a neighbour's device reads the operand in place;
 * otherwise NULL. */
static const struct memory_ref *mem_ref_of(struct operation *op,
					   const struct step *step,
					   const struct piece *a, uint64_t seq)
{
	struct dicomm_comm *comm = op->comm;
	struct peer *peer = &comm->peers[step->peer];
	struct memory_ref *mem_ref;

	if (!peer->has_peer_access)
		return NULL;
	mem_ref =
		&peer->neighbour->mem_refs[op->prep->class][seq % MEMORY_REFS];
	if (memory_ref_make(a->at, a->bytes, mem_ref))
		return mem_ref;
	if (!comm->logged_staged)
		log_warn("%s: %s sends from memory that is not from "
			 "dicomm_mem_alloc: to rank %d (%s) it passes through "
			 "other host memory",
			 comm->name, call_name(op->call.function), peer->rank,
			 comm->members[peer->rank].device);
	comm->logged_staged = true;
	return NULL;
}

/* Is it worth reading so many bytes by reference? Not if the network sends them
 * as one message. */
static bool may_refer(const struct peer *peer, const struct step *step,
		      uint64_t len, uint64_t threshold)
{
	return len >= threshold && step->a.buffer != PLAN_SCRATCH &&
	       !peer->limits.prefers_eager &&
	       (peer->transport->intra_node || len > peer->limits.eager_bytes);
}

static enum schedule_result unreachable(struct operation *op,
					const struct peer *peer,
					const struct piece *a)
{
	return step_fail(op,
			 FAIL(DICOMM_ERR_INTERNAL,
			      "send to rank %d: %s does not reach %zu bytes at "
			      "%p",
			      peer->rank, peer->transport->name, a->bytes,
			      (void *)a->at),
			 -1);
}

enum schedule_result step_send(struct operation *op, const struct step *step,
			       uint32_t s, uint64_t k, uint64_t seq)
{
	struct dicomm_comm *comm = op->comm;
	struct peer *peer = &comm->peers[step->peer];
	struct channel *channel = &peer->channel[op->prep->class];
	struct piece a = step_locate(op, &step->a, k);
	enum tp_kind kind = TP_DATA;
	const struct memory_ref *mem_ref;
	const void *body = a.at;
	uint64_t len = a.bytes;
	uint32_t signature = step_signature(op, step);
	struct tp_ref ref;
	dicomm_result_t status;
	bool whole, must, may;

	if (!a.n)
		return SCHEDULE_DONE;
	if (k && op->flows[s].whole)
		return SCHEDULE_POSTED;
	if (!message_may_leave(peer, channel, seq, op->prep->incast))
		return SCHEDULE_AGAIN;
	whole = is_ready_whole(op, step, &step->a);
	if (!k && whole)
		len = whole_bytes(op, &step->a);
	must = a.bytes > peer->limits.eager_bytes;
	/* If the whole was not worth a reference, its parts are not. */
	may = !(k && whole) && may_refer(peer, step, len, comm->map_threshold);
	mem_ref = mem_ref_of(op, step, &a, seq);
	if (mem_ref) {
		body = mem_ref;
		signature = memory_ref_signature(signature);
	} else if ((must || may) &&
		   peer->transport->offer(peer->tp, a.at, len,
					  step_want(op->prep), &ref)) {
		kind = TP_REF;
		body = &ref;
	} else if (must) {
		return unreachable(op, peer, &a);
	}
	status = peer->transport->put(peer->tp, op->prep->class, seq, signature,
				      kind, body,
				      mem_ref          ? sizeof(*mem_ref)
				      : kind == TP_REF ? len
						       : a.bytes);
	if (status == DICOMM_AGAIN)
		return SCHEDULE_AGAIN;
	if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
		return step_fail(op, status, step->peer);
	if (kind == TP_REF && len > a.bytes) {
		op->flows[s].whole = true;
		seq += (slices_of(op, len) - 1) *
		       op->prep->plan.sends_to[step->peer];
	}
	if (seq > channel->out_last)
		channel->out_last = seq;
	comm->stats.messages_sent++;
	comm->stats.bytes_sent += kind == TP_REF ? len : a.bytes;
	return mem_ref || kind == TP_REF || status == DICOMM_IN_PROGRESS
		       ? SCHEDULE_POSTED
		       : SCHEDULE_DONE;
}

dicomm_result_t step_bounce(struct dicomm_comm *comm,
			    struct bounce_buffer **out)
{
	if (!comm->bounce_buffers.memory) {
		TRY(comm_mem_alloc(
			comm, (size_t)COMM_BOUNCES * comm->slot_bytes,
			"bounce buffers", &comm->bounce_buffers.memory,
			&comm->bounce_buffers.handles));
		for (size_t i = 0; i < COMM_BOUNCES; i++)
			comm->bounce_buffers.of[i].at =
				comm->bounce_buffers.memory +
				i * comm->slot_bytes;
	}
	*out = NULL;
	for (size_t i = 0; i < COMM_BOUNCES && !*out; i++)
		if (!comm->bounce_buffers.of[i].op)
			*out = &comm->bounce_buffers.of[i];
	return DICOMM_SUCCESS;
}

static struct bounce_buffer *bounce_of(const struct operation *op, uint32_t s,
				       uint64_t k)
{
	struct bounce_buffer *b = op->comm->bounce_buffers.of;

	while (b->op != op || b->step != s || b->slice != k)
		b++;
	return b;
}

void step_forget(struct operation *op)
{
	for (size_t i = 0; i < COMM_BOUNCES; i++)
		if (op->comm->bounce_buffers.of[i].op == op)
			op->comm->bounce_buffers.of[i].op = NULL;
}

/* Read ahead up to this much, so that each read is worth a system call. */
#define READ_AHEAD (UINT64_C(256) << 10)

/* How far one read of a whole message reaches, in whole slices */
static uint64_t reach_of(const struct operation *op, const struct step *step,
			 const struct flow *f, uint64_t at, uint64_t bytes)
{
	uint64_t slice = op->prep->slice * op->prep->elem_bytes;
	uint64_t ahead = bytes;

	if (step->kind == STEP_RECV && is_ready_whole(op, step, &step->dst))
		ahead = slice < READ_AHEAD ? READ_AHEAD / slice * slice : slice;
	return f->bytes - at < ahead ? f->bytes : at + ahead;
}

/* The bytes of a reference as memory that this rank can load from.
 * ERR_UNSUPPORTED: they must be read. */
static dicomm_result_t map(struct receive *r, const struct tp_ref *ref,
			   uint64_t bytes)
{
	TRY(message_map(r->op->comm, r->peer, ref, bytes, r->dst.bytes,
			&r->src));
	r->mapped = true;
	return DICOMM_SUCCESS;
}

/* Where the bytes of a read go: into a bounce buffer if they are reduced later,
 * else to their final place. */
static dicomm_result_t find_room(struct receive *r)
{
	r->src = r->room ? r->room : r->dst.at;
	if (r->room || r->step->kind != STEP_RECV_REDUCE)
		return DICOMM_SUCCESS;
	TRY(step_bounce(r->op->comm, &r->bounce));
	if (!r->bounce)
		return DICOMM_AGAIN;
	r->src = r->bounce->at;
	return DICOMM_SUCCESS;
}

/* The message belongs to another call. */
static dicomm_result_t mismatch(const struct receive *r)
{
	wait_mismatch(r->op->comm, &r->op->call, r->op->number, r->peer->rank);
	return DICOMM_ERR_INVALID_USAGE;
}

/* Slice k of a message for which one reference was sent */
static dicomm_result_t fetch_part(struct receive *r)
{
	const struct operation *op = r->op;
	struct flow *f = r->flow;
	uint64_t at = r->k * op->prep->slice * op->prep->elem_bytes, end;
	dicomm_result_t status;

	/* The peer decides whether it sends the whole; the plans of both say
	 * how long the slices are. */
	if (at > f->bytes || r->dst.bytes > f->bytes - at)
		return mismatch(r);
	r->src = r->dst.at;
	if (at < f->read)
		return at < f->arrived ? DICOMM_SUCCESS : DICOMM_IN_PROGRESS;
	status = map(r, &f->ref, f->bytes);
	if (status == DICOMM_SUCCESS)
		r->src = (const uint8_t *)r->src + at;
	if (status != DICOMM_ERR_UNSUPPORTED)
		return status;
	TRY(find_room(r));
	end = r->room ? at + r->dst.bytes
		      : reach_of(op, r->step, f, at, r->dst.bytes);
	status = message_read(op->comm, r->peer, op->prep->class, r->seq,
			      &f->ref, at, (void *)(uintptr_t)r->src, end - at);
	if (!r->bounce && !r->room &&
	    (status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS)) {
		f->read = end;
		if (status == DICOMM_SUCCESS)
			f->arrived = end;
	}
	return status;
}

/* The message has arrived: find its bytes. */
static dicomm_result_t fetch(struct receive *r, const struct tp_line *line)
{
	struct operation *op = r->op;
	enum tp_class c = op->prep->class;
	const uint8_t *body =
		message_payload(&r->peer->channel[c], r->seq, line);
	struct flow *f = r->flow;
	struct tp_ref ref;
	dicomm_result_t status;

	if (!body && line->kind != TP_REF)
		return message_malformed(r->peer->rank, line);
	if (line->signature != step_signature(op, r->step))
		return mismatch(r);
	if (line->len == r->dst.bytes) {
		if (body) {
			r->src = body;
			op->comm->stats.bytes_ring += line->len;
			return DICOMM_SUCCESS;
		}
		memcpy(&ref, line->room, sizeof(ref));
		status = map(r, &ref, line->len);
		if (status != DICOMM_ERR_UNSUPPORTED)
			return status;
		TRY(find_room(r));
		return message_read(op->comm, r->peer, c, r->seq, &ref, 0,
				    (void *)(uintptr_t)r->src, r->dst.bytes);
	}
	if (body || op->prep->slices < 2 || r->k ||
	    line->len != whole_bytes(op, &r->step->dst))
		return mismatch(r);
	f->whole = true;
	f->read = f->arrived = 0;
	f->bytes = line->len;
	memcpy(&f->ref, line->room, sizeof(f->ref));
	return fetch_part(r);
}

enum schedule_result step_find(struct receive *r)
{
	struct operation *op = r->op;
	enum tp_class c = op->prep->class;
	struct channel *channel = &r->peer->channel[c];
	struct tp_line *line = NULL;
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!r->flow->whole || !r->k) {
		if (!channel->in.lines)
			status = channel_connect_in(op->comm, r->peer, c);
		if (status == DICOMM_SUCCESS) {
			line = message_arrived(channel, r->seq);
			if (!line)
				return SCHEDULE_AGAIN;
		}
	}
	if (status == DICOMM_SUCCESS)
		status = line ? fetch(r, line) : fetch_part(r);
	if (status == DICOMM_SUCCESS)
		return SCHEDULE_DONE;
	if (status == DICOMM_IN_PROGRESS)
		return SCHEDULE_POSTED;
	if (status == DICOMM_AGAIN)
		return SCHEDULE_AGAIN;
	return step_fail(op, status, r->step->peer);
}

void step_count(struct operation *op, const struct step *step, size_t bytes,
		bool staged)
{
	dicomm_stats_t *stats = &op->comm->stats;

	stats->messages_received++;
	stats->bytes_received += bytes;
	if (staged || op->comm->peers[step->peer].staged)
		stats->bytes_staged += bytes;
}

enum schedule_result step_find_ref(struct receive *r)
{
	struct dicomm_comm *comm = r->op->comm;
	enum tp_class c = r->op->prep->class;
	struct channel *channel = &r->peer->channel[c];
	const struct tp_line *line;
	const uint8_t *body;
	dicomm_result_t status;
	struct memory_place place = {NULL, r->mapped, r->seen};
	struct memory_ref mem_ref;

	if (r->k && r->flow->whole)
		return step_find(r);
	if (!channel->in.lines) {
		status = channel_connect_in(comm, r->peer, c);
		if (status == DICOMM_AGAIN)
			return SCHEDULE_AGAIN;
		if (status != DICOMM_SUCCESS)
			return step_fail(r->op, status, r->step->peer);
	}
	line = message_arrived(channel, r->seq);
	if (!line)
		return SCHEDULE_AGAIN;
	if (line->signature !=
	    memory_ref_signature(step_signature(r->op, r->step)))
		return step_find(r);
	body = message_payload(channel, r->seq, line);
	if (body && line->len == sizeof(mem_ref))
		memcpy(&mem_ref, body, sizeof(mem_ref));
	if (!body || line->len != sizeof(mem_ref) ||
	    mem_ref.bytes != r->dst.bytes) {
		mismatch(r);
		return SCHEDULE_FAILED;
	}
	status = memory_ref_locate(comm, r->peer, &mem_ref, &place);
	if (status != DICOMM_SUCCESS)
		return step_fail(r->op, status, r->step->peer);
	r->src = place.at;
	r->mapped = place.mapped;
	r->seen = place.seen;
	return SCHEDULE_DONE;
}

/* The bytes are at src. Copy or reduce them. */
static void take(struct operation *op, const struct step *step, uint32_t s,
		 uint64_t k, const struct piece *dst, const void *src)
{
	const struct prepared *prep = op->prep;
	bool stream = prep->stream_out && !prep->read_later[s];

	if (step->kind == STEP_RECV_REDUCE)
		(stream ? prep->reduce_stream : prep->reduce)(
			dst->at, step_locate(op, &step->a, k).at, src, dst->n);
	else if (src != dst->at && stream)
		reduce_copy_stream(dst->at, src, dst->bytes);
	else if (src != dst->at)
		memcpy(dst->at, src, dst->bytes);
	step_count(op, step, dst->bytes, false);
	if (!op->comm->peers[step->peer].has_peer_access)
		return;
	if (step->kind == STEP_RECV_REDUCE)
		op->comm->stats.bytes_mapped += dst->bytes;
	else
		op->comm->stats.bytes_landed += dst->bytes;
}

static enum schedule_result recv_message(struct receive *r)
{
	enum schedule_result result =
		r->peer->has_peer_access ? step_find_ref(r) : step_find(r);
	dicomm_result_t status = DICOMM_SUCCESS;

	if (result == SCHEDULE_POSTED) {
		r->flow->posted |= UINT64_C(1) << r->k % 64;
		if (r->bounce) {
			r->bounce->op = r->op;
			r->bounce->step = r->s;
			r->bounce->slice = r->k;
		}
	}
	if (result != SCHEDULE_DONE)
		return result;
	take(r->op, r->step, r->s, r->k, &r->dst, r->src);
	if (r->mapped)
		status = message_intact(r->peer);
	if (status != DICOMM_SUCCESS)
		return step_fail(r->op, status, r->step->peer);
	message_consumed(r->peer, r->op->prep->class, r->seq);
	return SCHEDULE_DONE;
}

static void fold(struct operation *op, const struct step *step, uint64_t k)
{
	const struct prepared *prep = op->prep;
	struct piece dst = step_locate(op, &step->dst, k);
	struct piece own = step_locate(op, &step->a, k);
	const void *src[step->nfold];
	int me = call_rank(&op->call, op->comm->rank);

	for (uint32_t i = 0; i < step->nfold; i++) {
		struct span s = step->b;

		s.block += i;
		src[i] = (int)i == me ? own.at : step_locate(op, &s, k).at;
	}
	reduce_fold(op->call.type, prep->op, dst.at, src, (int)step->nfold,
		    dst.n);
}

static enum schedule_result
do_local(struct operation *op, const struct step *step, uint32_t s, uint64_t k)
{
	const struct prepared *prep = op->prep;
	struct piece dst = step_locate(op, &step->dst, k);
	struct piece a = step_locate(op, &step->a, k);

	if (!dst.n)
		return SCHEDULE_DONE;
	switch (step->kind) {
	case STEP_COPY:
		if (prep->stream_out && !prep->read_later[s])
			reduce_copy_stream(dst.at, a.at, dst.bytes);
		else
			memcpy(dst.at, a.at, dst.bytes);
		break;
	case STEP_REDUCE:
		prep->reduce(dst.at, a.at, step_locate(op, &step->b, k).at,
			     dst.n);
		break;
	case STEP_SCALE:
		prep->scale(dst.at, a.at, prep->scalar, dst.n);
		break;
	case STEP_DIVIDE:
		prep->divide(dst.at, a.at, op->comm->ranks, dst.n);
		break;
	case STEP_FOLD:
		fold(op, step, k);
		break;
	}
	return SCHEDULE_DONE;
}

enum schedule_result step_sent(struct operation *op, const struct step *step,
			       uint64_t seq)
{
	const struct channel *channel =
		&op->comm->peers[step->peer].channel[op->prep->class];

	return atomic_load_explicit(channel->out.released,
				    memory_order_acquire) >= seq
		       ? SCHEDULE_DONE
		       : SCHEDULE_AGAIN;
}

static enum schedule_result sent(struct operation *op, const struct step *step,
				 uint32_t s, uint64_t k, uint64_t seq)
{
	(void)s;
	(void)k;
	return step_sent(op, step, seq);
}

dicomm_result_t step_arrived(struct operation *op, const struct step *step,
			     uint32_t s, uint64_t k, uint64_t seq,
			     bool in_place)
{
	struct peer *peer = &op->comm->peers[step->peer];
	struct flow *f = &op->flows[s];
	uint64_t at = k * op->prep->slice * op->prep->elem_bytes;
	bool ahead = f->whole && in_place;

	if (ahead && at < f->arrived)
		return DICOMM_SUCCESS;
	/* A read is reported with the oldest slice that it has not delivered
	 * yet. */
	TRY(peer->transport->read_status(peer->tp, op->prep->class, seq));
	if (ahead)
		f->arrived = reach_of(op, step, f, at,
				      step_locate(op, &step->dst, k).bytes);
	return DICOMM_SUCCESS;
}

static enum schedule_result received(struct operation *op,
				     const struct step *step, uint32_t s,
				     uint64_t k, uint64_t seq)
{
	struct peer *peer = &op->comm->peers[step->peer];
	struct flow *f = &op->flows[s];
	uint64_t bit = UINT64_C(1) << k % 64;
	struct piece dst = step_locate(op, &step->dst, k);
	struct bounce_buffer *bounce = NULL;
	dicomm_result_t status;

	if (!(f->posted & bit))
		/* It came while an older slice was POSTED */
		return SCHEDULE_DONE;
	status = step_arrived(op, step, s, k, seq, step->kind == STEP_RECV);
	if (status == DICOMM_IN_PROGRESS)
		return SCHEDULE_AGAIN;
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, step->peer);
	if (step->kind == STEP_RECV_REDUCE)
		bounce = bounce_of(op, s, k);
	take(op, step, s, k, &dst, bounce ? bounce->at : dst.at);
	if (bounce)
		bounce->op = NULL;
	f->posted &= ~bit;
	message_consumed(peer, op->prep->class, seq);
	return SCHEDULE_DONE;
}

static const struct step_ops host_ops = {.local = do_local,
					 .send = step_send,
					 .recv = recv_message,
					 .sent = sent,
					 .received = received};

/* ---- the schedule's side ---- */

/* Slices of a message whose length only the pair knows. */
static bool is_beyond(const struct operation *op, const struct step *step,
		      uint64_t k)
{
	return coll_counts_in_pairs(op->call.function) &&
	       k * op->prep->slice >= call_pair_count(&op->call, step->peer,
						      step->kind == STEP_SEND);
}

static const struct step_ops *ops_of(const struct operation *op)
{
	return op->comm->device_ops ? op->comm->device_ops : &host_ops;
}

/* Number of a message in its channel */
static uint64_t seq_of(const struct operation *op, const struct step *step,
		       uint64_t number)
{
	const struct channel *channel =
		&op->comm->peers[step->peer].channel[op->prep->class];

	return number + 1 +
	       (step->kind == STEP_SEND ? channel->out_base : channel->in_base);
}

static enum schedule_result start_recv(struct operation *op,
				       const struct step *step, uint32_t s,
				       uint64_t k, uint64_t seq)
{
	struct peer *peer = &op->comm->peers[step->peer];
	struct receive r = {.op = op,
			    .step = step,
			    .peer = peer,
			    .flow = &op->flows[s],
			    .s = s,
			    .k = k,
			    .seq = seq,
			    .dst = step_locate(op, &step->dst, k)};

	if (!message_in_reach(&peer->channel[op->prep->class], seq))
		return SCHEDULE_AGAIN;
	if (r.dst.n)
		return ops_of(op)->recv(&r);
	message_consumed(peer, op->prep->class, seq);
	return SCHEDULE_DONE;
}

/* A piece without elements needs no connection, for its receiver may have
 * left. */
static enum schedule_result start_send(struct operation *op,
				       const struct step *step, uint32_t s,
				       uint64_t k, uint64_t seq)
{
	struct peer *peer = &op->comm->peers[step->peer];
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!peer->channel[op->prep->class].out.released &&
	    step_locate(op, &step->a, k).n)
		status = channel_connect_out(peer, op->prep->class);
	if (status == DICOMM_AGAIN)
		return SCHEDULE_AGAIN;
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, step->peer);
	return ops_of(op)->send(op, step, s, k, seq);
}

static enum schedule_result start(void *ctx, const struct step *step,
				  uint32_t s, uint64_t slice, uint64_t number)
{
	struct operation *op = ctx;
	uint64_t seq;

	if (step->peer < 0)
		return ops_of(op)->local(op, step, s, slice);
	if (is_beyond(op, step, slice))
		return SCHEDULE_DONE;
	seq = seq_of(op, step, number);
	if (step->kind == STEP_SEND)
		return start_send(op, step, s, slice, seq);
	return start_recv(op, step, s, slice, seq);
}

static enum schedule_result finished(void *ctx, const struct step *step,
				     uint32_t s, uint64_t slice,
				     uint64_t number)
{
	struct operation *op = ctx;
	const struct step_ops *ops = ops_of(op);

	if (step->peer < 0 || is_beyond(op, step, slice))
		return SCHEDULE_DONE;
	return (step->kind == STEP_SEND ? ops->sent : ops->received)(
		op, step, s, slice, seq_of(op, step, number));
}

const struct schedule_io step_io = {.start = start, .finished = finished};
