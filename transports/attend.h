/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that makes progress on devices whose ranks are away from the
 * library. While a rank polls its device itself, the thread only looks at that,
 * now and then; while nobody does, it sleeps until something comes.
 *
 * Threads: any, but for attend_visit(), which is for the one that polls.
 */
#ifndef DICOMM_TRANSPORTS_ATTEND_H
#define DICOMM_TRANSPORTS_ATTEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

/* A rank that has not polled for so long is away. */
#define ATTEND_AWAY_MS 10

struct attended {
	/* Make progress on what this is part of: milliseconds after which to
	 * look again; -1: when `fd` is readable. Takes a lock of its own, or
	 * gives up if somebody has that. */
	int (*settle)(struct attended *a);
	int fd;
	_Atomic bool ended; /* `fd` is not slept on any more */

	_Atomic uint32_t visits; /* by the thread that polls */
	uint32_t seen;
	_Atomic bool away; /* its rank has to wake the thread */
	bool listed;
	struct attended *next;
};

dicomm_result_t attend_add(struct attended *a);
/* After it, that thread does not touch it. Not added: nothing. */
void attend_remove(struct attended *a);
void attend_wake(void);

/* At each poll. */
static inline void attend_visit(struct attended *a)
{
	uint32_t n = atomic_load_explicit(&a->visits, memory_order_relaxed);

	atomic_store_explicit(&a->visits, n + 1, memory_order_relaxed);
	if (__builtin_expect(
		    atomic_load_explicit(&a->away, memory_order_relaxed), 0) &&
	    atomic_exchange(&a->away, false))
		attend_wake();
}

#endif
