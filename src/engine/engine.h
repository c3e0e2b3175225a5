/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs operations: plans over transports. Nobody else moves data.
 *
 * Collectives of a communicator run one after the other in call order; sends
 * to one peer, and receives from one peer, likewise. All of these queues
 * progress together.
 */
#ifndef DICOMM_ENGINE_ENGINE_H
#define DICOMM_ENGINE_ENGINE_H

#include "src/core/operation.h"
#include "src/engine/prepared.h"

/* One blocking call, nothing else in flight on the communicator. */
dicomm_result_t engine_call(struct dicomm_comm *comm, const struct call *call);

/* Make an operation of a call and put it into its queue: from then on it must
 * be run. The call's counts must stay until then. */
dicomm_result_t engine_prepare(struct dicomm_comm *comm,
			       const struct call *call, struct operation **out);
/* One turn of one operation. AGAIN when there is more to do. A failure breaks
 * the communicator. */
enum schedule_result engine_turn(struct operation *op, bool *progressed);
/* Give up an operation of a broken communicator. */
void engine_drop(struct operation *op);
/* Run all to the end (or the end of their communicators), and release them. A
 * call has entered its communicator for each, and leaves it when that one ends:
 * then others may free it. */
dicomm_result_t engine_run(struct operation **ops, size_t n);
/* A call that is not run after all, or has been, leaves its communicator. */
void engine_leave(struct dicomm_comm *comm);
/* Back to the communicator's spare list. */
void engine_release(struct operation *op);
void engine_free_spare(struct dicomm_comm *comm);

/* One more poll without progress; checks faults, time-outs and unlike calls
 * of op now and then. Alone: nothing else may want this thread meanwhile. True:
 * it did, and others that wait as long are to be looked at by engine_watch(),
 * until that is false: it has taken its time. A failure shows in the fault of
 * the communicator. */
bool engine_wait(struct waiter *w, struct operation *op, bool alone);
bool engine_watch(const struct waiter *w, struct operation *op);
/* The same checks for an operation that waits while this thread does so for
 * another one. True: it was time. */
bool engine_look(struct waiter *w, struct operation *op);

/* Number the call and note it for those who ask. */
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
		return 0; /* no other rank asks for it */
	default:
		n = ++comm->collectives;
		call_log_add(&comm->logs.collective, n, prep->log_what,
			     prep->key.count);
		return n;
	}
}

#endif
