/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for another rank: how, how long, and what to report. */
#ifndef DICOMM_CORE_WAIT_H
#define DICOMM_CORE_WAIT_H

#include "src/core/comm.h"

/*
 * State of one wait without progress: spin, then yield, then sleep, and check
 * which rank is late. Each thing that waits has one.
 */
struct waiter {
	unsigned polls;
	uint64_t since_ns, checked_ns; /* 0: not yet read */
	unsigned asked; /* seconds after which to ask the peer again */
	unsigned gone;  /* how often the peer was found gone */
	unsigned own;   /* looks, if this rank waits for itself */
	bool warned;
};

/* The same for a caller with a time limit of its own */
void wait_pause(struct dicomm_comm *comm, struct waiter *w);
static inline void wait_moved(struct waiter *w)
{
	*w = (struct waiter){0};
}

/* What is waited for */
struct wait_for {
	struct dicomm_comm *comm;
	const struct call *call;
	uint64_t number;
	int peer; /* -1: no rank in particular */
	bool sending;
	bool alone; /* no other work may need this thread */
};

/* Call after each poll without progress. Polls the transports; now and then
 * checks faults, time-outs, and whether the ranks agree. Errors: the fault,
 * TIMEOUT. */
dicomm_result_t wait_more(struct waiter *w, const struct wait_for *f);
/* Is it time for the next check? The first call begins the wait. */
bool wait_is_due(struct waiter *w);
/* That check, for another operation that has not moved since then either */
dicomm_result_t wait_look(struct waiter *w, const struct wait_for *f);

/* A message of another operation arrived. Break the communicator with an error
 * that names both ranks and both calls. */
dicomm_result_t wait_mismatch(struct dicomm_comm *comm, const struct call *call,
			      uint64_t number, int peer);

/* What control_query() asks a peer: its collective number n, its side of a
 * point-to-point pair, or whether it has received message number * TP_CLASSES +
 * class from this rank. */
enum { ASK_COLLECTIVE, ASK_SEND, ASK_RECV, ASK_RECEIVED };

#endif
