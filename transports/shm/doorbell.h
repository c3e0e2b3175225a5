/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The doorbell of a rank: one word of its segment, on which its thread sleeps
 * and which its peers clear when they have written something for it.
 *
 * A rank that waits arms its doorbell, looks once more at what it waits for,
 * and sleeps. A peer that writes meanwhile finds it armed, and rings. The
 * writer has no fence between what it writes and its look at the doorbell,
 * since that would cost each message more than all the rest; so a ring may be
 * missed, once in a long while, and every sleep has a bound.
 */
#ifndef DICOMM_TRANSPORTS_SHM_DOORBELL_H
#define DICOMM_TRANSPORTS_SHM_DOORBELL_H

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint32_t shm_doorbell;

/* Wake who sleeps. */
void shm_doorbell_ring(shm_doorbell *bell);

/* To be called after each write that a peer may wait for. */
static inline void shm_doorbell_notify(shm_doorbell *bell)
{
	if (__builtin_expect(
		    atomic_load_explicit(bell, memory_order_relaxed) != 0, 0))
		shm_doorbell_ring(bell);
}

/* Not armed: arm it and return, for the caller has to look once more. Armed:
 * sleep until it rings, so many microseconds at most. Any thread. */
void shm_doorbell_wait(shm_doorbell *bell, unsigned us);

#endif
