/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeps driver calls that map, unmap or free device memory away from blocked
 * streams. A driver may make such a call wait for a stream that this library
 * blocks, while the stream waits for the thread that makes the call.
 *
 * So a thread calls streams_unblocked_begin() first. Until its call is done, no
 * stream of this process becomes blocked. If memory must be freed while a
 * stream is blocked, that is deferred: a thread of this file, or the next
 * allocation, frees it when no stream is blocked. Nobody waits for that.
 *
 * Threads: any.
 */
#ifndef DICOMM_MEMORY_BLOCKED_STREAMS_H
#define DICOMM_MEMORY_BLOCKED_STREAMS_H

#include "src/accel/accel.h"

/* Call these before and after the code that blocks streams. */
void streams_block_begin(void);
void streams_block_end(void);

/* Returns true if no stream is blocked; then none becomes blocked until
 * streams_unblocked_end(). Several threads may hold this at a time. Does
 * not wait. */
bool streams_unblocked_begin(const struct accel_work *work, int index);
/* The same, but waits for some time, before an allocation. A driver that waits
 * for a blocked stream while it allocates may keep other threads from
 * unblocking it. But they may wait for this thread, so if this returns false
 * the caller allocates anyway. */
bool streams_unblocked_await(const struct accel_work *work, int index);
void streams_unblocked_end(void);

/* Deferred work. It is the first member of the struct that it frees. */
struct deferred {
	const struct accel_work *work;
	int index;
	/* Called while no stream is blocked; frees the struct. Returns false if
	 * it cannot do so yet; then it is called again. */
	bool (*go)(struct deferred *l);
	struct deferred *next;
};

/* Run it now if no stream is blocked, otherwise later. Returns true if it
 * has run. */
bool deferred_run(struct deferred *l);
/* Run the deferred work that can run now. */
void deferred_sweep(void);
/* Returns true if there is deferred work. */
bool deferred_waits(void);

#endif
