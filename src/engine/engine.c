/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes operations from calls, queues them, and runs them to their end. */
#include "src/engine/engine.h"

#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/message/channel.h"
#include "src/core/wait.h"
#include "src/engine/order.h"
#include "src/engine/step.h"
#include "src/engine/prepare.h"
#include "src/engine/trace.h"
#include "src/core/fault.h"
#include "src/core/memory.h"
#include "src/core/paths.h"
#include "src/core/data_path.h"

/* Time for checks of waiting operations in one turn */
#define WATCH_NS UINT64_C(50000000)
#define TELL_MS \
	100 /* how long a finished rank polls to send its pending credits */

/* The rank that an operation waits for */
static void blocked_on(const struct operation *op, struct wait_for *f)
{
	f->call = &op->call;
	f->number = op->number;
	f->peer = -1;
	if (op->kind->awaits)
		op->kind->awaits(op, f);
}

bool engine_wait(struct waiter *w, struct operation *op, bool alone, bool lends)
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

/* Does the checks of engine_wait(), after it has done them, for another
 * operation that waits. Returns false when the time for checks is used up: to
 * ask a peer that does not answer takes time. The next look skips it and asks
 * the one after it. One warning serves for all. */
static bool watch(const struct waiter *w, struct operation *op)
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
			return fault_own(
				comm,
				FAIL(DICOMM_ERR_NO_MEMORY,
				     "%s: no memory for a %s operation",
				     call_name(call->function),
				     call->kind->name),
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
	op->kind = call->kind;
	status = op->kind->post(op);
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

/* It has ended. */
static void leave(struct operation *op)
{
	for (enum plan_buffer b = PLAN_SEND; b <= PLAN_RECV; b++) {
		if (op->handles[b].transports)
			comm_mem_deregister(op->comm, &op->handles[b]);
		if (op->runs[b].run)
			block_runs_deregister(op->comm, &op->runs[b]);
	}
	order_leave(op);
	op->done = true;
}

void engine_drop(struct operation *op)
{
	fault_stop_transports(op->comm);
	if (op->comm->device_ops)
		op->comm->device_ops->quiesce(op->comm);
	if (op->kind->drop)
		op->kind->drop(op);
	leave(op);
}

enum schedule_result engine_turn(struct operation *op, bool *progressed)
{
	enum schedule_result r = op->kind->turn(op, progressed);

	if (r != SCHEDULE_DONE)
		return r;
	/* Send pending credits: a rank that waits for them must not depend on
	 * this rank's next call. */
	channel_flush_all(op->comm, TELL_MS);
	leave(op);
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
	data_path_leave_one(&comm->path);
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
		if (data_path_queued(&last->path))
			data_path_lend(&ops[i]->comm->path, 0);
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
		more = engine_wait(&w, waiting, alone, true);
		for (size_t i = low; i < n && more; i++)
			if (ops[i] && ops[i] != waiting && !ops[i]->before)
				more = watch(&w, ops[i]);
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

	switch (data_path_enter_one(&comm->path)) {
	case DATA_PATH_BUSY:
		return DICOMM_AGAIN;
	case DATA_PATH_BROKEN:
		return fault_report(comm);
	case DATA_PATH_ENTERED:
		break;
	}
	status = engine_prepare(comm, call, &op);
	if (status == DICOMM_SUCCESS)
		return engine_run(&op, 1);
	engine_leave(comm);
	return status;
}
