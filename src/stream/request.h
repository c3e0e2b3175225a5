/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: whether what was queued on a host stream has ended. Each has a word
 * of its own on which its waiter sleeps, so nobody else is woken.
 */
#ifndef DICOMM_STREAM_REQUEST_H
#define DICOMM_STREAM_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

struct dicomm_request {
	uint64_t magic;
	int generation; /* of the process that made it */
	/* Its users: its owner, the driver until it is done, the thread of its
	 * callback. 0: it is on the stack of its waiter. */
	_Atomic unsigned refs;
	_Atomic uint32_t state; /* enum request_state */
	dicomm_result_t status; /* valid once it is done, as is the text */
	char text[512];
	/* Guarded by the lock of callbacks.c */
	dicomm_request_fn_t call;
	void *ctx;
	bool called;
	struct dicomm_request
		*next; /* in the list of its batch, or of the callbacks */
};

enum request_state { REQUEST_PENDING, REQUEST_SLEEPING, REQUEST_DONE };

/* Initialize a request on the stack */
void request_init(struct dicomm_request *r);
/* Make a request with two users: its owner, and the driver. NULL: no memory */
struct dicomm_request *request_new(void);
/* Check that it is a request of this process that has not been freed. */
dicomm_result_t request_check(const struct dicomm_request *r,
			      const char *function);
static inline bool request_is_done(struct dicomm_request *r)
{
	return atomic_load_explicit(&r->state, memory_order_acquire) ==
	       REQUEST_DONE;
}
/* Sleep until it is done, or until end_ns of clock_ns() (0: no limit). May
 * return early. */
void request_sleep(struct dicomm_request *r, uint64_t end_ns);
/* The same in two steps, for the only waiter of a request. request_rouse(),
 * called after the first step, ends the second one. The first step returns
 * false if the request is done. */
bool request_lie_down(struct dicomm_request *r);
void request_doze(struct dicomm_request *r, uint64_t end_ns);
void request_rouse(struct dicomm_request *r);
/* Returns true if the request is on the stack of its waiter, which is then the
 * only one. */
static inline bool request_is_on_stack(struct dicomm_request *r)
{
	return !atomic_load_explicit(&r->refs, memory_order_relaxed);
}
/* Marks the request as done and wakes its waiters. Returns false if it is on
 * the stack of its waiter, and may be gone; true if the caller still has its
 * reference, and the request may have a callback. */
bool request_end(struct dicomm_request *r, dicomm_result_t status,
		 const char *text);
void request_put(struct dicomm_request *r);

/* callbacks.c: have a thread call `call` when the request is done, at once if
 * it is done already. Fails if no thread can be started, or if the request has
 * a callback. */
dicomm_result_t callbacks_set(struct dicomm_request *r,
			      dicomm_request_fn_t call, void *ctx);
/* Complete the request: wake its waiters, have its callback called, and release
 * the reference of the driver. A request on the stack may be gone when this
 * returns. */
void callbacks_complete(struct dicomm_request *r, dicomm_result_t status,
			const char *text);

#endif
