/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a rank that devices of other ranks in its process read where it is:
 * what its user sends, and its scratch.
 *
 * An operation that ends well has waited for its messages to be released. One
 * that is given up has not, and then its buffers are the user's again. So a
 * rank that gives up closes what it lends: nobody begins to read any more, and
 * what is queued already is waited for by the events behind it, for who queued
 * it may be driven by this very thread. Streams that read wait for nobody.
 *
 * Threads: any; begin and end by one and the same, and what is read, by that
 * which drives who reads it. In between, and where events are looked at, what
 * is logged is held back: who hears it could close what is lent.
 */
#ifndef DICOMM_MEMORY_IN_PROCESS_H
#define DICOMM_MEMORY_IN_PROCESS_H

#include "src/accel/accel.h"

struct in_process;

/* What a rank reads of another one's memory, until its stream has come to the
 * event; all zero: nothing. */
struct in_process_read {
	struct in_process *from;
	const struct accel_work *work;
	const struct accel_event *event;
	struct in_process_read *next;
};

dicomm_result_t in_process_create(struct in_process **out);
/* By this others find it; never that of another one, in any process. */
uint64_t in_process_id(const struct in_process *l);
/* NULL: no rank of this process has it, or it is closed. */
struct in_process *in_process_find(uint64_t id);
/* Give back what was created or found. */
void in_process_put(struct in_process *l);

/* Around what is queued to read. False: it is closed, do not. At the end the
 * event is recorded; r->event is NULL if that failed. */
bool in_process_begin(struct in_process *l);
void in_process_end(struct in_process *l, struct in_process_read *r);
/* The event was reached, or will never be. */
void in_process_done(struct in_process_read *r);

/* False: something still reads after so long. */
bool in_process_close(struct in_process *l, uint64_t ns);

#endif
