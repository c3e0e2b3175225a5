/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues of operations. */
#include "src/engine/order.h"

#include "src/engine/woken.h"

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
			woken_add(op->after);
	}
	if (*op->queue == op)
		*op->queue = op->before;
	op->queue = NULL;
	op->before = op->after = NULL;
}
