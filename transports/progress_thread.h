/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that polls the devices of ranks that are away from the library. So
 * what they have sent gets out, peers can read what they have offered, and
 * peers that close get their acknowledgement.
 *
 * While a rank polls its device itself, the thread only checks now and then
 * that it still does. If nobody polls, the thread polls until nothing moves,
 * then sleeps until something arrives.
 *
 * Whoever sleeps because this thread polls, sleeps on doorbell_own. It rings
 * when the thread has moved something, and when the rank polls again itself.
 *
 * Threads: any, but progress_thread_polled() is for the one that polls.
 */
#ifndef DICOMM_TRANSPORTS_PROGRESS_THREAD_H
#define DICOMM_TRANSPORTS_PROGRESS_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"
#include "src/base/doorbell.h"

/* A rank that has not polled for this long is away. */
#define PROGRESS_AWAY_MS 10
/* Polls of one device in a row, so that others get theirs */
#define PROGRESS_MAX 256

struct tp_device;

/* Part of a device */
struct progress_entry {
	/* Poll the device until nothing moves. Returns after how many
	 * milliseconds to do so again; -1: when `fd` is readable. It takes the
	 * lock of the device, or returns at once if another thread holds it. */
	int (*poll)(struct tp_device *dev);
	struct tp_device *dev;
	int fd;
	_Atomic bool aborted; /* do not sleep on `fd` any more */

	_Atomic uint32_t polls; /* by the thread that uses the device */
	uint32_t polls_seen;
	_Atomic bool covered; /* the thread polls; the rank has to wake it */
	_Atomic bool leaves;  /* the rank says that it polls no more for now */
	bool listed;
	struct progress_entry *next;
};

dicomm_result_t progress_thread_add(struct progress_entry *e);
/* Afterwards, the thread does not touch the device. Does nothing if the device
 * was not added. */
void progress_thread_remove(struct progress_entry *e);
/* The rank stops polling for now. Returns true if the thread polls instead;
 * otherwise it will soon. For the thread that polls. */
bool progress_thread_take_over(struct progress_entry *e);
/* The rank polls again: wakes the thread, and who sleeps while it polls. */
void progress_thread_step_back(void);

/* To be called by the rank at each poll */
static inline void progress_thread_polled(struct progress_entry *e)
{
	uint32_t n = atomic_load_explicit(&e->polls, memory_order_relaxed);

	atomic_store_explicit(&e->polls, n + 1, memory_order_relaxed);
	if (__builtin_expect(
		    atomic_load_explicit(&e->covered, memory_order_relaxed),
		    0) &&
	    atomic_exchange(&e->covered, false))
		progress_thread_step_back();
}

#endif
