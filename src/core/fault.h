/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults: how a communicator ends when something fails. Any thread may call
 * these functions, unless noted otherwise. */
#ifndef DICOMM_CORE_FAULT_H
#define DICOMM_CORE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/core/comm.h"

/* Records a fault; the first cause stays. `culprit` is a rank or -1. With
 * `tell`, the other ranks are told over the control plane. Returns the status
 * that the communicator has afterwards. */
dicomm_result_t fault_raise(struct dicomm_comm *comm, dicomm_result_t status,
			    int culprit, bool tell, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* Tells the other ranks that this rank aborted. During initialization, the
 * thread that runs it calls this, because the other ranks may be connected
 * already. */
void fault_tell_abort(struct dicomm_comm *comm);
/* Registers a communicator whose initialization must end if `comm` breaks.
 * NULL: none any more. */
void fault_share(struct dicomm_comm *comm, struct dicomm_comm *forming);
/* Raises the fault that this rank's initialization failed with `status`, for
 * the reason that was logged last. Tells the other ranks, which may be waiting
 * for this one. */
dicomm_result_t fault_of_init(struct dicomm_comm *comm, dicomm_result_t status);
/* Raises the fault that this rank cannot go on, for the reason that was logged
 * last. If the reason concerns a peer (-1: unknown which one), that peer may
 * have died. So this waits a moment for the control plane to say so, and then
 * names the dead rank. */
dicomm_result_t fault_own(struct dicomm_comm *comm, dicomm_result_t status,
			  int peer);
/* Stops the transports. Every failed call does so before it returns if other
 * ranks or adapters can reach its buffers. */
void fault_stop_transports(struct dicomm_comm *comm);
/* Returns the status of a broken communicator, and makes the text of its fault
 * the last error. */
dicomm_result_t fault_report(struct dicomm_comm *comm);
void fault_text(struct dicomm_comm *comm, char *text, size_t len);
/* Waits until no thread is in the data path. This does not take long, because
 * every thread there checks for faults. */
void fault_wait(struct dicomm_comm *comm);
/* The number of communicators of this process that have broken so far. */
extern _Atomic unsigned fault_count;

#endif
