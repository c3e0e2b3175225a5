/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DICOMM_TRACE: each process writes its operations into a file, as events of
 * Chrome's trace format, which Perfetto reads too: what was called, when it was
 * queued, began and ended, its algorithm, and with whom it exchanged how many
 * messages. dicomm-info --trace joins the files of a job. DICOMM_RANGES: a
 * profiler is told of the same operations.
 *
 * While it is on, no call takes the fast path, since that has no operation; so
 * calls on the fast path pay nothing while it is off.
 */
#ifndef DICOMM_ENGINE_TRACE_H
#define DICOMM_ENGINE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "dicomm.h"

struct dicomm_comm;
struct operation;

/* Operations go to a file or to a profiler. Changes from false to true while
 * the process makes its first communicator, and back if the file cannot be
 * written, and in the child of a fork. */
extern _Atomic bool trace_on;

/* Opens the file of DICOMM_TRACE, and what a profiler has, when the process
 * makes its first communicator, and prepares this one. Fails only for lack of
 * memory: a file that cannot be opened is warned of. */
dicomm_result_t trace_open(struct dicomm_comm *comm);
/* The communicator ends: what it did is in the file from now on. */
void trace_close(struct dicomm_comm *comm);

/* The thread in the data path says what happens to an operation. Its end is the
 * moment when it is released. */
void trace_queued(struct operation *op);
void trace_begun(struct operation *op);
void trace_ended(struct operation *op);

#endif
