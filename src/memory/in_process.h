/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a rank that devices of other ranks in its process read directly:
 * the buffers that its user sends, and its scratch.
 *
 * An operation that succeeds has waited until its messages are released. One
 * that is given up has not, and then its buffers belong to the user again. So a
 * rank that gives up closes its in_process object. From then on nobody starts
 * to read. Reads that are already queued are waited for by the events behind
 * them, because the thread that queued them may be the one that waits here.
 * Streams that read wait for nobody.
 *
 * Threads: any. in_process_begin() and in_process_end() are called by one
 * thread, which drives the rank that reads. Between the two, and where events
 * are queried, log messages are kept back: a log sink could close the object.
 */
#ifndef DICOMM_MEMORY_IN_PROCESS_H
#define DICOMM_MEMORY_IN_PROCESS_H

#include "src/accel/accel.h"

struct in_process;

/* A read by this rank of another rank's memory, until its stream reaches the
 * event. All zero: none. */
struct in_process_read {
	struct in_process *from;
	const struct accel_work *work;
	const struct accel_event *event;
	struct in_process_read *next;
};

dicomm_result_t in_process_create(struct in_process **out);
/* The number by which others find it, unique among all processes */
uint64_t in_process_id(const struct in_process *l);
/* NULL: no rank of this process has that number, or it is closed. */
struct in_process *in_process_find(uint64_t id);
/* Release an object from create or find. */
void in_process_put(struct in_process *l);

/* Call these around queuing a read. False: it is closed, do not read. The end
 * records the event; r->event is NULL if that failed. */
bool in_process_begin(struct in_process *l);
void in_process_end(struct in_process *l, struct in_process_read *r);
/* The event was reached, or never will be. */
void in_process_done(struct in_process_read *r);

/* Close it and wait at most ns for reads under way. False: something still
 * reads. */
bool in_process_close(struct in_process *l, uint64_t ns);

#endif
