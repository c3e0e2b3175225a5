/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What maps, lets go of or frees memory of a device could wait for a stream
 * that is held, and that for the thread which does it. So it asks here, and
 * meanwhile no stream of this process becomes held. What is to go while one is
 * held goes later, when a thread of its own, or who allocates, finds none held
 * any more. Nobody waits for that.
 *
 * Threads: any.
 */
#ifndef DICOMM_MEMORY_BLOCKED_STREAMS_H
#define DICOMM_MEMORY_BLOCKED_STREAMS_H

#include "src/accel/accel.h"

/* Around where streams become held. */
void streams_block_begin(void);
void streams_block_end(void);

/* True: no stream is held, nor becomes so until streams_unblocked_end().
 * Several may be told so at a time. Waits for nobody. */
bool streams_unblocked_begin(const struct accel_work *work, int index);
void streams_unblocked_end(void);

/* What is to go, the first thing in the struct that owns it */
struct deferred {
	const struct accel_work *work;
	int index;
	/* Called while no stream is held; frees the struct. False: not yet, it
	 * is called again. */
	bool (*go)(struct deferred *l);
	struct deferred *next;
};

/* Call it, now or later. True: it has gone. */
bool deferred_run(struct deferred *l);
/* Call what waits for that, where it can be by now. */
void deferred_sweep(void);
/* Does anything wait? */
bool deferred_waits(void);

#endif
