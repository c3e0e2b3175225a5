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
#ifndef DICOMM_CORE_HELD_H
#define DICOMM_CORE_HELD_H

#include "src/accel/accel.h"

/* Around where streams become held. */
void held_begin(void);
void held_end(void);

/* True: no stream is held, nor becomes so until held_release(). Several may be
 * told so at a time. Waits for nobody. */
bool held_by_none(const struct accel_work *work, int index);
void held_release(void);

/* What is to go, the first thing in the struct that owns it */
struct later {
	const struct accel_work *work;
	int index;
	/* Called while no stream is held; frees the struct. False: not yet, it
	 * is called again. */
	bool (*go)(struct later *l);
	struct later *next;
};

/* Call it, now or later. True: it has gone. */
bool held_later(struct later *l);
/* Call what waits for that, where it can be by now. */
void held_sweep(void);
/* Does anything wait? */
bool held_waits(void);

#endif
