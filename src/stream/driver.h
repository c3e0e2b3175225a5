/* SPDX-License-Identifier: BSD-3-Clause */
/* Who runs what is queued on streams. */
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
/* With stream_lock held, which is given up meanwhile: queue the batch, and see
 * that somebody runs it. If `waits`, the caller is about to wait for it. */
void driver_add(struct batch *w, bool waits);

/* With stream_lock held, which is given up meanwhile: wait until the request is
 * done, or that time of clock_ns(); 0: for ever. Runs what is queued meanwhile,
 * unless another thread does. */
void driver_await(struct dicomm_request *r, uint64_t end_ns);
/* Give what is queued a turn, unless another thread runs it. Does not wait. */
void driver_poll(void);
/* Wake the progress thread, unless another one runs what is queued: nobody may
 * wait for it. */
void driver_wake(void);
/* Returns true if this thread runs what is queued on this communicator. In that
 * case a signal handler asks, or a function of the user that the library has
 * called. */
bool driver_has(const struct dicomm_comm *comm);
/* Called in the child of a fork: nothing is queued. */
void driver_forget(void);

#endif
