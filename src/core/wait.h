/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for another rank: how, how long, and what to say. */
#ifndef DICOMM_CORE_WAIT_H
#define DICOMM_CORE_WAIT_H

#include "src/core/comm.h"

/*
 * Waiting without progress: spin, then yield, then sleep; and look at who is
 * late. One for each thing that waits.
 */
struct waiter {
	unsigned polls;
	uint64_t since_ns, checked_ns; /* 0: not yet read */
	unsigned asked;                /* seconds after which to ask again */
	unsigned gone;                 /* times that the peer was seen gone */
	unsigned own; /* looks at a wait for this rank itself */
	bool warned;
};

/* The same where the caller has its own bound. */
void wait_pause(struct dicomm_comm *comm, struct waiter *w);
static inline void wait_moved(struct waiter *w)
{
	*w = (struct waiter){0};
}

/* What is waited for. */
struct wait_for {
	struct dicomm_comm *comm;
	const struct call *call;
	uint64_t number;
	int peer; /* -1: none in particular */
	bool sending;
	bool alone; /* nothing else may want this thread */
};

/* One more poll without progress: lets the wires progress, and now and then
 * looks at faults, at time-outs, and at whether the ranks agree. */
dicomm_result_t wait_more(struct waiter *w, const struct wait_for *f);
/* Is it time for the next such look? The first call begins the wait. */
bool wait_is_due(struct waiter *w);
/* That look, of something else that has not moved since then either. */
dicomm_result_t wait_look(struct waiter *w, const struct wait_for *f);

/* A message of another operation came: break the communicator, naming both
 * ranks and both calls. */
dicomm_result_t wait_mismatch(struct dicomm_comm *comm, const struct call *call,
			      uint64_t number, int peer);

/* What control_query() asks for: a collective, or the other side's part of a
 * point-to-point pair; or whether it is done with a message from here, of
 * number * TP_CLASSES + class. */
enum { ASK_COLLECTIVE, ASK_SEND, ASK_RECV, ASK_RECEIVED };

#endif
