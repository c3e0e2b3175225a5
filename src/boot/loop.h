/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control thread: one per process, started at first use, parked in
 * epoll_wait while there is nothing to do, with all signals blocked. It serves
 * descriptors and coarse deadlines. One lock guards all that it touches; its
 * callbacks run with the lock held, and none of them blocks. The first of what
 * other threads say while they have it is kept until they leave it.
 *
 * A child of fork() has no control thread and must not hold the parent's
 * connections open, or nobody would see the parent die; so they are closed
 * there, and the child may start anew.
 */
#ifndef DICOMM_BOOT_LOOP_H
#define DICOMM_BOOT_LOOP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

/* A descriptor, or only a deadline (fd -1). Embedded in what it belongs to. */
struct loop_source {
	int fd;
	void (*ready)(struct loop_source *s, uint32_t events);
	void (*expired)(struct loop_source *s); /* its deadline has passed */
	/* Free what it is embedded in; the control thread is done with it. */
	void (*released)(struct loop_source *s);

	/* the loop's own */
	uint64_t deadline_ns; /* 0: none */
	bool watched, dead;
	struct loop_source *next, **link;
};

/* Something for the control thread to do soon; with the lock held, which the
 * function may release and take again. */
struct loop_call {
	void (*run)(struct loop_call *call);
	struct loop_call *next;
};

/* Start the thread unless it runs. Takes the lock itself. */
dicomm_result_t loop_start(void);
void loop_lock(void);
void loop_unlock(void);
/* Wait on a condition variable made by loop_cond_init(), with the lock held. */
void loop_cond_init(pthread_cond_t *cond);
void loop_cond_wait(pthread_cond_t *cond, uint64_t until_ns);
bool loop_is_current_thread(void);

/* All of the following with the lock held. */

/* Know of it, so that a fork can close it; not polled yet. */
void loop_add(struct loop_source *s);
dicomm_result_t loop_watch(struct loop_source *s, uint32_t events);
/* Precise to about 100 ms; 0 for none. */
void loop_deadline(struct loop_source *s, uint64_t at_ns);
/* Close the descriptor; no callback after this but released(). */
void loop_drop(struct loop_source *s);
void loop_post(struct loop_call *call);

#endif
