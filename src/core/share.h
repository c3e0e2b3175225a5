/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several threads that make calls on one communicator.
 *
 * While only its owner calls, that enters by a plain store. The first call of
 * another thread makes the communicator shared, for good: from then on threads
 * take it by an atomic exchange. One thread at a time is inside, and runs its
 * blocking call. Whoever comes meanwhile queues its call for the driver
 * (src/stream/driver.c), and so does everybody after it until those calls have
 * ended. So there are at most two who need the data path: the thread inside,
 * and the driver. The thread inside lends it whenever it has to wait, and the
 * driver takes it for one turn at a time.
 *
 * The call of the thread inside may be one that the engine does not know (the
 * fast path). Before it lends, it puts an operation into the queue of that
 * call, so that later ones of that queue wait for it.
 */
#ifndef DICOMM_CORE_SHARE_H
#define DICOMM_CORE_SHARE_H

#include "src/core/comm.h"

/* The holder while cross_progress.c polls */
#define SHARE_POLLER ((void *)1)

enum comm_lent { COMM_KEPT, COMM_LENT, COMM_TAKEN };

static inline bool share_is(const struct dicomm_comm *comm)
{
	return atomic_load_explicit(&comm->fault.status,
				    memory_order_acquire) == COMM_SHARED;
}

/* To be called before this thread queues something: makes the communicator
 * shared unless this thread is its owner. */
void share_claim(struct dicomm_comm *comm);
/* Waits until this thread is inside, or returns false if the communicator is
 * broken. The calls of other threads end in bounded time. */
bool share_enter(struct dicomm_comm *comm);

/* For the thread inside. share_is_wanted(): the driver needs the data
 * path. share_lend(): lets it have it, until it has given it back once or for
 * about as long; 0: a short time. */
static inline bool share_is_wanted(const struct dicomm_comm *comm)
{
	return atomic_load_explicit(&comm->queued, memory_order_relaxed);
}
void share_lend(struct dicomm_comm *comm, unsigned us);

/* For the driver, which holds one at a time. share_take() never waits;
 * false: a thread is inside, and has not lent it. */
bool share_take(struct dicomm_comm *comm);
void share_return(struct dicomm_comm *comm);

#endif
