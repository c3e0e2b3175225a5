/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress for communicators of this process in which no thread is active. A
 * thread that waits in one communicator polls the transports of the others,
 * because their peers may need that. Where windows are, a thread of the library
 * does so while no other one waits. */
#ifndef DICOMM_CORE_CROSS_PROGRESS_H
#define DICOMM_CORE_CROSS_PROGRESS_H

#include "src/core/comm.h"

/* Adds a communicator that is ready. Other threads may poll it while it is
 * idle. */
void cross_progress_add(struct dicomm_comm *comm);
/* Has a thread of the library poll a communicator while it is idle, from now
 * on, whatever its transports: peers need this rank at any time. Starts that
 * thread if there is none. */
dicomm_result_t cross_progress_serve(struct dicomm_comm *comm);
/* Removes a communicator, which need not have been added. Nobody polls it
 * afterwards. */
void cross_progress_remove(struct dicomm_comm *comm);
/* Polls all idle communicators, each a few times. Called by a thread that has
 * waited for long. It takes locks, but never waits for one. */
void cross_progress_poll(void);
/* Polls that one, if it is idle, whether it was added or not. */
void cross_progress_poll_one(struct dicomm_comm *comm);
/* Waits until no thread is polling. */
void cross_progress_wait(void);
/* Called in a child of fork(): forgets the communicators of the parent. */
void cross_progress_forget(void);

#endif
