/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress for communicators of this process that no thread is in. A thread
 * that waits in one communicator polls the transports of the others, because
 * their peers may need that. */
#ifndef DICOMM_CORE_CROSS_PROGRESS_H
#define DICOMM_CORE_CROSS_PROGRESS_H

#include "src/core/comm.h"

/* Add a communicator that is ready. Others may poll it while it is idle. */
void cross_progress_add(struct dicomm_comm *comm);
/* Nobody polls it from now on. It need not have been added. */
void cross_progress_remove(struct dicomm_comm *comm);
/* Poll all others once. Called by a thread that has waited for long. Bounded;
 * takes locks. */
void cross_progress_poll(void);
/* Wait until no thread is polling. */
void cross_progress_wait(void);
/* In the child of a fork: forget the communicators of the parent. */
void cross_progress_forget(void);

#endif
