/* SPDX-License-Identifier: BSD-3-Clause */
/* One step of an operation on one slice: a message, a copy or a reduction. */
#include "src/engine/step.h"

#include <string.h>

#include "src/base/log.h"
#include "src/core/member.h"
#include "src/core/fault.h"
#include "src/core/wait.h"
#include "src/message/memory_ref.h"

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

static __attribute__((noinline)) enum schedule_result
not_done(const struct part *p, dicomm_result_t status)
{
	struct operation *op = p->op;

	if (status == DICOMM_IN_PROGRESS)
		return SCHEDULE_POSTED;
	if (status == DICOMM_AGAIN)
		return SCHEDULE_AGAIN;
	/* The message belongs to another call. */
	if (status == DICOMM_ERR_INVALID_USAGE)
		wait_mismatch(op->comm, &op->call, op->number, p->step->peer);
	return step_fail(op, status, p->step->peer);
}

static inline enum schedule_result result_of(const struct part *p,
					     dicomm_result_t status)
{
	return __builtin_expect(status == DICOMM_SUCCESS, 1)
		       ? SCHEDULE_DONE
		       : not_done(p, status);
}

/* ---- sends ---- */

/* The reference to send if a neighbour's device reads the operand in place;
 * otherwise NULL. */
static const struct memory_ref *mem_ref_of(const struct part *p)
{
	struct dicomm_comm *comm = p->op->comm;
	const struct peer *peer = p->m.peer;
	struct memory_ref *mem_ref;

	if (!peer->has_peer_access)
		return NULL;
	mem_ref =
		&peer->neighbour->mem_refs[p->m.class][p->m.seq % MEMORY_REFS];
	if (memory_ref_make(p->piece.at, p->piece.bytes, mem_ref))
		return mem_ref;
	if (!comm->logged_staged)
		log_warn("%s: %s sends from memory that is not from "
			 "dicomm_mem_alloc: to rank %d (%s) it passes through "
			 "other host memory",
			 comm->name, call_name(p->op->call.function),
			 peer->rank, comm->members[peer->rank].device);
	comm->logged_staged = true;
	return NULL;
}

/* One reference stands for all slices, so their messages are not sent. */
static void note_whole(const struct part *p, uint64_t bytes)
{
	const struct operation *op = p->op;
	struct channel *channel = &p->m.peer->channel[p->m.class];
	uint64_t more = slices_of(op, bytes) - 1;
	uint64_t last =
		p->m.seq + more * op->prep->plan.sends_to[p->step->peer];

	p->m.flow->whole = true;
	if (last > channel->out_last)
		channel->out_last = last;
}

enum schedule_result step_put(struct part *p)
{
	dicomm_stats_t *stats = &p->op->comm->stats;
	uint64_t sent;
	dicomm_result_t status = message_slice_send(&p->m, &sent);

	if (status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS) {
		if (sent > p->m.bytes)
			note_whole(p, sent);
		stats->messages_sent++;
		stats->bytes_sent += sent;
	}
	return result_of(p, status);
}

enum schedule_result step_send(struct part *p)
{
	const struct operation *op = p->op;
	const struct span *a = &p->step->a;
	bool whole = is_ready_whole(op, p->step, a);
	struct message_slice *m = &p->m;

	m->from = p->piece.at;
	m->whole = whole && !p->k ? whole_bytes(op, a) : m->bytes;
	/* If the whole was not worth a reference, its parts are not. */
	m->way = (whole && p->k) || a->buffer == PLAN_SCRATCH ? MESSAGE_COPY
							      : MESSAGE_BEST;
	m->want = op->prep->want;
	m->mem_ref = mem_ref_of(p);
	return step_put(p);
}

enum schedule_result step_sent(struct part *p)
{
	return message_released(&p->m.peer->channel[p->m.class], p->m.seq)
		       ? SCHEDULE_DONE
		       : SCHEDULE_AGAIN;
}

/* ---- receives ---- */

/* Read ahead up to this much, so that each read is worth a system call. */
#define READ_AHEAD (UINT64_C(256) << 10)

/* Where the bytes go, and how many of them one read of a whole message may put
 * there, in whole slices */
static void place(struct part *p)
{
	const struct operation *op = p->op;
	const struct step *step = p->step;
	uint64_t slice;

	p->piece = step_locate(op, &step->dst, p->k);
	p->m.bytes = p->piece.bytes;
	p->m.whole = p->m.ahead = 0;
	p->m.into = NULL;
	p->m.bounce = NULL;
	p->m.mapped = p->m.seen = false;
	if (step->kind != STEP_RECV)
		return;
	p->m.into = p->piece.at;
	p->m.ahead = p->m.bytes;
	if (!is_ready_whole(op, step, &step->dst))
		return;
	slice = op->prep->slice * op->prep->elem_bytes;
	p->m.ahead = slice < READ_AHEAD ? READ_AHEAD / slice * slice : slice;
}

enum schedule_result step_find(struct part *p)
{
	return result_of(p, message_slice_find(&p->m));
}

enum schedule_result step_arrived(struct part *p)
{
	return result_of(p, message_slice_arrived(&p->m));
}

void step_count(const struct part *p, bool staged)
{
	dicomm_stats_t *stats = &p->op->comm->stats;

	stats->messages_received++;
	stats->bytes_received += p->piece.bytes;
	if (staged || p->m.peer->staged)
		stats->bytes_staged += p->piece.bytes;
}

/* The bytes are at p->m.src. Copy or reduce them. */
static enum schedule_result take(struct part *p)
{
	const struct prepared *prep = p->op->prep;
	dicomm_stats_t *stats = &p->op->comm->stats;
	const struct piece *dst = &p->piece;
	const void *src = p->m.src;
	bool stream = prep->stream_out && !prep->read_later[p->s];
	bool reduces = p->step->kind == STEP_RECV_REDUCE;

	if (reduces)
		(stream ? prep->reduce_stream : prep->reduce)(
			dst->at, step_locate(p->op, &p->step->a, p->k).at, src,
			dst->n);
	else if (src != dst->at && stream)
		reduce_copy_stream(dst->at, src, dst->bytes);
	else if (src != dst->at)
		memcpy(dst->at, src, dst->bytes);
	step_count(p, false);
	if (p->m.peer->has_peer_access && reduces)
		stats->bytes_mapped += dst->bytes;
	else if (p->m.peer->has_peer_access)
		stats->bytes_landed += dst->bytes;
	return result_of(p, message_slice_taken(&p->m));
}

enum schedule_result step_recv(struct part *p)
{
	enum schedule_result r = step_find(p);

	if (r == SCHEDULE_POSTED)
		p->m.flow->posted |= UINT64_C(1) << p->k % 64;
	return r == SCHEDULE_DONE ? take(p) : r;
}

enum schedule_result step_received(struct part *p)
{
	uint64_t bit = UINT64_C(1) << p->k % 64;
	enum schedule_result r;

	if (!(p->m.flow->posted & bit))
		/* It came while an older slice was POSTED */
		return SCHEDULE_DONE;
	r = step_arrived(p);
	if (r != SCHEDULE_DONE)
		return r;
	p->m.flow->posted &= ~bit;
	return take(p);
}

/* ---- local steps ---- */

static void fold(const struct operation *op, const struct step *step,
		 uint64_t k)
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

static enum schedule_result do_local(const struct part *p)
{
	const struct operation *op = p->op;
	const struct step *step = p->step;
	const struct prepared *prep = op->prep;
	struct piece dst = step_locate(op, &step->dst, p->k);
	struct piece a = step_locate(op, &step->a, p->k);

	if (!dst.n)
		return SCHEDULE_DONE;
	switch (step->kind) {
	case STEP_COPY:
		if (prep->stream_out && !prep->read_later[p->s])
			reduce_copy_stream(dst.at, a.at, dst.bytes);
		else
			memcpy(dst.at, a.at, dst.bytes);
		break;
	case STEP_REDUCE:
		prep->reduce(dst.at, a.at, step_locate(op, &step->b, p->k).at,
			     dst.n);
		break;
	case STEP_SCALE:
		prep->scale(dst.at, a.at, prep->scalar, dst.n);
		break;
	case STEP_DIVIDE:
		prep->divide(dst.at, a.at, op->comm->ranks, dst.n);
		break;
	case STEP_FOLD:
		fold(op, step, p->k);
		break;
	}
	return SCHEDULE_DONE;
}

static const struct step_ops host_ops = {.local = do_local,
					 .send = step_send,
					 .recv = step_recv,
					 .sent = step_sent,
					 .received = step_received};

/* ---- the schedule's side ---- */

static const struct step_ops *ops_of(const struct operation *op)
{
	return op->comm->device_ops ? op->comm->device_ops : &host_ops;
}

/* Which message is it? False: none, as the message is not so long, which only
 * its pair of ranks knows. */
static bool number_message(struct part *p, uint64_t number)
{
	const struct operation *op = p->op;
	const struct prepared *prep = op->prep;
	struct peer *peer = &op->comm->peers[p->step->peer];
	const struct channel *channel = &peer->channel[prep->class];
	bool sends = p->step->kind == STEP_SEND;
	uint64_t n;

	p->m.comm = op->comm;
	p->m.peer = peer;
	p->m.class = prep->class;
	p->m.flow = &op->flows[p->s];
	p->m.at = p->k * prep->slice * prep->elem_bytes;
	p->m.seq = number + 1 + (sends ? channel->out_base : channel->in_base);
	p->m.signature = op->signature;
	if (!coll_counts_in_pairs(op->call.function))
		return true;
	/* The ranks may not share all counts, but the two ranks of a pair share
	 * one. */
	n = call_pair_count(&op->call, p->step->peer, sends);
	p->m.signature ^= (uint32_t)(n * UINT64_C(0x9e3779b97f4a7c15) >> 32);
	return p->k * prep->slice < n;
}

static enum schedule_result start_recv(const struct step_ops *ops,
				       struct part *p)
{
	struct message_slice *m = &p->m;

	if (!message_in_reach(&m->peer->channel[m->class], m->seq))
		return SCHEDULE_AGAIN;
	if (p->piece.n) {
		if (!p->k && p->op->prep->slices > 1)
			m->whole = whole_bytes(p->op, &p->step->dst);
		return ops->recv(p);
	}
	message_consumed(m->peer, m->class, m->seq);
	return SCHEDULE_DONE;
}

/* A piece without elements needs no connection, for its receiver may have
 * left. */
static enum schedule_result start_send(const struct step_ops *ops,
				       struct part *p)
{
	struct message_slice *m = &p->m;
	const struct channel *channel = &m->peer->channel[m->class];
	dicomm_result_t status;

	p->piece = step_locate(p->op, &p->step->a, p->k);
	m->bytes = p->piece.bytes;
	if (!p->piece.n)
		return SCHEDULE_DONE;
	/* The reference that went with the first slice stands for all. */
	if (p->k && m->flow->whole)
		return SCHEDULE_POSTED;
	if (!channel->out.released) {
		status = channel_connect_out(m->peer, m->class);
		if (status != DICOMM_SUCCESS)
			return result_of(p, status);
	}
	return message_may_leave(m->peer, channel, m->seq, p->op->prep->incast)
		       ? ops->send(p)
		       : SCHEDULE_AGAIN;
}

static enum schedule_result run_part(struct operation *op,
				     const struct step *step, uint32_t s,
				     uint64_t slice, uint64_t number,
				     bool starts)
{
	const struct step_ops *ops = ops_of(op);
	struct part p;

	p.op = op;
	p.step = step;
	p.s = s;
	p.k = slice;
	if (step->peer < 0)
		return starts ? ops->local(&p) : SCHEDULE_DONE;
	if (!number_message(&p, number))
		return SCHEDULE_DONE;
	if (step->kind == STEP_SEND)
		return starts ? start_send(ops, &p) : ops->sent(&p);
	place(&p);
	return starts ? start_recv(ops, &p) : ops->received(&p);
}

static enum schedule_result start(void *ctx, const struct step *step,
				  uint32_t s, uint64_t slice, uint64_t number)
{
	return run_part(ctx, step, s, slice, number, true);
}

static enum schedule_result finished(void *ctx, const struct step *step,
				     uint32_t s, uint64_t slice,
				     uint64_t number)
{
	return run_part(ctx, step, s, slice, number, false);
}

const struct schedule_io step_io = {.start = start, .finished = finished};
