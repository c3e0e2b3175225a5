/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations with a plan, which a schedule runs slice by slice: the collectives
 * and the reductions of one rank, which run in call order, and sends and
 * receives without a tag, of known peers, whose plans have one step.
 */
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/core/memory.h"
#include "src/engine/engine.h"
#include "src/engine/order.h"
#include "src/engine/prepare.h"
#include "src/engine/step.h"
#include "src/engine/trace.h"
#include "src/links/drift.h"
#include "src/message/channel.h"

/* Steps that one operation starts in a turn, so that others get theirs */
#define TURN_BUDGET 64

/* The rank that an operation waits for: the peer of its first unfinished
 * message */
static void awaits(const struct operation *op, struct wait_for *f)
{
	const struct schedule *sc = &op->schedule;
	const struct plan *p;

	if (!op->started) {
		f->peer = drift_awaits(op->comm);
		return;
	}
	p = &op->prep->plan;
	for (uint32_t i = sc->first; i < p->nsteps; i++) {
		const struct step *s = &p->steps[i];
		bool ready = true;

		if (s->peer < 0 || sc->done[i] == sc->slices)
			continue;
		for (uint32_t d = 0; d < s->dep_count && ready; d++)
			ready = sc->done[p->deps[s->dep_first + d]] >
				sc->done[i];
		if (!ready)
			continue;
		f->peer = s->peer;
		f->sending = s->kind == STEP_SEND;
		if (!f->sending)
			return; /* a late receive tells more than a late send */
	}
}

static dicomm_result_t post(struct operation *op)
{
	TRY(prepare_get(op->comm, &op->call, &op->prep));
	op->number = order_number(op->comm, op->prep);
	op->signature = prepared_signature(op->prep, op->number);
	order_join(op, order_queue(op->comm, &op->call));
	return DICOMM_SUCCESS;
}

static dicomm_result_t grow_scratch(struct dicomm_comm *comm, size_t bytes)
{
	struct mem_handles handles;
	uint8_t *more;

	if (bytes <= comm->scratch.bytes)
		return DICOMM_SUCCESS;
	/* Scratch on a device is not enlarged: an allocation could wait for a
	 * stream that waits for this thread, and neighbours could not map it in
	 * time. */
	if (comm->dev || comm->scratch.shared)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "operation: %zu bytes of scratch on %s, there are "
			    "%zu",
			    bytes, comm->device, comm->scratch.bytes);
	TRY(comm_mem_alloc(comm, bytes, "scratch", &more, &handles));
	comm_mem_free(comm, comm->scratch.at, &comm->scratch.handles);
	comm->scratch.at = more;
	comm->scratch.handles = handles;
	comm->scratch.bytes = bytes;
	return DICOMM_SUCCESS;
}

static dicomm_result_t clear_flows(struct operation *op)
{
	uint32_t n = op->prep->plan.nsteps;

	if (op->flows_room < n) {
		free(op->flows);
		op->comm->stats.memory_bytes -=
			op->flows_room * sizeof(*op->flows);
		op->flows_room = 0;
		op->flows = malloc(n * sizeof(*op->flows));
		if (!op->flows)
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "operation: no memory for %u steps", n);
		op->flows_room = n;
		op->comm->stats.memory_bytes += n * sizeof(*op->flows);
	}
	for (uint32_t i = 0; i < n; i++) {
		op->flows[i].whole = false;
		op->flows[i].posted = 0;
	}
	return DICOMM_SUCCESS;
}

/* Messages from or to the call's buffers may go by reference. */
static dicomm_result_t register_buffers(struct operation *op)
{
	const struct dicomm_comm *comm = op->comm;
	size_t first, bytes;

	for (enum plan_buffer b = PLAN_SEND; b <= PLAN_RECV; b++) {
		const void *base =
			b == PLAN_SEND ? op->call.send : op->call.recv;

		if (block_runs_apply(&op->call, b)) {
			TRY(block_runs_register(op->comm, &op->call, b,
						&op->runs[b]));
			continue;
		}
		call_touches(&op->call, call_rank(&op->call, comm->rank),
			     call_ranks(&op->call, comm->ranks), b, &first,
			     &bytes);
		if (base && bytes)
			TRY(comm_mem_register(op->comm,
					      (const char *)base + first, bytes,
					      b == PLAN_RECV, &op->handles[b]));
	}
	return DICOMM_SUCCESS;
}

/* The links were replaced after the operation was queued, so choose its
 * algorithm again. */
static dicomm_result_t renew(struct operation *op)
{
	struct prepared *old = op->prep;

	if (!old->algorithm || old->key.epoch == op->comm->links_epoch)
		return DICOMM_SUCCESS;
	TRY(prepare_get(op->comm, &op->call, &op->prep));
	prepare_put(old);
	return DICOMM_SUCCESS;
}

static inline uint64_t messages_of(const struct operation *op,
				   const struct pair *pair, bool out)
{
	const struct prepared *e = op->prep;
	uint32_t each = out ? pair->out : pair->in;

	if (!coll_counts_in_pairs(op->call.function) || !each)
		return each * e->slices;
	return (call_pair_count(&op->call, pair->peer->rank, out) + e->slice -
		1) /
	       e->slice;
}

/*
 * After an incast operation, a rank sends nothing of the next one to a peer
 * that has not ended the first. Its messages would take bandwidth from those
 * that other ranks still send to that peer, while the peer has nothing to send.
 * For this, each rank withholds the release of its last message until the
 * operation ends.
 */
static void take_turn(struct operation *op)
{
	struct prepared *e = op->prep;

	for (uint32_t i = 0; e->incast && i < e->npairs; i++) {
		struct pair *pair = &e->pairs[i];
		struct channel *channel = &pair->peer->channel[e->class];

		if (pair->peer->limits.congests)
			channel->in_withheld =
				channel->in_base + messages_of(op, pair, false);
	}
}

static void pass_turn(const struct prepared *e, struct pair *pair)
{
	struct channel *channel = &pair->peer->channel[e->class];

	channel->in_withheld = 0;
	if (e->incast && pair->peer->limits.congests) {
		channel->out_settles = channel->out_last;
		if (channel->in.lines)
			message_release(pair->peer, e->class);
	}
}

static dicomm_result_t begin(struct operation *op, bool *progressed)
{
	uint32_t room = op->schedule.room;

	if (op->prep->expected_ns)
		TRY(drift_turn(op, progressed));
	TRY(renew(op));
	op->begun_ns = op->ended_ns = 0;
	op->looked = 0;
	if (op->prep->expected_ns && !call_rooted(op->call.function))
		op->begun_ns = clock_ns();
	TRY(clear_flows(op));
	TRY(grow_scratch(op->comm, op->prep->scratch_bytes));
	if (op->prep->needs_mem_reg)
		TRY(register_buffers(op));
	TRY(schedule_begin(&op->schedule, &op->prep->plan, op->prep->slices,
			   op->prep->window));
	op->comm->stats.memory_bytes +=
		2 * sizeof(uint64_t) * (op->schedule.room - room);
	take_turn(op);
	op->started = true;
	if (trace_on)
		trace_begun(op);
	return DICOMM_SUCCESS;
}

/* Is this operation an incast to this rank? */
static bool has_all(struct operation *op, const uint64_t *slices, uint64_t much)
{
	const struct plan *p = &op->prep->plan;

	for (; op->looked < p->nsteps; op->looked++) {
		enum step_kind kind = p->steps[op->looked].kind;

		if ((kind == STEP_RECV || kind == STEP_RECV_REDUCE) &&
		    slices[op->looked] < much)
			return false;
	}
	op->looked = 0;
	return true;
}

/*
 * In a collective with a root, ranks wait for a late rank, and some end long
 * before others. What tells about the links is how long a rank receives,
 * counted from when all its senders have sent something.
 */
static void time_receives(struct operation *op)
{
	const struct schedule *sc = &op->schedule;

	if (!op->begun_ns && has_all(op, sc->posted, 1))
		op->begun_ns = clock_ns();
	if (op->begun_ns && has_all(op, sc->done, sc->slices))
		op->ended_ns = clock_ns();
}

/* All steps are done: the next operation numbers its messages from here. */
static void end(struct operation *op)
{
	struct prepared *e = op->prep;

	for (uint32_t i = 0; i < e->npairs; i++) {
		struct pair *pair = &e->pairs[i];
		struct channel *channel = &pair->peer->channel[e->class];

		channel->out_base += messages_of(op, pair, true);
		channel->in_base += messages_of(op, pair, false);
		pass_turn(e, pair);
	}
	e->is_fast = e->may_be_fast; /* all channels are connected */
	if (e->expected_ns)
		drift_record(op,
			     (op->ended_ns ? op->ended_ns : clock_ns()) -
				     op->begun_ns,
			     op->prep->expected_ns);
}

static enum schedule_result turn(struct operation *op, bool *progressed)
{
	enum schedule_result r;
	dicomm_result_t status;

	if (op->before)
		return SCHEDULE_AGAIN;
	if (!op->started) {
		status = begin(op, progressed);
		if (status == DICOMM_AGAIN)
			return SCHEDULE_AGAIN;
		if (status != DICOMM_SUCCESS)
			return step_fail(op, status, -1);
	}
	if (op->comm->device_ops) {
		status = op->comm->device_ops->progress(op->comm, progressed);
		if (status != DICOMM_SUCCESS)
			return step_fail(op, status, -1);
	}
	r = schedule_turn(&op->schedule, &step_io, op, TURN_BUDGET, progressed);
	if (op->prep->expected_ns && call_rooted(op->call.function) &&
	    !op->ended_ns)
		time_receives(op);
	if (r == SCHEDULE_DONE && op->comm->device_ops)
		r = op->comm->device_ops->end(op);
	if (r == SCHEDULE_DONE)
		end(op);
	return r;
}

const struct operation_kind planned_kind = {
	.name = "planned", .post = post, .turn = turn, .awaits = awaits};

static enum schedule_result point_to_point_turn(struct operation *op,
						bool *progressed)
{
	enum schedule_result r = turn(op, progressed);

	if (r == SCHEDULE_DONE && op->call.status)
		*op->call.status = (dicomm_status_t){.source = op->call.root,
						     .count = op->call.count};
	return r;
}

const struct operation_kind point_to_point_kind = {.name = "point-to-point",
						   .post = post,
						   .turn = point_to_point_turn,
						   .awaits = awaits};
