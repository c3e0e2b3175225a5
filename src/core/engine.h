/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs operations: plans over transports. Nobody else moves data.
 *
 * Collectives of a communicator run one after the other in call order; sends
 * to one peer, and receives from one peer, likewise. All of these queues
 * progress together.
 */
#ifndef DICOMM_CORE_ENGINE_H
#define DICOMM_CORE_ENGINE_H

#include "src/core/executable.h"

struct operation {
	struct dicomm_comm *comm;
	struct call call;
	struct executable *exe;
	struct schedule schedule;
	uint64_t number;    /* in its class (and pair) */
	uint32_t signature; /* of this very operation */
	bool started, done;
	bool buffered; /* never offer references to its buffers */
	/* Neighbours in its queue: runs when there is none before. */
	struct operation *before, *after;
	uint8_t *bounce; /* for references that cannot be mapped */
	struct operation *next;
};

/* One blocking call, nothing else in flight on the communicator. */
dicomm_result_t engine_call(struct dicomm_comm *comm, const struct call *call);

/* The same of a call that executable_quick() found. False: the long way must
 * run it; nothing has happened. */
bool engine_quick(struct dicomm_comm *comm, const struct executable *exe,
		  const void *send, void *recv, dicomm_result_t *status);

/* Make an operation of a call and put it into its queue: from then on it must
 * be run. The call's counts must stay until then. */
dicomm_result_t engine_prepare(struct dicomm_comm *comm,
			       const struct call *call, struct operation **out);
/* One turn of one operation. AGAIN when there is more to do. A failure breaks
 * the communicator. */
enum schedule_result engine_turn(struct operation *op, bool *progressed);
/* Give up an operation of a broken communicator. */
void engine_drop(struct operation *op);
/* Run all to the end (or the end of their communicators). */
dicomm_result_t engine_run(struct operation **ops, size_t n);
/* Back to the communicator's spare list. */
void engine_release(struct operation *op);
void engine_free_spare(struct dicomm_comm *comm);

/*
 * Waiting without progress: spin, then yield, then sleep; and look at who is
 * late. One for each thing that waits.
 */
struct waiter {
	unsigned polls;
	uint64_t since_ns, checked_ns; /* 0: not yet read */
	unsigned asked;                /* seconds after which to ask again */
	unsigned gone;                 /* times that the peer was seen gone */
	bool warned;
};

/* One more poll without progress; checks faults, time-outs and unlike calls
 * of op (may be NULL) now and then. */
dicomm_result_t engine_wait(struct waiter *w, struct operation *op);
/* The same where the caller has its own bound. */
void engine_pause(struct dicomm_comm *comm, struct waiter *w);
static inline void engine_moved(struct waiter *w)
{
	*w = (struct waiter){0};
}

#endif
