/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a communicator: the first cause, told to everybody. */
#ifndef DICOMM_CORE_FAULT_H
#define DICOMM_CORE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/core/comm.h"

/* The first cause wins. Tells the other ranks when `tell`. Any thread. */
dicomm_result_t fault_raise(struct dicomm_comm *comm, dicomm_result_t status,
			    int culprit, bool tell, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* An abort during init leaves it to the thread of that to tell the others, who
 * may have met already. Tells them again if they know. */
void fault_tell_abort(struct dicomm_comm *comm);
/* The init of `forming` is cut short if comm breaks. NULL: of none any more. */
void fault_share(struct dicomm_comm *comm, struct dicomm_comm *forming);
/* The init of this rank failed, for the reason that was just logged; the others
 * may wait for it. */
dicomm_result_t fault_of_init(struct dicomm_comm *comm, dicomm_result_t status);
/* This rank cannot go on, for the reason that was just logged. Where that
 * touched a peer (-1: not known which), the peer's end may be behind it: the
 * news of it, which names the rank, is waited for a moment. */
dicomm_result_t fault_own(struct dicomm_comm *comm, dicomm_result_t status,
			  int peer);
/* Stop the wires. Every failed call whose buffers others, or wires, may reach
 * does so before it returns. */
void fault_stop_transports(struct dicomm_comm *comm);
/* Status of a broken communicator; its text becomes the last error. */
dicomm_result_t fault_report(struct dicomm_comm *comm);
void fault_text(struct dicomm_comm *comm, char *text, size_t len);
/* Wait until no thread is in the data path. Bounded: everybody in it looks at
 * the fault. */
void fault_wait(struct dicomm_comm *comm);
/* Communicators of this process that have broken so far */
extern _Atomic unsigned fault_count;

#endif
