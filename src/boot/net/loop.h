/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control thread. There is one per process. It starts at first use, with
 * all signals blocked, and sleeps in epoll_wait() while there is nothing to do.
 * It serves descriptors and coarse deadlines. One lock guards all its data.
 * Callbacks run with the lock held and never block. While another thread holds
 * the lock, its log lines are kept; they are written when it releases the lock.
 *
 * A child of fork() has no control thread. It closes the parent's connections:
 * while it held them open, nobody would notice the death of the parent. The
 * child may start a control thread of its own.
 */
#ifndef DICOMM_BOOT_LOOP_H
#define DICOMM_BOOT_LOOP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

/* A descriptor with a deadline, or only a deadline (fd is -1). It is embedded
 * in the struct of its owner. */
struct loop_source {
	int fd;
	void (*ready)(struct loop_source *s, uint32_t events);
	/* Called when its deadline has passed. */
	void (*expired)(struct loop_source *s);
	/* Called when the control thread no longer uses it; frees the owner. */
	void (*released)(struct loop_source *s);
	/* Sends what is queued; see loop_send_later(). Needed only for that. */
	void (*send)(struct loop_source *s);

	/* Private to the loop. */
	uint64_t deadline_ns; /* 0: no deadline */
	bool watched, dead;
	struct loop_source *next, **link;
	struct loop_source *next_sender, **sender_link; /* NULL: not one */
};

/* A function that the control thread is to call soon. It runs with the lock
 * held, and may release the lock and take it again. */
struct loop_call {
	void (*run)(struct loop_call *call);
	struct loop_call *next;
};

/* Starts the thread unless it runs already. Takes the lock itself. */
dicomm_result_t loop_start(void);
bool loop_is_running(void);
void loop_lock(void);
void loop_unlock(void);
/* A condition variable for the lock. Callers of loop_cond_wait() and of
 * loop_cond_broadcast() hold the lock. Threads are woken when the caller
 * releases it: before that, they would sleep again until it does. Nobody uses
 * it any more when it is destroyed. */
struct loop_cond {
	pthread_cond_t cond;
	struct loop_cond *next;
	bool is_due;
};
void loop_cond_init(struct loop_cond *c);
void loop_cond_destroy(struct loop_cond *c);
void loop_cond_wait(struct loop_cond *c, uint64_t until_ns);
void loop_cond_broadcast(struct loop_cond *c);
bool loop_is_current_thread(void);

/* Callers of the following functions hold the lock. */

/* Registers a source, so that a child of fork() can close it. The source is not
 * polled yet. */
void loop_add(struct loop_source *s);
dicomm_result_t loop_watch(struct loop_source *s, uint32_t events);
/* Sets a deadline, which is exact to about 100 ms. 0: no deadline. */
void loop_deadline(struct loop_source *s, uint64_t at_ns);
/* Closes the descriptor. From then on, released() is the only callback. */
void loop_drop(struct loop_source *s);
/* Calls send() once, when this thread is about to release the lock: what is
 * queued meanwhile leaves at once, without a turn of the control thread. */
void loop_send_later(struct loop_source *s);
void loop_post(struct loop_call *call);

#endif
