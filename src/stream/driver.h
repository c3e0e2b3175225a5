/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver: the thread that runs what is queued on streams. */
#ifndef DICOMM_STREAM_DRIVER_H
#define DICOMM_STREAM_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

struct batch;
struct dicomm_comm;
struct dicomm_request;

/* With stream_lock held. Start the progress thread, if there is none. */
dicomm_result_t driver_start(void);
/* Queue the batch, and make sure that a thread runs it. If `waits`, the caller
 * will wait for it. Called with stream_lock held, which is released
 * meanwhile. */
void driver_add(struct batch *w, bool waits);

/* Wait until the request is done, or until end_ns of clock_ns() (0: no limit).
 * Runs what is queued meanwhile, unless another thread does. Called with
 * stream_lock held, which is released meanwhile. */
void driver_await(struct dicomm_request *r, uint64_t end_ns);
/* Give queued operations one turn, unless another thread is the driver. Does
 * not wait. */
void driver_poll(void);
/* Wake the progress thread, unless another thread is the driver: there may be
 * no thread that waits for what is queued. */
void driver_wake(void);
/* Returns true if this thread is the driver and operations of this communicator
 * are queued: the caller is then a signal handler, or a function of the user
 * that the library has called. */
bool driver_has(const struct dicomm_comm *comm);
/* Forget everything that is queued, in the child of a fork. */
void driver_forget(void);

#endif
