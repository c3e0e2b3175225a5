/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults: how a communicator ends when something fails. Any thread may call
 * these functions unless they say otherwise. */
#ifndef DICOMM_CORE_FAULT_H
#define DICOMM_CORE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/core/comm.h"

/* Record a fault; the first cause wins. `culprit` is a rank or -1. With `tell`,
 * the other ranks hear of it over the control connections. Returns the status
 * that the communicator has now. */
dicomm_result_t fault_raise(struct dicomm_comm *comm, dicomm_result_t status,
			    int culprit, bool tell, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* Tell the others that this rank aborted. During init, the thread that runs it
 * does so, because the others may have met already. */
void fault_tell_abort(struct dicomm_comm *comm);
/* Mark it as aborted by this rank, in a signal handler that may have interrupted
 * anything: takes no lock and logs nothing. The first who reports the fault, or
 * fault_complete(), does the rest. */
void fault_mark_abort(struct dicomm_comm *comm);
void fault_complete(struct dicomm_comm *comm);
/* If comm breaks, the init of `forming` ends too. NULL: none any more. */
void fault_share(struct dicomm_comm *comm, struct dicomm_comm *forming);
/* The init of this rank failed for the reason that was just logged. Tells the
 * others, which may wait for it. */
dicomm_result_t fault_of_init(struct dicomm_comm *comm, dicomm_result_t status);
/* This rank noticed the failure that was just logged. If it concerns a peer
 * (-1: it is not known which), that peer may have died, and the news of its
 * death may still be under way. So this waits up to half a second for the news,
 * and then raises the fault that names the dead rank; else the failure itself.
 */
dicomm_result_t fault_own(struct dicomm_comm *comm, dicomm_result_t status,
			  int peer);
/* Stop the transports. Every failed call does so before it returns if other
 * ranks or adapters can reach its buffers. */
void fault_stop_transports(struct dicomm_comm *comm);
/* Return the status of a broken communicator and make its text the last error.
 */
dicomm_result_t fault_report(struct dicomm_comm *comm);
void fault_text(struct dicomm_comm *comm, char *text, size_t len);
/* Wait until no thread is in the data path. Bounded, because every thread in it
 * checks the fault. */
void fault_wait(struct dicomm_comm *comm);
/* Communicators of this process that have broken so far */
extern _Atomic unsigned fault_count;

#endif
