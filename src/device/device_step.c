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
#include <string.h>

#include "src/base/log.h"
#include "src/core/member.h"
#include "src/device/device_ref.h"
#include "src/engine/step.h"

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
			       __builtin_ctz(op->comm->ways[peer->rank]) &
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

static enum schedule_result do_local(const struct part *p)
{
	dicomm_result_t status = queue_local(p->op, p->step, p->k);

	return status == DICOMM_SUCCESS ? SCHEDULE_DONE
					: step_fail(p->op, status, -1);
}

static dicomm_result_t do_work(struct dicomm_comm *comm,
			       const struct local_work *work)
{
	return queued(comm->dev, work->run(work, comm->dev->stream));
}

/* ---- sends ---- */

/* Returns true if this slice is the next to be sent of all sends of
 * the operation. */
static bool is_next(const struct part *p)
{
	const struct schedule *sc = &p->op->schedule;
	const struct plan *plan = &p->op->prep->plan;

	for (uint32_t i = sc->first; i < plan->nsteps; i++)
		if (plan->steps[i].kind == STEP_SEND &&
		    (sc->posted[i] < p->k ||
		     (sc->posted[i] == p->k && i < p->s)))
			return false;
	return true;
}

/* Returns true if this slice may have a stage. If other sends took all stages,
 * a peer could wait for this slice before it receives those. Point-to-point
 * messages have no order among them, so half of the stages are kept for
 * operations that have none yet. */
static bool may_have_stage(const struct part *p)
{
	const struct schedule *sc = &p->op->schedule;
	unsigned used = p->op->comm->dev->sends[p->m.class];

	if (p->m.class == TP_POINT_TO_POINT)
		return used < DEVICE_SENDS / 2 ||
		       sc->posted[p->s] == sc->done[p->s];
	return used < DEVICE_SENDS - 1 || is_next(p);
}

/* Returns the number of the offer that contains this span, plus 1. 0: none. */
static int offer_of(const struct operation *op, const struct span *s)
{
	return s->buffer == PLAN_SCRATCH ? op->comm->dev->scratch_offer + 1
					 : op->call.offers[s->buffer];
}

static enum schedule_result send_message(struct part *p)
{
	struct operation *op = p->op;
	struct device *dev = op->comm->dev;
	const struct peer *peer = p->m.peer;
	const struct span *a = &p->step->a;
	dicomm_result_t status = DICOMM_SUCCESS;
	bool reached = is_reached(op, peer, a), in_place;
	struct stage *st;

	if ((dev->shares_host || reached) && device_is_idle(dev))
		return step_send(p);
	if (!may_have_stage(p))
		return SCHEDULE_AGAIN;
	st = device_stage(dev, op, p->s, p->k, true);
	if (!st)
		return SCHEDULE_AGAIN;
	device_stage_place(dev, peer, st);
	in_place = device_ref_in_place(op->comm, peer, offer_of(op, a),
				       p->piece.at, &st->mem_ref);
	if (device_ref_in_device(peer))
		st->at = st->exported;
	if (reached || in_place)
		st->at = p->piece.at;
	else if (!dev->shares_host)
		status = copy_stage(op->comm, st, st->at, p->piece.at,
				    p->piece.bytes);
	if (peer->has_peer_access && !in_place)
		st->mem_ref = device_ref_to_stage(dev, peer, st);
	st->mem_ref.bytes = p->piece.bytes;
	/* No queued work writes this span any more. */
	if (in_place && (!p->step->dep_count || device_is_idle(dev))) {
		st->phase = STAGE_REACHED;
		return SCHEDULE_POSTED;
	}
	if (status == DICOMM_SUCCESS)
		status = device_mark(dev, st);
	return status == DICOMM_SUCCESS ? SCHEDULE_POSTED
					: step_fail(op, status, -1);
}

/* Sends the bytes of a stage, or says where a neighbour finds them. The device
 * has written them by now. */
static enum schedule_result send_stage(struct part *p, const struct stage *st)
{
	struct message_slice *m = &p->m;

	p->piece = step_locate(p->op, &p->step->a, p->k);
	m->bytes = m->whole = p->piece.bytes;
	if (p->op->comm->dev->shares_host)
		return p->k && m->flow->whole ? SCHEDULE_POSTED : step_send(p);
	m->from = st->at;
	m->way = MESSAGE_COPY;
	m->want = TP_WANT_COPY;
	m->mem_ref = m->peer->has_peer_access ? &st->mem_ref : NULL;
	return step_put(p);
}

static enum schedule_result sent(struct part *p)
{
	struct device *dev = p->op->comm->dev;
	struct stage *st = device_stage_of(dev, p->op, p->s, p->k);
	enum schedule_result r;

	if (!st)
		return step_sent(p);
	if (st->phase == STAGE_QUEUED)
		return SCHEDULE_AGAIN;
	if (st->phase == STAGE_REACHED) {
		r = send_stage(p, st);
		if (r == SCHEDULE_AGAIN || r == SCHEDULE_FAILED)
			return r;
		if (r == SCHEDULE_DONE || dev->shares_host) {
			device_stage_free(dev, st);
			return r == SCHEDULE_DONE ? r : step_sent(p);
		}
		st->phase = STAGE_SENT;
	}
	r = step_sent(p);
	if (r == SCHEDULE_DONE)
		device_stage_free(dev, st);
	return r;
}

/* ---- receives ---- */

/* Returns true if the memory may be reused before the device has read it. When
 * a rank of this process aborts, its buffers belong to its user again. Its
 * transport waits only until messages are released, but the device may read
 * longer. So the device must not read the slots of that transport. */
static bool may_be_gone(const struct part *p)
{
	const struct dicomm_comm *comm = p->op->comm;
	const struct peer *peer = p->m.peer;

	return p->m.mapped && !peer->has_peer_access &&
	       comm->members[peer->rank].pid == comm->members[comm->rank].pid;
}

/* Make the bytes accessible to the device: copy them to the stage, unless the
 * device sees them where they are. */
static dicomm_result_t bring(struct part *p, const struct stage *st)
{
	struct message_slice *m = &p->m;

	if (m->src == st->at || (m->seen && !may_be_gone(p)))
		return DICOMM_SUCCESS;
	memcpy(st->at, m->src, m->bytes);
	m->src = st->at;
	return m->mapped ? message_intact(m->peer) : DICOMM_SUCCESS;
}

/* Queue the copy or reduction of bytes that the device sees. Returns AGAIN if
 * their owner has given up; this rank will hear of the failure. */
static enum schedule_result land(struct part *p, struct stage *st)
{
	struct operation *op = p->op;
	struct device *dev = op->comm->dev;
	struct peer *peer = p->m.peer;
	const struct piece *dst = &p->piece;
	const void *src = p->m.src;
	dicomm_result_t status;

	if (!device_ref_begin(peer))
		return SCHEDULE_AGAIN;
	if (src != st->at) {
		st->from = peer;
		st->class = p->m.class;
		st->seq = p->m.seq;
	} else {
		message_consumed(peer, p->m.class, p->m.seq);
	}
	if (p->step->kind == STEP_RECV_REDUCE)
		status = queued(
			dev,
			dev->work->reduce(
				dev->stream, op->call.type, op->prep->op,
				dst->at, step_locate(op, &p->step->a, p->k).at,
				src == st->at ? st->seen : src, dst->n));
	else
		status = copy_stage(op->comm, st, dst->at, src, dst->bytes);
	if (status == DICOMM_SUCCESS)
		status = device_mark(dev, st);
	device_ref_end(dev, peer, st, status);
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, -1);
	step_count(p, peer->has_peer_access && !p->m.seen);
	return SCHEDULE_DONE;
}

/* Returns true if a transport may read the bytes into the user's buffer. The
 * steps before this one may only be queued, not done; if so, it may not. */
static bool may_come_in_place(const struct part *p)
{
	return p->step->kind == STEP_RECV &&
	       is_reached(p->op, p->m.peer, &p->step->dst) &&
	       (!p->step->dep_count || device_is_idle(p->op->comm->dev));
}

/* A transport reads the bytes into the stage. */
static void read_to_stage(struct part *p, const struct stage *st)
{
	p->m.into = st->at;
	p->m.ahead = 0;
}

static enum schedule_result recv_message(struct part *p)
{
	struct device *dev = p->op->comm->dev;
	enum schedule_result result;
	dicomm_result_t status;
	struct stage *st;

	if (may_come_in_place(p))
		return step_recv(p);
	st = device_stage(dev, p->op, p->s, p->k, false);
	if (!st)
		return SCHEDULE_AGAIN;
	device_stage_place(dev, p->m.peer, st);
	read_to_stage(p, st);
	p->m.seen = dev->shares_host || p->m.peer->by_reference;
	result = step_find(p);
	st->mapped = p->m.mapped;
	if (result == SCHEDULE_DONE) {
		status = bring(p, st);
		result = status == DICOMM_SUCCESS
				 ? land(p, st)
				 : step_fail(p->op, status, p->step->peer);
	}
	if (result == SCHEDULE_AGAIN)
		device_stage_free(dev, st);
	/* POSTED: the transport is reading the bytes into the stage. */
	return result;
}

static enum schedule_result received(struct part *p)
{
	struct stage *st = device_stage_of(p->op->comm->dev, p->op, p->s, p->k);
	enum schedule_result result;

	if (!st || st->phase != STAGE_READING)
		return step_received(p);
	read_to_stage(p, st);
	result = step_arrived(p);
	return result == SCHEDULE_DONE ? land(p, st) : result;
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
