/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The place of an operation among others: its number, its queue, and who can go
 * on when it has ended.
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

/*
 * Operations of the driver that can make progress because of another operation:
 * one that was before them in their queue has ended, or one has found their
 * message.
 *
 * The thread that has the data path of an operation's communicator wakes it.
 * The driver takes all of them in each pass, so it need not search for them.
 */

/* Adds an operation, unless it is not the driver's or is in the list
 * already. */
void order_wake(struct operation *op);
/* Takes the whole list and returns its oldest operation; the others follow by
 * woken_next. The caller calls order_woken_taken() for each one after it has
 * read woken_next. */
struct operation *order_take_woken(void);
void order_woken_taken(struct operation *op);
/* Empties the list in the child of a fork. */
void order_forget_woken(void);

#endif
