/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One step of an operation on one slice, for a rank whose buffers are device
 * memory (see device.h).
 *
 * Send: the device copies the bytes to a staging buffer. When the stream has
 * reached the event behind the copy, the host puts the message. If the peer
 * reads the staging buffer itself, the host puts a memory reference instead.
 *
 * Receive: the bytes are read into a staging buffer, so that the slot is free
 * at once. From there the device copies or reduces them. Kernels read staging
 * buffers and referenced memory in place.
 *
 * Without a copy: ranks of one process and device, and processes that have
 * imported the buffer (ipc.h), get a reference to the user's buffer itself. If
 * a transport reaches the user's buffer (user_buffer.h), it sends from there as
 * soon as the device has written the bytes. It receives into the user's buffer
 * if no queued work may still use the place. Otherwise it receives into a
 * staging buffer, because to wait would cost more than to copy.
 *
 * The host does not access staging buffers in device memory; they are for
 * transports and neighbours that do. A device that shares the host's memory
 * sends from its buffers as a host rank does. Its kernels read slots and memory
 * of neighbours, which are released when the kernels have run.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/core/member.h"
#include "src/message/receive.h"
#include "src/device/device.h"
#include "src/engine/step.h"

/* How long drain() waits for work that was queued before a failure,
 * in nanoseconds. */
#define DRAIN_NS UINT64_C(10000000000)

/* Note that work was queued without an event, and pass the status on. */
static dicomm_result_t queued(struct device *dev, dicomm_result_t status)
{
	dev->unmarked = true;
	return status;
}

static dicomm_result_t copy(struct device *dev, void *dst, const void *src,
			    size_t bytes)
{
	if (dst == src)
		return DICOMM_SUCCESS;
	return queued(dev, dev->work->copy(dev->stream, dst, src, bytes));
}

/* Copy between a buffer and a stage. Counted if both are in device memory. */
static dicomm_result_t copy_stage(struct dicomm_comm *comm,
				  const struct stage *st, void *dst,
				  const void *src, size_t bytes)
{
	if (dst == st->exported || src == st->exported)
		comm->stats.bytes_copied += bytes;
	return copy(comm->dev, dst, src, bytes);
}

/* Returns true if the transport to that peer reaches this memory itself. */
static bool is_reached(const struct operation *op, const struct peer *peer,
		       const struct span *s)
{
	return peer->by_reference && peer->rank != op->comm->rank &&
	       s->buffer != PLAN_SCRATCH &&
	       op->call.transports[s->buffer] >>
			       __builtin_ctz(peer->transports) &
		       1;
}

/* ---- local steps ---- */

static dicomm_result_t scale(struct operation *op, const struct piece *dst,
			     const struct piece *a)
{
	const struct prepared *prep = op->prep;
	struct device *dev = op->comm->dev;
	uint64_t bits;

	if (op->call.op == DICOMM_AVG)
		return queued(dev, dev->work->divide(dev->stream, op->call.type,
						     dst->at, a->at,
						     op->comm->ranks, dst->n));
	memcpy(&bits, prep->scalar, sizeof(bits));
	return queued(dev,
		      dev->work->scale(dev->stream, op->call.type, dst->at,
				       a->at, prep->scalar_at, bits, dst->n));
}

/* Queue a fold of the blocks of all ranks. With more than 8 blocks, kernels
 * need all of them at equal distances, so this rank's block is copied to its
 * place in scratch. */
static dicomm_result_t fold(struct operation *op, const struct step *step,
			    uint64_t k)
{
	struct device *dev = op->comm->dev;
	struct piece dst = step_locate(op, &step->dst, k);
	struct piece own = step_locate(op, &step->a, k);
	const void *src[step->nfold];
	int me = call_rank(&op->call, op->comm->rank);

	for (uint32_t i = 0; i < step->nfold; i++) {
		struct span s = step->b;
		struct piece p;

		s.block += i;
		p = step_locate(op, &s, k);
		src[i] = p.at;
		if ((int)i != me)
			continue;
		if (step->nfold > 8)
			TRY(copy(dev, p.at, own.at, own.bytes));
		else
			src[i] = own.at;
	}
	if (step->nfold == 1)
		return copy(dev, dst.at, src[0], dst.bytes);
	return queued(dev,
		      dev->work->fold(dev->stream, op->call.type, op->prep->op,
				      dst.at, src, (int)step->nfold, dst.n));
}

static dicomm_result_t queue_local(struct operation *op,
				   const struct step *step, uint64_t k)
{
	const struct prepared *prep = op->prep;
	struct device *dev = op->comm->dev;
	struct piece dst = step_locate(op, &step->dst, k);
	struct piece a = step_locate(op, &step->a, k);

	if (!dst.n)
		return DICOMM_SUCCESS;
	switch (step->kind) {
	case STEP_COPY:
		return copy(dev, dst.at, a.at, dst.bytes);
	case STEP_REDUCE:
		return queued(dev,
			      dev->work->reduce(dev->stream, op->call.type,
						prep->op, dst.at, a.at,
						step_locate(op, &step->b, k).at,
						dst.n));
	case STEP_SCALE:
		return scale(op, &dst, &a);
	case STEP_DIVIDE:
		return queued(dev, dev->work->divide(dev->stream, op->call.type,
						     dst.at, a.at,
						     op->comm->ranks, dst.n));
	default:
		return fold(op, step, k);
	}
}

static enum schedule_result
do_local(struct operation *op, const struct step *step, uint32_t s, uint64_t k)
{
	dicomm_result_t status = queue_local(op, step, k);

	(void)s;
	return status == DICOMM_SUCCESS ? SCHEDULE_DONE
					: step_fail(op, status, -1);
}

static dicomm_result_t do_work(struct dicomm_comm *comm,
			       const struct local_work *work)
{
	return queued(comm->dev, work->run(work, comm->dev->stream));
}

/* ---- sends ---- */

/* Returns true if this slice is the next to be sent of all sends of
 * the operation. */
static bool is_next(const struct operation *op, uint32_t s, uint64_t k)
{
	const struct schedule *sc = &op->schedule;

	for (uint32_t i = sc->first; i < op->prep->plan.nsteps; i++)
		if (op->prep->plan.steps[i].kind == STEP_SEND &&
		    (sc->posted[i] < k || (sc->posted[i] == k && i < s)))
			return false;
	return true;
}

/* Returns true if this slice may have a stage. If other sends took all stages,
 * a peer could wait for this slice before it receives those. Point-to-point
 * messages have no order among them, so half of the stages are kept for
 * operations that have none yet. */
static bool may_have_stage(const struct operation *op, uint32_t s, uint64_t k)
{
	const struct schedule *sc = &op->schedule;
	unsigned used = op->comm->dev->sends[op->prep->class];

	if (op->prep->class == TP_POINT_TO_POINT)
		return used < DEVICE_SENDS / 2 || sc->posted[s] == sc->done[s];
	return used < DEVICE_SENDS - 1 || is_next(op, s, k);
}

/* Returns true if the peer reads stages in device memory. A host rank with peer
 * access reads them in host memory, which the device writes. */
static bool is_in_device(const struct peer *peer)
{
	return peer->has_peer_access && !peer->neighbour->maps;
}

/* Returns true for a peer of this process, which also reads the user's buffer
 * and scratch. */
static bool is_in_process(const struct peer *peer)
{
	return peer->has_peer_access && peer->neighbour->in_process;
}

/* Returns the number of the offer that contains this span, plus 1. 0: none. */
static int offer_of(const struct operation *op, const struct span *s)
{
	return s->buffer == PLAN_SCRATCH ? op->comm->dev->scratch_offer + 1
					 : op->call.offers[s->buffer];
}

/* If the peer can read that span in place, make the reference to it. Otherwise
 * returns false. */
static bool mem_ref_in_place(const struct operation *op,
			     const struct peer *peer, const struct span *s,
			     const void *at, struct memory_ref *mem_ref)
{
	int offer = offer_of(op, s);

	*mem_ref = (struct memory_ref){.where.fd = offer - 1,
				       .offset = (uintptr_t)at};
	if (is_in_process(peer))
		return !peer->neighbour->apart || offer;
	if (!peer->has_peer_access || !peer->neighbour->view || !offer)
		return false;
	mem_ref->where.id =
		ipc_reference(op->comm->dev->ipc, peer->neighbour->view,
			      offer - 1, at, &mem_ref->offset);
	return mem_ref->where.id;
}

/* Returns the offset of the stage as the peer counts it. */
static uint64_t stage_offset(const struct device *dev, const struct peer *peer,
			     const struct stage *st)
{
	if (is_in_process(peer))
		return (uintptr_t)st->at;
	return (uint64_t)(st->at -
			  (is_in_device(peer) ? dev->exported : dev->memory));
}

static enum schedule_result send_message(struct operation *op,
					 const struct step *step, uint32_t s,
					 uint64_t k, uint64_t seq)
{
	struct dicomm_comm *comm = op->comm;
	struct device *dev = comm->dev;
	struct piece a = step_locate(op, &step->a, k);
	const struct peer *peer = &comm->peers[step->peer];
	const struct channel *channel = &peer->channel[op->prep->class];
	dicomm_result_t status = DICOMM_SUCCESS;
	bool reached = is_reached(op, peer, &step->a), in_place;
	struct stage *st;

	if (!a.n)
		return SCHEDULE_DONE;
	/* The reference sent with the first slice stands for all slices, so
	 * there is nothing more to do. */
	if (k && op->flows[s].whole)
		return SCHEDULE_POSTED;
	if ((dev->shares_host || reached) && device_is_idle(dev))
		return step_send(op, step, s, k, seq);
	if (!message_may_leave(peer, channel, seq, op->prep->incast))
		return SCHEDULE_AGAIN;
	if (!may_have_stage(op, s, k))
		return SCHEDULE_AGAIN;
	st = device_stage(dev, op, s, k, true);
	if (!st)
		return SCHEDULE_AGAIN;
	device_stage_place(dev, peer, st);
	in_place = mem_ref_in_place(op, peer, &step->a, a.at, &st->mem_ref);
	if (is_in_device(peer))
		st->at = st->exported;
	if (reached || in_place)
		st->at = a.at;
	else if (!dev->shares_host)
		status = copy_stage(comm, st, st->at, a.at, a.bytes);
	if (peer->has_peer_access && !in_place)
		st->mem_ref = (struct memory_ref){
			.offset = stage_offset(dev, peer, st)};
	st->mem_ref.bytes = a.bytes;
	/* No queued work writes this span any more. */
	if (in_place && (!step->dep_count || device_is_idle(dev))) {
		st->phase = STAGE_REACHED;
		return SCHEDULE_POSTED;
	}
	if (status == DICOMM_SUCCESS)
		status = device_mark(dev, st);
	return status == DICOMM_SUCCESS ? SCHEDULE_POSTED
					: step_fail(op, status, -1);
}

/* The body of a message: the bytes in the stage, or a reference to them. */
struct body {
	uint32_t signature;
	enum tp_kind kind;
	const void *at;
	size_t len;
	struct tp_ref ref;
};

static dicomm_result_t find_body(const struct peer *peer,
				 const struct stage *st, uint32_t signature,
				 size_t bytes, struct body *b)
{
	*b = (struct body){.signature = signature,
			   .kind = TP_DATA,
			   .at = st->at,
			   .len = bytes};
	if (peer->has_peer_access) {
		b->signature = memory_ref_signature(signature);
		b->at = &st->mem_ref;
		b->len = sizeof(st->mem_ref);
		return DICOMM_SUCCESS;
	}
	if (bytes <= peer->limits.eager_bytes)
		return DICOMM_SUCCESS;
	b->kind = TP_REF;
	b->at = &b->ref;
	if (peer->transport->offer(peer->tp, st->at, bytes, TP_WANT_COPY,
				   &b->ref))
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INTERNAL,
		    "send to rank %d: %s does not reach %zu bytes at %p",
		    peer->rank, peer->transport->name, bytes, (void *)st->at);
}

/* Put the message of a stage. The device has written the bytes by now. */
static enum schedule_result put(struct operation *op, const struct step *step,
				struct stage *st, uint64_t seq)
{
	struct dicomm_comm *comm = op->comm;
	struct peer *peer = &comm->peers[step->peer];
	struct channel *channel = &peer->channel[op->prep->class];
	size_t bytes = step_locate(op, &step->a, st->slice).bytes;
	struct body body;
	dicomm_result_t status;

	status = find_body(peer, st, step_signature(op, step), bytes, &body);
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, -1);
	status = peer->transport->put(peer->tp, op->prep->class, seq,
				      body.signature, body.kind, body.at,
				      body.len);
	if (status == DICOMM_AGAIN)
		return SCHEDULE_AGAIN;
	if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
		return step_fail(op, status, step->peer);
	if (seq > channel->out_last)
		channel->out_last = seq;
	comm->stats.messages_sent++;
	comm->stats.bytes_sent += bytes;
	return body.kind == TP_REF || peer->has_peer_access ||
			       status == DICOMM_IN_PROGRESS
		       ? SCHEDULE_POSTED
		       : SCHEDULE_DONE;
}

static enum schedule_result sent(struct operation *op, const struct step *step,
				 uint32_t s, uint64_t k, uint64_t seq)
{
	struct device *dev = op->comm->dev;
	struct stage *st = device_stage_of(dev, op, s, k);
	enum schedule_result r;

	if (!st)
		return step_sent(op, step, seq);
	if (st->phase == STAGE_QUEUED)
		return SCHEDULE_AGAIN;
	if (st->phase == STAGE_REACHED) {
		r = dev->shares_host ? step_send(op, step, s, k, seq)
				     : put(op, step, st, seq);
		if (r == SCHEDULE_AGAIN || r == SCHEDULE_FAILED)
			return r;
		if (r == SCHEDULE_DONE || dev->shares_host) {
			device_stage_free(dev, st);
			return r == SCHEDULE_DONE ? r
						  : step_sent(op, step, seq);
		}
		st->phase = STAGE_SENT;
	}
	r = step_sent(op, step, seq);
	if (r == SCHEDULE_DONE)
		device_stage_free(dev, st);
	return r;
}

/* ---- receives ---- */

/* Wait until the stream is empty, after work may have been queued without
 * an event. Otherwise the rank whose memory it reads would not know when it
 * is done. */
static void drain(struct device *dev, struct accel_event *event)
{
	uint64_t end = clock_ns() + DRAIN_NS;

	if (dev->work->event_record(event, dev->stream) != DICOMM_SUCCESS)
		return;
	while (dev->work->event_query(event) == DICOMM_AGAIN &&
	       clock_ns() < end)
		sched_yield();
}

/* Returns true if the memory may be reused before the device has read it. When
 * a rank of this process aborts, its buffers belong to its user again. Its
 * transport waits only until messages are released, but the device may read
 * longer. So the device must not read the slots of that transport. */
static bool may_be_gone(const struct receive *r)
{
	const struct dicomm_comm *comm = r->op->comm;

	return r->mapped && !r->peer->has_peer_access &&
	       comm->members[r->peer->rank].pid ==
		       comm->members[comm->rank].pid;
}

/* Make the bytes accessible to the device: copy them to the stage, unless the
 * device sees them where they are. */
static dicomm_result_t bring(struct receive *r, const struct stage *st)
{
	if (r->src == st->at || (r->seen && !may_be_gone(r)))
		return DICOMM_SUCCESS;
	memcpy(st->at, r->src, r->dst.bytes);
	r->src = st->at;
	return r->mapped ? message_intact(r->peer) : DICOMM_SUCCESS;
}

/* Queue the copy or reduction of bytes that the device sees at src. Returns
 * AGAIN if their owner has given up; this rank will hear of the failure. */
static enum schedule_result land(struct operation *op, const struct step *step,
				 struct stage *st, uint64_t seq,
				 const void *src, bool seen)
{
	struct device *dev = op->comm->dev;
	struct peer *peer = &op->comm->peers[step->peer];
	struct piece dst = step_locate(op, &step->dst, st->slice);
	struct in_process *in_process =
		is_in_process(peer) ? peer->neighbour->in_process : NULL;
	dicomm_result_t status;

	if (in_process && !in_process_begin(in_process))
		return SCHEDULE_AGAIN;
	if (src != st->at) {
		st->from = peer;
		st->class = op->prep->class;
		st->seq = seq;
	} else {
		message_consumed(peer, op->prep->class, seq);
	}
	if (step->kind == STEP_RECV_REDUCE)
		status = queued(dev,
				dev->work->reduce(
					dev->stream, op->call.type,
					op->prep->op, dst.at,
					step_locate(op, &step->a, st->slice).at,
					src == st->at ? st->seen : src, dst.n));
	else
		status = copy_stage(op->comm, st, dst.at, src, dst.bytes);
	if (status == DICOMM_SUCCESS)
		status = device_mark(dev, st);
	if (in_process) {
		if (status != DICOMM_SUCCESS)
			drain(dev, st->event);
		st->read.work = dev->work;
		st->read.event = status == DICOMM_SUCCESS ? st->event : NULL;
		in_process_end(in_process, &st->read);
	}
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, -1);
	step_count(op, step, dst.bytes, peer->has_peer_access && !seen);
	return SCHEDULE_DONE;
}

/* End a receive whose bytes the transport has read to their final place. */
static enum schedule_result
settle(struct operation *op, const struct step *step, uint64_t k, uint64_t seq)
{
	step_count(op, step, step_locate(op, &step->dst, k).bytes, false);
	message_consumed(&op->comm->peers[step->peer], op->prep->class, seq);
	return SCHEDULE_DONE;
}

static enum schedule_result recv_in_place(struct receive *r)
{
	enum schedule_result result = step_find(r);

	if (result == SCHEDULE_DONE)
		return settle(r->op, r->step, r->k, r->seq);
	if (result == SCHEDULE_POSTED)
		r->flow->posted |= UINT64_C(1) << r->k % 64;
	return result;
}

/* Returns true if a transport may read the bytes into the user's buffer. The
 * steps before this one may only be queued, not done; if so, it may not. */
static bool may_come_in_place(const struct receive *r)
{
	return r->step->kind == STEP_RECV &&
	       is_reached(r->op, r->peer, &r->step->dst) &&
	       (!r->step->dep_count || device_is_idle(r->op->comm->dev));
}

static enum schedule_result recv_message(struct receive *r)
{
	struct device *dev = r->op->comm->dev;
	enum schedule_result result;
	dicomm_result_t status;
	struct stage *st;

	if (may_come_in_place(r))
		return recv_in_place(r);
	st = device_stage(dev, r->op, r->s, r->k, false);
	if (!st)
		return SCHEDULE_AGAIN;
	device_stage_place(dev, r->peer, st);
	r->room = st->at;
	r->seen = dev->shares_host || r->peer->by_reference;
	result = r->peer->has_peer_access ? step_find_ref(r) : step_find(r);
	st->mapped = r->mapped;
	if (result == SCHEDULE_DONE) {
		status = bring(r, st);
		result = status == DICOMM_SUCCESS
				 ? land(r->op, r->step, st, r->seq, r->src,
					r->seen)
				 : step_fail(r->op, status, r->peer->rank);
	}
	if (result == SCHEDULE_AGAIN)
		device_stage_free(dev, st);
	/* POSTED: the transport is reading the bytes into the stage. */
	return result;
}

static enum schedule_result received(struct operation *op,
				     const struct step *step, uint32_t s,
				     uint64_t k, uint64_t seq)
{
	struct stage *st = device_stage_of(op->comm->dev, op, s, k);
	bool reading = st && st->phase == STAGE_READING;
	struct flow *f = &op->flows[s];
	uint64_t bit = UINT64_C(1) << k % 64;
	dicomm_result_t status;

	if (!reading && !(f->posted & bit))
		/* The message was received at once, while an older slice
		 * was POSTED. */
		return SCHEDULE_DONE;
	status = step_arrived(op, step, s, k, seq, !reading);
	if (status == DICOMM_IN_PROGRESS)
		return SCHEDULE_AGAIN;
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, step->peer);
	if (reading)
		return land(op, step, st, seq, st->at, false);
	f->posted &= ~bit;
	return settle(op, step, k, seq);
}

const struct step_ops device_ops = {.local = do_local,
				    .send = send_message,
				    .recv = recv_message,
				    .sent = sent,
				    .received = received,
				    .work = do_work,
				    .progress = device_progress,
				    .end = device_end,
				    .quiesce = device_quiesce};
