/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control thread. There is one per process, started at first use, with all
 * signals blocked; it sleeps in epoll_wait while there is nothing to do. It
 * serves descriptors and coarse deadlines. One lock guards all its data. Its
 * callbacks run with the lock held and never block. Another thread's log lines
 * are kept while it holds the lock and are written when it releases it.
 *
 * A child of fork() has no control thread. It closes the parent's connections,
 * because while it held them open nobody would see the parent die. The child
 * may start a control thread of its own.
 */
#ifndef DICOMM_BOOT_LOOP_H
#define DICOMM_BOOT_LOOP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

/* A descriptor, or only a deadline (fd -1). Embedded in its owner's struct. */
struct loop_source {
	int fd;
	void (*ready)(struct loop_source *s, uint32_t events);
	void (*expired)(struct loop_source *s); /* its deadline has passed */
	/* The control thread is done with it: free the owner. */
	void (*released)(struct loop_source *s);

	/* the loop's own */
	uint64_t deadline_ns; /* 0: none */
	bool watched, dead;
	struct loop_source *next, **link;
};

/* A function that the control thread shall call soon. It runs with the lock
 * held, and may release and take it again. */
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

/* Register it, so that a fork can close it. It is not polled yet. */
void loop_add(struct loop_source *s);
dicomm_result_t loop_watch(struct loop_source *s, uint32_t events);
/* Precise to about 100 ms. 0: no deadline. */
void loop_deadline(struct loop_source *s, uint64_t at_ns);
/* Close the descriptor. After this the only callback is released(). */
void loop_drop(struct loop_source *s);
void loop_post(struct loop_call *call);

#endif
