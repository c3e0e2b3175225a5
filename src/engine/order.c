/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues of operations, and the list of those that can go on: from any thread
 * to the driver. */
#include "src/engine/order.h"

static _Atomic(struct operation *) newest;

void order_wake(struct operation *op)
{
	struct operation *next;

	if (!op->owner || atomic_exchange(&op->woken, true))
		return;
	next = atomic_load_explicit(&newest, memory_order_relaxed);
	do {
		op->woken_next = next;
	} while (!atomic_compare_exchange_weak_explicit(&newest, &next, op,
							memory_order_release,
							memory_order_relaxed));
}

struct operation *order_take_woken(void)
{
	struct operation *op, *next, *oldest = NULL;

	if (!atomic_load_explicit(&newest, memory_order_relaxed))
		return NULL;
	op = atomic_exchange_explicit(&newest, NULL, memory_order_acquire);
	for (; op; op = next) {
		next = op->woken_next;
		op->woken_next = oldest;
		oldest = op;
	}
	return oldest;
}

void order_woken_taken(struct operation *op)
{
	atomic_store(&op->woken, false);
}

void order_forget_woken(void)
{
	atomic_store(&newest, NULL);
}

struct operation **order_queue(struct dicomm_comm *comm,
			       const struct call *call)
{
	switch (call->function) {
	case CALL_SEND:
		return &comm->peers[call->root].last_send;
	case CALL_RECV:
		return &comm->peers[call->root].last_recv;
	default:
		return &comm->last_collective;
	}
}

void order_join(struct operation *op, struct operation **queue)
{
	op->queue = queue;
	op->before = *queue;
	if (*queue)
		(*queue)->after = op;
	*queue = op;
}

void order_leave(struct operation *op)
{
	if (!op->queue)
		return;
	if (op->before)
		op->before->after = op->after;
	if (op->after) {
		op->after->before = op->before;
		if (!op->before)
			order_wake(op->after);
	}
	if (*op->queue == op)
		*op->queue = op->before;
	op->queue = NULL;
	op->before = op->after = NULL;
}
