/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a rank that devices of other ranks in its process read directly:
 * the buffers that its user sends, and its scratch.
 *
 * An operation that succeeds has waited until its messages are released. An
 * operation that is given up has not, and then its buffers belong to the user
 * again. So a rank that gives up closes its in_process object. From then on
 * nobody starts to read. For reads that are already queued, it waits for the
 * events behind them. It cannot wait for the threads that queued them, since it
 * may be one of them. Streams that read wait for nobody.
 *
 * Threads: any. in_process_begin() and in_process_end() are called by the
 * thread that drives the reading rank. Between the two, and where events are
 * queried, log messages are kept back: a log sink could close the object.
 */
#ifndef DICOMM_MEMORY_IN_PROCESS_H
#define DICOMM_MEMORY_IN_PROCESS_H

#include "src/accel/accel.h"

struct in_process;

/* A read of another rank's memory by this rank, under way until its stream
 * reaches the event. All zero: none. */
struct in_process_read {
	struct in_process *from;
	const struct accel_work *work;
	const struct accel_event *event;
	struct in_process_read *next;
};

dicomm_result_t in_process_create(struct in_process **out);
/* Returns the number by which other ranks find the object, unique among all
 * processes. */
uint64_t in_process_id(const struct in_process *l);
/* Returns NULL if no rank of this process has that number, or if it is
 * closed. */
struct in_process *in_process_find(uint64_t id);
/* Release an object from create or find. */
void in_process_put(struct in_process *l);

/* Call these before and after queuing a read. in_process_begin() returns false
 * if the object is closed; then do not read, and do not call in_process_end().
 * in_process_end() records the read with r->event, which is NULL if recording
 * the event failed. */
bool in_process_begin(struct in_process *l);
void in_process_end(struct in_process *l, struct in_process_read *r);
/* End the read: its event was reached, or never will be. */
void in_process_done(struct in_process_read *r);

/* Close it, and wait at most ns nanoseconds for reads under way. Returns false
 * if something still reads. */
bool in_process_close(struct in_process *l, uint64_t ns);

#endif
