/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators of this process that nobody is in: who waits in one of them
 * polls the wires of the others, for their peers may need that. */
#ifndef DICOMM_CORE_CROSS_PROGRESS_H
#define DICOMM_CORE_CROSS_PROGRESS_H

#include "src/core/comm.h"

/* It is ready: while nobody is in its data path, others may poll its wires. */
void cross_progress_add(struct dicomm_comm *comm);
/* From now on nobody does. It need not have been added. */
void cross_progress_remove(struct dicomm_comm *comm);
/* By a thread that has waited for long. Bounded; takes locks. */
void cross_progress_poll(void);
/* Until nobody does so at this moment. */
void cross_progress_wait(void);
/* In the child of a fork: they are its parent's. */
void cross_progress_forget(void);

#endif
