/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for another rank: how, how long, and what to report. */
#ifndef DICOMM_CORE_WAIT_H
#define DICOMM_CORE_WAIT_H

#include "src/core/comm.h"

/*
 * State of one wait without progress: spin, then yield, then sleep, and check
 * which rank is late. Every wait has its own.
 */
struct waiter {
	unsigned polls;
	uint64_t since_ns, checked_ns; /* 0: the clock was not read yet */
	/* how many times ASK_AFTER_NS to wait before the next query */
	unsigned asked;
	unsigned gone; /* how often gone_peer was found to be gone */
	int gone_peer;
	unsigned own; /* number of checks, if this rank waits for itself */
	bool warned;
	bool pending;        /* a death has been pending in this wait */
	uint64_t starved_ns; /* core_starved_ns() when that was found */
};

/* Polls before a waiting thread gives its core away. */
unsigned wait_spin(const struct dicomm_comm *comm);

/* wait_pause() waits a little, for a caller that has its own time limit.
 * wait_moved() is called after progress: the wait begins again. */
void wait_pause(struct dicomm_comm *comm, struct waiter *w);
static inline void wait_moved(struct waiter *w)
{
	*w = (struct waiter){0};
}

/* What a rank waits for. */
struct wait_for {
	struct dicomm_comm *comm;
	const struct call *call;
	uint64_t number;
	int peer; /* -1: no particular rank */
	bool sending;
	bool alone; /* no other work needs this thread */
	/* This thread makes the call itself, and may lend the data path
	 * meanwhile; see data_path.h. */
	bool lends;
};

/* To be called after each poll without progress. Polls the transports; every
 * now and then checks for faults, time-outs, and whether the ranks agree on the
 * call. Returns the fault, if there is one, including DICOMM_ERR_TIMEOUT. */
dicomm_result_t wait_more(struct waiter *w, const struct wait_for *f);
/* Returns true if it is time for the next check. The first call starts the
 * wait. */
bool wait_is_due(struct waiter *w);
/* Does that check, for another operation that has not made progress either. */
dicomm_result_t wait_look(struct waiter *w, const struct wait_for *f);

/* To be called when a message of another operation has arrived. Breaks the
 * communicator with an error that names both ranks and both calls. */
dicomm_result_t wait_mismatch(struct dicomm_comm *comm, const struct call *call,
			      uint64_t number, int peer);

#endif
