/* SPDX-License-Identifier: BSD-3-Clause */
/* One step of an operation on one slice: a message, a copy or a reduction. */
#include "src/core/step.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/message.h"
#include "src/core/wait.h"

static inline uint8_t *buffer_of(const struct operation *op, uint8_t buffer)
{
	switch (buffer) {
	case PLAN_SEND:
		return (uint8_t *)(uintptr_t)op->call.send;
	case PLAN_RECV:
		return op->call.recv;
	default:
		return op->comm->scratch;
	}
}

struct piece {
	uint8_t *at;
	size_t n, bytes;
};

static struct piece locate(const struct operation *op, const struct span *s,
			   uint64_t k)
{
	struct extent x = executable_extent(op->exe, &op->call, s, k);

	return (struct piece){buffer_of(op, s->buffer) +
				      x.first * op->exe->elem_bytes,
			      x.n, x.n * op->exe->elem_bytes};
}

enum schedule_result step_fail(struct operation *op, dicomm_result_t status,
			       int peer)
{
	fault_own(op->comm, status, peer);
	return SCHEDULE_FAILED;
}

/* Bytes of the block that a span without parts is a slice of. */
static uint64_t whole_bytes(const struct operation *op, const struct span *s)
{
	return executable_block(op->exe, &op->call, s) * op->exe->elem_bytes;
}

static uint64_t slices_of(const struct operation *op, uint64_t bytes)
{
	uint64_t slice = op->exe->slice * op->exe->elem_bytes;

	return (bytes + slice - 1) / slice;
}

/* Does the step touch its block from end to end, with nothing to wait for? */
static bool is_ready_whole(const struct operation *op, const struct step *step,
			   const struct span *s)
{
	return op->exe->slices > 1 && !step->dep_count && s->parts == 1 &&
	       s->nblocks == 1 && s->buffer != PLAN_SCRATCH;
}

/* Of a message. The ranks of an alltoallv share no counts, but each pair has
 * one in common. */
static uint32_t signature_of(const struct operation *op,
			     const struct step *step)
{
	uint64_t n;

	if (op->call.coll != COLL_ALLTOALLV)
		return op->signature;
	n = step->kind == STEP_SEND ? op->call.send_counts[step->peer]
				    : op->call.recv_counts[step->peer];
	return op->signature ^
	       (uint32_t)(n * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static enum schedule_result start_send(struct operation *op,
				       const struct step *step, uint32_t s,
				       uint64_t k, uint64_t seq)
{
	struct dicomm_comm *comm = op->comm;
	struct peer *peer = &comm->peers[step->peer];
	struct lane *lane = &peer->lane[op->exe->class];
	struct piece a = locate(op, &step->a, k);
	enum tp_kind kind = TP_DATA;
	const void *body = a.at;
	uint64_t len = a.bytes;
	struct tp_ref ref;
	dicomm_result_t status;

	if (!a.n)
		return SCHEDULE_DONE;
	if (k && op->wholes[s].active)
		return SCHEDULE_POSTED;
	if (seq > atomic_load_explicit(lane->released, memory_order_acquire) +
			  comm->slots)
		return SCHEDULE_AGAIN;
	if (!k && is_ready_whole(op, step, &step->a))
		len = whole_bytes(op, &step->a);
	if (len >= comm->map_threshold && step->a.buffer != PLAN_SCRATCH &&
	    peer->transport->offer(peer->tp, a.at, len, &ref)) {
		kind = TP_REF;
		body = &ref;
	}
	status = peer->transport->put(peer->tp, op->exe->class, seq,
				      signature_of(op, step), kind, body,
				      kind == TP_REF ? len : a.bytes);
	if (status == DICOMM_AGAIN)
		return SCHEDULE_AGAIN;
	if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
		return step_fail(op, status, step->peer);
	if (kind == TP_REF && len > a.bytes) {
		op->wholes[s].active = true;
		seq += (slices_of(op, len) - 1) *
		       op->exe->plan.sends_to[step->peer];
	}
	if (seq > lane->out_last)
		lane->out_last = seq;
	comm->stats.messages_sent++;
	comm->stats.bytes_sent += a.bytes;
	return kind == TP_REF || status == DICOMM_IN_PROGRESS ? SCHEDULE_POSTED
							      : SCHEDULE_DONE;
}

/* Room for a message that must be read, but not to its final place. */
static dicomm_result_t step_bounce(struct operation *op)
{
	if (!op->bounce)
		op->bounce = aligned_alloc(4096, op->comm->slot_bytes);
	if (!op->bounce)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "receive: no memory for %u bytes",
			    op->comm->slot_bytes);
	return DICOMM_SUCCESS;
}

/* The message's bytes as memory to load from. A reference that cannot be
 * mapped is read into `into`. */
dicomm_result_t step_fetch(struct operation *op, struct peer *peer,
			   uint64_t seq, const struct tp_line *line, void *into,
			   const void **src)
{
	struct dicomm_comm *comm = op->comm;
	struct tp_ref ref;
	dicomm_result_t status;

	if (line->kind == TP_DATA) {
		*src = message_payload(comm, &peer->lane[op->exe->class], seq,
				       line);
		comm->stats.bytes_ring += line->len;
		return DICOMM_SUCCESS;
	}
	memcpy(&ref, line->room, sizeof(ref));
	status = peer->transport->map(peer->tp, &ref, line->len, src);
	if (status != DICOMM_ERR_UNSUPPORTED) {
		comm->stats.bytes_mapped += line->len;
		return status;
	}
	if (!into) {
		TRY(step_bounce(op));
		into = op->bounce;
	}
	*src = into;
	comm->stats.bytes_cma += line->len;
	return peer->transport->read(peer->tp, &ref, 0, into, line->len);
}

/* Bytes that may be read ahead, so that reading is worth a system call. */
#define READ_AHEAD (UINT64_C(256) << 10)

/* Slice k of a message that one reference stands for. */
static dicomm_result_t fetch_part(struct operation *op, struct peer *peer,
				  const struct step *step, struct whole *w,
				  uint64_t k, const struct piece *dst,
				  const void **src)
{
	struct dicomm_comm *comm = op->comm;
	uint64_t slice = op->exe->slice * op->exe->elem_bytes;
	uint64_t at = k * slice;
	uint64_t ahead = dst->bytes;
	const void *base;
	dicomm_result_t status;

	*src = dst->at;
	if (at < w->read)
		return DICOMM_SUCCESS;
	status = peer->transport->map(peer->tp, &w->ref, w->bytes, &base);
	if (status == DICOMM_SUCCESS) {
		*src = (const uint8_t *)base + at;
		comm->stats.bytes_mapped += dst->bytes;
		return status;
	}
	if (status != DICOMM_ERR_UNSUPPORTED)
		return status;
	comm->stats.bytes_cma += dst->bytes;
	if (step->kind == STEP_RECV_REDUCE) {
		TRY(step_bounce(op));
		*src = op->bounce;
		return peer->transport->read(peer->tp, &w->ref, at, op->bounce,
					     ahead);
	}
	if (is_ready_whole(op, step, &step->dst)) {
		/* Slices as a whole: what has been read of one is all of it. */
		ahead = slice < READ_AHEAD ? READ_AHEAD / slice * slice : slice;
		if (ahead > w->bytes - at)
			ahead = w->bytes - at;
		w->read = at + ahead;
	}
	return peer->transport->read(peer->tp, &w->ref, at, dst->at, ahead);
}

/* Has slice k come? Then its bytes are at *src. */
static enum schedule_result
find_message(struct operation *op, struct peer *peer, const struct step *step,
	     uint32_t s, uint64_t k, uint64_t seq, const struct piece *dst,
	     const void **src)
{
	const struct executable *exe = op->exe;
	struct lane *lane = &peer->lane[exe->class];
	struct whole *w = exe->slices > 1 ? &op->wholes[s] : NULL;
	uint32_t signature = signature_of(op, step);
	struct tp_line *line;
	dicomm_result_t status;

	if (w && w->active && k) {
		status = fetch_part(op, peer, step, w, k, dst, src);
		goto out;
	}
	if (!lane->lines) {
		status = comm_connect_in(op->comm, peer, exe->class);
		if (status == DICOMM_AGAIN)
			return SCHEDULE_AGAIN;
		if (status != DICOMM_SUCCESS)
			goto out;
	}
	line = message_arrived(op->comm, lane, seq);
	if (!line)
		return SCHEDULE_AGAIN;
	if (line->signature == signature && line->len == dst->bytes) {
		status = step_fetch(op, peer, seq, line,
				    step->kind == STEP_RECV ? dst->at : NULL,
				    src);
		goto out;
	}
	if (line->signature != signature || line->kind != TP_REF || !w || k ||
	    line->len != whole_bytes(op, &step->dst)) {
		wait_unlike(op->comm, &op->call, op->number, peer->rank);
		return SCHEDULE_FAILED;
	}
	w->active = true;
	w->read = 0;
	w->bytes = line->len;
	memcpy(&w->ref, line->room, sizeof(w->ref));
	status = fetch_part(op, peer, step, w, k, dst, src);
out:
	return status == DICOMM_SUCCESS ? SCHEDULE_DONE
					: step_fail(op, status, step->peer);
}

static enum schedule_result start_recv(struct operation *op,
				       const struct step *step, uint32_t s,
				       uint64_t k, uint64_t seq)
{
	struct dicomm_comm *comm = op->comm;
	const struct executable *exe = op->exe;
	struct peer *peer = &comm->peers[step->peer];
	struct piece dst = locate(op, &step->dst, k), a;
	const void *src;
	enum schedule_result r;

	if (!message_in_reach(&peer->lane[exe->class], seq))
		return SCHEDULE_AGAIN;
	if (!dst.n) {
		message_consumed(peer, exe->class, seq);
		return SCHEDULE_DONE;
	}
	r = find_message(op, peer, step, s, k, seq, &dst, &src);
	if (r != SCHEDULE_DONE)
		return r;
	if (step->kind == STEP_RECV_REDUCE) {
		a = locate(op, &step->a, k);
		(exe->stream_out && !exe->read_later[s]
			 ? exe->reduce_stream
			 : exe->reduce)(dst.at, a.at, src, dst.n);
	} else if (src != dst.at) {
		if (exe->stream_out && !exe->read_later[s])
			reduce_copy_stream(dst.at, src, dst.bytes);
		else
			memcpy(dst.at, src, dst.bytes);
	}
	comm->stats.messages_received++;
	comm->stats.bytes_received += dst.bytes;
	message_consumed(peer, exe->class, seq);
	return SCHEDULE_DONE;
}

static void fold(struct operation *op, const struct step *step, uint64_t k)
{
	const struct executable *exe = op->exe;
	struct piece dst = locate(op, &step->dst, k);
	struct piece own = locate(op, &step->a, k);
	const void *src[step->nfold];

	for (uint32_t i = 0; i < step->nfold; i++) {
		struct span s = step->b;

		s.block += i;
		src[i] = (int)i == op->comm->rank ? own.at
						  : locate(op, &s, k).at;
	}
	reduce_fold(op->call.type, exe->op, dst.at, src, (int)step->nfold,
		    dst.n);
}

static void do_local(struct operation *op, const struct step *step, uint32_t s,
		     uint64_t k)
{
	const struct executable *exe = op->exe;
	struct piece dst = locate(op, &step->dst, k);
	struct piece a = locate(op, &step->a, k);

	if (!dst.n)
		return;
	switch (step->kind) {
	case STEP_COPY:
		if (exe->stream_out && !exe->read_later[s])
			reduce_copy_stream(dst.at, a.at, dst.bytes);
		else
			memcpy(dst.at, a.at, dst.bytes);
		break;
	case STEP_REDUCE:
		exe->reduce(dst.at, a.at, locate(op, &step->b, k).at, dst.n);
		break;
	case STEP_SCALE:
		exe->scale(dst.at, a.at, exe->scalar, dst.n);
		break;
	case STEP_DIVIDE:
		exe->divide(dst.at, a.at, op->comm->ranks, dst.n);
		break;
	case STEP_FOLD:
		fold(op, step, k);
		break;
	}
}

/* Slices that a message step of alltoallv has: each pair its own number. */
static bool beyond(const struct operation *op, const struct step *step,
		   uint64_t k)
{
	const size_t *n;

	if (op->call.coll != COLL_ALLTOALLV || step->peer < 0)
		return false;
	n = step->kind == STEP_SEND ? op->call.send_counts
				    : op->call.recv_counts;
	return k * op->exe->slice >= n[step->peer];
}

static enum schedule_result start(void *ctx, const struct step *step,
				  uint32_t s, uint64_t slice, uint64_t number)
{
	struct operation *op = ctx;
	const struct lane *lane;

	if (step->peer < 0) {
		do_local(op, step, s, slice);
		return SCHEDULE_DONE;
	}
	if (beyond(op, step, slice))
		return SCHEDULE_DONE;
	lane = &op->comm->peers[step->peer].lane[op->exe->class];
	if (step->kind == STEP_SEND)
		return start_send(op, step, s, slice,
				  lane->out_base + number + 1);
	return start_recv(op, step, s, slice, lane->in_base + number + 1);
}

static enum schedule_result finished(void *ctx, const struct step *step,
				     uint32_t s, uint64_t slice,
				     uint64_t number)
{
	struct operation *op = ctx;
	const struct lane *lane =
		&op->comm->peers[step->peer].lane[op->exe->class];

	(void)s;
	if (beyond(op, step, slice))
		return SCHEDULE_DONE;
	return atomic_load_explicit(lane->released, memory_order_acquire) >=
			       lane->out_base + number + 1
		       ? SCHEDULE_DONE
		       : SCHEDULE_AGAIN;
}

const struct schedule_io step_io = {.start = start, .finished = finished};
