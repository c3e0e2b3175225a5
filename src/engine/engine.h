/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs operations: plans over transports. Nothing else moves data.
 *
 * The collectives of a communicator run one after the other in call order. So
 * do its sends to one peer, and its receives from one peer. All these queues
 * make progress together.
 */
#ifndef DICOMM_ENGINE_ENGINE_H
#define DICOMM_ENGINE_ENGINE_H

#include "src/core/operation.h"
#include "src/engine/prepared.h"

/* Run one blocking call. No other operation of the communicator is in flight.
 */
dicomm_result_t engine_call(struct dicomm_comm *comm, const struct call *call);

/* Make an operation of a call and append it to its queue. It must be run then.
 * The call's arrays of counts must stay until the operation ends. */
dicomm_result_t engine_prepare(struct dicomm_comm *comm,
			       const struct call *call, struct operation **out);
/* Give one operation a turn. AGAIN: there is more to do. A failure breaks the
 * communicator. */
enum schedule_result engine_turn(struct operation *op, bool *progressed);
/* Give up an operation of a broken communicator. */
void engine_drop(struct operation *op);
/* Run operations until all have ended or their communicators have broken, and
 * release them. Each has entered its communicator, and leaves it when it ends;
 * then another thread may free that communicator. */
dicomm_result_t engine_run(struct operation **ops, size_t n);
/* The call leaves its communicator: it has ended, or will not be run. */
void engine_leave(struct dicomm_comm *comm);
/* Put the operation on the communicator's list of spare ones. */
void engine_release(struct operation *op);
void engine_free_spare(struct dicomm_comm *comm);

/* Call after a poll without progress. Now and then it checks faults, time-outs
 * and mismatched calls of op. `alone`: no other work may need this thread.
 * True: it checked; then call engine_watch() for the other operations that have
 * waited as long, until it returns false because it has used up its time. A
 * failure shows in the fault of the communicator. */
bool engine_wait(struct waiter *w, struct operation *op, bool alone);
bool engine_watch(const struct waiter *w, struct operation *op);
/* The same checks for an operation that waits while this thread checks another
 * one. True: it was time. */
bool engine_look(struct waiter *w, struct operation *op);

/* Give the call its number, and log it for peers that ask. */
static inline uint64_t engine_number(struct dicomm_comm *comm,
				     const struct prepared *prep)
{
	int other = prep->key.root;
	uint64_t n;

	comm->stats.operations++;
	switch (prep->key.coll) {
	case COLL_SEND:
		n = ++comm->peers[other].sends;
		call_log_add(comm->logs.send, call_pair_number(other, n),
			     prep->log_what, prep->key.count);
		return n;
	case COLL_RECV:
		n = ++comm->peers[other].recvs;
		call_log_add(comm->logs.recv, call_pair_number(other, n),
			     prep->log_what, prep->key.count);
		return n;
	case COLL_REDUCE_LOCAL:
		return 0; /* no other rank asks about it */
	default:
		n = ++comm->collectives;
		call_log_add(&comm->logs.collective, n, prep->log_what,
			     prep->key.count);
		return n;
	}
}

#endif
