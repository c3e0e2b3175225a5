/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults: how a communicator ends when something fails. Any thread may call
 * these functions, unless noted otherwise. */
#ifndef DICOMM_CORE_FAULT_H
#define DICOMM_CORE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/core/comm.h"

/* Most milliseconds between the death of a process and the news of it at other
 * ranks: the kernel first releases the memory of the process, then closes its
 * connections. */
#define FAULT_NEWS_MS 500

/* Records a fault; the first cause stays. `culprit` is a rank or -1. With
 * `tell`, the control plane sends it to the other ranks. Returns the status
 * that the communicator has afterwards. */
dicomm_result_t fault_raise(struct dicomm_comm *comm, dicomm_result_t status,
			    int culprit, bool tell, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* Of a rank that waits to receive from any. Without `is_error`, the log calls
 * it none. */
dicomm_result_t fault_all_left(struct dicomm_comm *comm, bool is_error);
/* Records the death of a rank, which the control plane has reported. The rank
 * may have done its part of the call before, because a process that has its
 * result may end. So this breaks the communicator at once only if another one
 * is being split off it, or if this rank computes on a device or is in an
 * island. Otherwise the death is pending. The call that runs now goes on, or
 * else the next one, and those that begin within PENDING_NS. They fail if they
 * need more of the dead rank than has arrived, or if they make no progress
 * (wait.c). Later calls fail. */
void fault_died(struct dicomm_comm *comm, int rank, const char *text);
/* Returns false if the communicator is broken. If a death is pending, lets the
 * first call begin, and others for PENDING_NS; a later one breaks the
 * communicator. */
bool fault_lets_begin(struct dicomm_comm *comm);
/* The same, for data_path_lets_begin. */
bool fault_lets_enter(struct data_path *p);
/* Breaks the communicator if a death is pending. Returns its fault, or
 * DICOMM_SUCCESS if it has none. */
dicomm_result_t fault_settle(struct dicomm_comm *comm);
/* Returns true if a death is pending and no call is running. */
bool fault_pends_idle(const struct dicomm_comm *comm);
/* Reports to the other ranks that this rank aborted. During initialization, the
 * thread that runs it calls this, because the other ranks may be connected
 * already. */
void fault_tell_abort(struct dicomm_comm *comm);
/* Marks the communicator as aborted by this rank, in a signal handler that may
 * have interrupted anything: takes no lock and logs nothing. The thread that
 * reports the fault first, or fault_complete(), does the rest. */
void fault_mark_abort(struct dicomm_comm *comm);
void fault_complete(struct dicomm_comm *comm);
/* Registers a communicator whose initialization must end if `comm` breaks.
 * NULL: none any more. */
void fault_share(struct dicomm_comm *comm, struct dicomm_comm *forming);
/* Raises the fault that this rank's initialization failed with `status`, for
 * the reason that was logged last. Reports it to the other ranks, which may be
 * waiting for this one. Returns the status to end with: another fault's, if
 * that is what aborted the initialization, or may be why it failed; this waits
 * up to half a second for the news of a death. */
dicomm_result_t fault_of_init(struct dicomm_comm *comm, dicomm_result_t status);
/* This rank noticed the failure that was just logged. If it concerns a peer
 * (-1: it is not known which), that peer may have died, and the news of its
 * death may still be under way. So this waits up to half a second for the news,
 * and then raises the fault that names the dead rank; else the failure itself.
 */
dicomm_result_t fault_own(struct dicomm_comm *comm, dicomm_result_t status,
			  int peer);
/* The same after the caller has waited for the news. */
dicomm_result_t fault_own_late(struct dicomm_comm *comm,
			       dicomm_result_t status);
/* Stops the transports. Every failed call does so before it returns if other
 * ranks or adapters can reach its buffers. */
void fault_stop_transports(struct dicomm_comm *comm);
/* Returns the status of a broken communicator, and makes the text of its fault
 * the last error. */
dicomm_result_t fault_report(struct dicomm_comm *comm);
/* Returns the status of making a communicator from `comm` (may be NULL). If
 * that failed and `comm` is broken, it is the fault of `comm`, whose text is
 * more specific. Waits up to half a second for the news of a death. */
dicomm_result_t fault_of_parent(struct dicomm_comm *comm,
				dicomm_result_t status);
void fault_text(struct dicomm_comm *comm, char *text, size_t len);
/* Waits until no thread is in the data path. This does not take long, because
 * every thread there checks for faults. */
void fault_wait(struct dicomm_comm *comm);
/* The number of communicators of this process that have broken so far. */
extern _Atomic unsigned fault_count;

#endif
