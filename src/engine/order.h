/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The place of an operation among others: its number, and its queue.
 *
 * Queues are those of the collectives and of local work, of the sends to a
 * peer, of the receives from a peer, of those that wait for their source, and
 * of operations with a tag that look for the same messages. Only the first of a
 * queue moves.
 */
#ifndef DICOMM_ENGINE_ORDER_H
#define DICOMM_ENGINE_ORDER_H

#include "src/core/operation.h"
#include "src/engine/prepared.h"

/* Gives the call its number, and logs it for queries of peers. */
static inline uint64_t order_number(struct dicomm_comm *comm,
				    const struct prepared *prep)
{
	int other = prep->key.root;
	uint64_t n;

	comm->stats.operations++;
	switch (prep->key.function) {
	case CALL_SEND:
		n = ++comm->peers[other].sends;
		call_log_add(comm->logs.send, call_pair_number(other, n),
			     prep->log_what, prep->key.count);
		return n;
	case CALL_RECV:
		n = ++comm->peers[other].recvs;
		call_log_add(comm->logs.recv, call_pair_number(other, n),
			     prep->log_what, prep->key.count);
		return n;
	case CALL_REDUCE_LOCAL:
		return 0; /* no other rank queries it */
	default:
		n = ++comm->collectives;
		call_log_add(&comm->logs.collective, n, prep->log_what,
			     prep->log_count);
		return n;
	}
}

/* Returns the tail of the queue of a call that has a plan. */
struct operation **order_queue(struct dicomm_comm *comm,
			       const struct call *call);
/* Appends the operation to the queue with that tail. */
void order_join(struct operation *op, struct operation **queue);
/* Does nothing if it is in no queue. The next one may move then. */
void order_leave(struct operation *op);

#endif
