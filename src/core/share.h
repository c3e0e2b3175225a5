/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several threads that make calls on one communicator.
 *
 * While only its owner calls, the owner enters by a plain store. The first call
 * of another thread makes the communicator shared, for good: from then on,
 * threads enter by an atomic exchange. One thread at a time is inside, and runs
 * its blocking call. A call of another thread meanwhile is queued for the
 * driver (src/stream/driver.c), and so are all later calls until the queued
 * ones have ended. So at most two threads need the data path: the thread
 * inside, and the driver. The thread inside lends it whenever it has to wait,
 * and the driver takes it for one turn at a time. Then the thread inside gets
 * it back, for a turn of its own: a driver that looks again at once would leave
 * it no moment to take it.
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

/* Who has the data path. Recalled: the driver has it, and is to give it back to
 * the thread inside, not to take it again itself. */
enum comm_lent { COMM_KEPT, COMM_LENT, COMM_TAKEN, COMM_RECALLED };

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

/* For the thread inside. share_is_wanted() returns true if the driver needs the
 * data path. share_lend() lends it to the driver: for about `us` microseconds,
 * or if `us` is 0, until the driver has given it back once, for 20 microseconds
 * at most. */
static inline bool share_is_wanted(const struct dicomm_comm *comm)
{
	return atomic_load_explicit(&comm->queued, memory_order_relaxed);
}
void share_lend(struct dicomm_comm *comm, unsigned us);

/* For the driver, which takes one communicator at a time. share_take() never
 * waits. It returns false if a thread is inside and has not lent the data
 * path. */
bool share_take(struct dicomm_comm *comm);
void share_return(struct dicomm_comm *comm);

#endif
