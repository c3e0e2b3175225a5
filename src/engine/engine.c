/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes operations from calls, queues them, and runs them to their end. */
#include "src/engine/engine.h"

#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/message/channel.h"
#include "src/core/wait.h"
#include "src/engine/any_source.h"
#include "src/engine/order.h"
#include "src/engine/step.h"
#include "src/engine/tagged.h"
#include "src/engine/prepare.h"
#include "src/engine/trace.h"
#include "src/core/fault.h"
#include "src/core/paths.h"
#include "src/core/memory.h"
#include "src/core/share.h"

/* Steps that one operation starts in a turn, so that others get theirs */
#define TURN_BUDGET 64
/* Time for checks of waiting operations in one turn */
#define WATCH_NS UINT64_C(50000000)
#define TELL_MS \
	100 /* how long a finished rank polls to send its pending credits */

/* The rank that an operation waits for: the peer of its first unfinished
 * message */
static void blocked_on(const struct operation *op, struct wait_for *f)
{
	const struct schedule *sc = &op->schedule;
	const struct plan *p;

	f->comm = op->comm;
	f->call = &op->call;
	f->number = op->number;
	f->peer = -1;
	if (op->call.own) {
		f->peer = op->call.own->awaits(op->call.own);
		f->sending = op->call.coll != COLL_WAIT_SIGNAL;
		return;
	}
	if (op->is_tagged || op->unbound) {
		f->peer = op->call.root;
		f->sending = op->call.coll == COLL_SEND;
		return; /* it has no prepared call */
	}
	p = &op->prep->plan;
	if (!op->started) {
		f->peer = drift_awaits(op->comm);
		return;
	}
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

static bool wait_for(struct waiter *w, struct operation *op, bool alone,
		     bool lends)
{
	struct wait_for f = {.comm = op->comm, .alone = alone, .lends = lends};
	uint64_t checked_ns = w->checked_ns;

	/* Only the slow part checks which rank is late, or needs to know it
	 * because another one has died. */
	if (w->polls + 1 >= wait_spin(op->comm) || fault_is_pending(op->comm))
		blocked_on(op, &f);
	wait_more(w, &f);
	return w->checked_ns != checked_ns;
}

bool engine_wait(struct waiter *w, struct operation *op, bool alone)
{
	return wait_for(w, op, alone, false);
}

/* To ask a peer that does not answer takes time. The next look skips it and
 * asks the one after it. One warning serves for all. */
bool engine_watch(const struct waiter *w, struct operation *op)
{
	struct wait_for f = {.comm = op->comm};

	if (op->watch.since_ns != w->since_ns)
		op->watch = (struct waiter){.since_ns = w->since_ns,
					    .warned = true};
	blocked_on(op, &f);
	wait_look(&op->watch, &f);
	return clock_ns() - w->checked_ns < WATCH_NS;
}

bool engine_look(struct waiter *w, struct operation *op)
{
	struct wait_for f = {.comm = op->comm};

	if (!wait_is_due(w))
		return false;
	blocked_on(op, &f);
	wait_look(w, &f);
	return true;
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

static void count_under_way(struct dicomm_comm *comm, int more)
{
	unsigned n =
		atomic_load_explicit(&comm->under_way, memory_order_relaxed);

	atomic_store_explicit(&comm->under_way, n + (unsigned)more,
			      memory_order_relaxed);
}

void engine_release(struct operation *op)
{
	if (trace_on)
		trace_ended(op);
	count_under_way(op->comm, -1);
	prepare_put(op->prep);
	op->prep = NULL;
	op->next = op->comm->spare;
	op->comm->spare = op;
}

/* Give the operation its place in the order of its queue. */
static dicomm_result_t number(struct operation *op)
{
	TRY(prepare_get(op->comm, &op->call, &op->prep));
	op->number = order_number(op->comm, op->prep);
	op->signature = prepared_signature(op->prep, op->number);
	order_join(op, order_queue(op->comm, &op->call));
	return DICOMM_SUCCESS;
}

/* A one-sided operation waits for no other one. */
static dicomm_result_t number_own(struct operation *op)
{
	op->number = ++op->comm->stats.operations;
	return DICOMM_SUCCESS;
}

dicomm_result_t engine_prepare(struct dicomm_comm *comm,
			       const struct call *call, struct operation **out)
{
	struct operation *op = comm->spare;
	dicomm_result_t status;

	if (op) {
		comm->spare = op->next;
	} else {
		op = calloc(1, sizeof(*op));
		/* The other ranks must not wait for this one. */
		if (!op)
			return fault_own(comm,
					 FAIL(DICOMM_ERR_NO_MEMORY,
					      "%s: no memory for the operation",
					      coll_name(call->coll)),
					 -1);
		op->comm = comm;
		comm->stats.memory_bytes += sizeof(*op);
	}
	count_under_way(comm, 1);
	op->call = *call;
	op->prep = NULL;
	op->queue = NULL;
	op->before = op->after = op->next = NULL;
	op->owner = NULL;
	op->started = op->done = op->ending = false;
	wait_moved(&op->watch);
	op->is_tagged = call->tag;
	op->unbound = false;
	if (call->own)
		status = number_own(op);
	else if (op->is_tagged)
		status = tagged_post(op);
	else if (any_source_holds(comm, call))
		status = any_source_post(op);
	else
		status = number(op);
	if (status != DICOMM_SUCCESS)
		goto release;
	if (trace_on)
		trace_queued(op);
	*out = op;
	return DICOMM_SUCCESS;

release:
	engine_release(op);
	/* If all ranks refuse the call alike, nothing has happened. If only
	 * this rank cannot go on, the others must not wait for it. */
	if (status != DICOMM_ERR_INVALID_ARGUMENT &&
	    status != DICOMM_ERR_INVALID_USAGE)
		return fault_own(comm, status, -1);
	return status;
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
		call_touches(&op->call, comm->rank, comm->ranks, b, &first,
			     &bytes);
		if (base && bytes)
			TRY(comm_mem_register(op->comm,
					      (const char *)base + first, bytes,
					      b == PLAN_RECV, &op->handles[b]));
	}
	return DICOMM_SUCCESS;
}

static void drop_buffers(struct operation *op)
{
	for (enum plan_buffer b = PLAN_SEND; b <= PLAN_RECV; b++) {
		if (op->handles[b].transports)
			comm_mem_deregister(op->comm, &op->handles[b]);
		if (op->runs[b].run)
			block_runs_deregister(op->comm, &op->runs[b]);
	}
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

	if (!coll_counts_in_pairs(op->call.coll) || !each)
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
			pair->peer->transport->release(pair->peer->tp, e->class,
						       message_done(channel));
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
	if (op->prep->expected_ns && !coll_rooted(op->call.coll))
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
	if (trace_on)
		trace_begun(op);
	op->started = true;
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
	/* Send pending credits: a rank that waits for them must not depend on
	 * this rank's next call. */
	channel_flush_all(op->comm, TELL_MS);
	drop_buffers(op);
	order_leave(op);
	op->done = true;
	if (op->call.status)
		*op->call.status = (dicomm_status_t){.source = op->call.root,
						     .count = op->call.count};
}

static enum schedule_result turn_tagged(struct operation *op, bool *progressed)
{
	enum schedule_result r = tagged_turn(op, progressed);

	if (r != SCHEDULE_DONE) {
		/* One of the driver's that look for the same is enough. */
		if (op->owner && !op->queue)
			order_join(op, tagged_looks(op));
		return r;
	}
	channel_flush_all(op->comm, TELL_MS);
	drop_buffers(op);
	order_leave(op);
	op->done = true;
	return r;
}

static enum schedule_result turn_own(struct operation *op, bool *progressed)
{
	struct own_call *own = op->call.own;
	dicomm_result_t status = own->turn(own, progressed);

	if (status == DICOMM_AGAIN)
		return SCHEDULE_AGAIN;
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, own->awaits(own));
	channel_flush_all(op->comm, TELL_MS);
	op->done = true;
	return SCHEDULE_DONE;
}

/* The operation may find its place among those of its peer. */
static enum schedule_result find_place(struct operation *op)
{
	dicomm_result_t status = any_source_look(op);

	if (status == DICOMM_SUCCESS)
		status = number(op);
	if (status == DICOMM_AGAIN)
		return SCHEDULE_AGAIN;
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, op->call.root);
	op->unbound = false;
	return SCHEDULE_DONE;
}

bool engine_is_parked(const struct operation *op)
{
	return op->before || (op->unbound && op->comm->unbound != op);
}

void engine_drop(struct operation *op)
{
	fault_stop_transports(op->comm);
	if (op->comm->device_ops)
		op->comm->device_ops->quiesce(op->comm);
	step_forget(op);
	drop_buffers(op);
	if (op->call.own)
		op->call.own->drop(op->call.own);
	else if (op->is_tagged)
		tagged_drop(op);
	else if (op->unbound)
		any_source_drop(op);
	order_leave(op);
	op->done = true;
}

enum schedule_result engine_turn(struct operation *op, bool *progressed)
{
	enum schedule_result r;
	dicomm_result_t status;

	if (op->call.own)
		return turn_own(op, progressed);
	if (op->is_tagged)
		return turn_tagged(op, progressed);
	if (op->unbound) {
		r = find_place(op);
		if (r != SCHEDULE_DONE)
			return r;
		*progressed = true;
	}
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
	if (op->prep->expected_ns && coll_rooted(op->call.coll) &&
	    !op->ended_ns)
		time_receives(op);
	if (r == SCHEDULE_DONE && op->comm->device_ops)
		r = op->comm->device_ops->end(op);
	if (r == SCHEDULE_DONE)
		end(op);
	return r;
}

/* Are all operations of one communicator? Then a wait for one is a wait for
 * all. */
static bool are_alone(struct operation *const *ops, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (ops[i]->comm != ops[0]->comm)
			return false;
	return true;
}

void engine_leave(struct dicomm_comm *comm)
{
	prepare_trim(comm);
	comm_leave_one(comm);
}

static void finish(struct operation **at)
{
	struct operation *op = *at;
	struct dicomm_comm *comm = op->comm;

	*at = NULL;
	engine_release(op);
	engine_leave(comm);
}

/* The driver may have operations of these communicators. */
static void lend_all(struct operation *const *ops, size_t n)
{
	const struct dicomm_comm *last = NULL;

	for (size_t i = 0; i < n; i++) {
		if (!ops[i] || ops[i]->comm == last)
			continue;
		last = ops[i]->comm;
		if (share_is_wanted(last))
			share_lend(ops[i]->comm, 0);
	}
}

dicomm_result_t engine_run(struct operation **ops, size_t n)
{
	bool alone = are_alone(ops, n);
	struct waiter w = {0};
	dicomm_result_t first = DICOMM_SUCCESS;
	size_t left = n, low = 0;

	while (left) {
		bool moved = false, more;
		struct operation *waiting = NULL;

		for (size_t i = low; i < n; i++) {
			struct operation *op = ops[i];
			enum schedule_result r;

			if (!op) {
				if (i == low)
					low++;
				continue;
			}
			if (fault_is(op->comm)) {
				first = first ? first : fault_report(op->comm);
				engine_drop(op);
				finish(&ops[i]);
				moved = true;
				left--;
				continue;
			}
			if (op->before)
				continue;
			r = engine_turn(op, &moved);
			if (r == SCHEDULE_DONE) {
				finish(&ops[i]);
				left--;
				moved = true;
			} else if (!waiting) {
				waiting = op;
			}
		}
		if (moved || !waiting) {
			wait_moved(&w);
			if (left)
				lend_all(ops + low, n - low);
			continue;
		}
		for (size_t i = low; i < n && !alone; i++)
			if (ops[i] && ops[i]->comm != waiting->comm)
				comm_poll(ops[i]->comm);
		if (!alone)
			lend_all(ops + low, n - low);
		more = wait_for(&w, waiting, alone, true);
		for (size_t i = low; i < n && more; i++)
			if (ops[i] && ops[i] != waiting && !ops[i]->before)
				more = engine_watch(&w, ops[i]);
	}
	return first;
}

void engine_free_spare(struct dicomm_comm *comm)
{
	while (comm->spare) {
		struct operation *op = comm->spare;

		comm->spare = op->next;
		schedule_free(&op->schedule);
		free(op->flows);
		free(op);
	}
}

dicomm_result_t engine_call(struct dicomm_comm *comm, const struct call *call)
{
	struct operation *op;
	dicomm_result_t status;

	switch (comm_enter(comm)) {
	case COMM_BUSY:
		return DICOMM_AGAIN;
	case COMM_BROKEN:
		return fault_report(comm);
	case COMM_ENTERED:
		break;
	}
	comm->calls = 1;
	status = engine_prepare(comm, call, &op);
	if (status == DICOMM_SUCCESS)
		return engine_run(&op, 1);
	engine_leave(comm);
	return status;
}
