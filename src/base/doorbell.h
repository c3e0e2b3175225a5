/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Doorbells: words on which threads of a rank sleep, and which are cleared when
 * something has come for that rank, by its peers or by threads of its process.
 *
 * Who is going to sleep arms its word, looks once more at what it waits for,
 * and sleeps. Who writes meanwhile finds the word armed, and rings. While no
 * word is armed, a writer pays for one load.
 *
 * Peers that share memory with a rank use doorbell_notify(), after each write
 * that it may wait for. It has no fence between the write and the load of the
 * doorbell, since that would cost each message more than all the rest. So a
 * processor may load a doorbell that is not armed yet while its write still
 * lies in its store buffer, where the one who looks once more does not see it:
 * nobody rings. That buffer is empty a moment later, and at each interrupt or
 * change of threads in any case. So a write that was not rung for is visible
 * DOORBELL_SETTLE_US after the doorbell was armed: who sleeps long looks a
 * second time then. Later writes find the doorbell armed. Who sleeps a bounded
 * short time need not look again.
 *
 * Threads of the process use doorbell_ring_own(), which has the fence.
 */
#ifndef DICOMM_BASE_DOORBELL_H
#define DICOMM_BASE_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DOORBELL_SETTLE_US 1000u

typedef _Atomic uint32_t doorbell_word; /* 1: armed */

/* A word for each of two threads that may sleep at the same time: one that
 * waits in a call, and the one that serves peers while the rank makes no calls
 * (src/core/cross_progress.h). Writers look at both at once. */
struct doorbell {
	union {
		_Atomic uint64_t any;
		struct {
			doorbell_word waiter, server;
		};
	};
};
_Static_assert(sizeof(struct doorbell) == sizeof(uint64_t), "both words");

/* The word of this process for what its own threads do. */
extern doorbell_word doorbell_own;

/* Wakes who sleeps. */
void doorbell_ring(struct doorbell *bell);
void doorbell_ring_word(doorbell_word *word);

/* To be called after each write that a peer may wait for. The compiler keeps
 * the order of both; see above for the processor. */
static inline void doorbell_notify(struct doorbell *bell)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(
		    atomic_load_explicit(&bell->any, memory_order_relaxed) != 0,
		    0))
		doorbell_ring(bell);
}

static inline void doorbell_ring_own(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&doorbell_own, memory_order_relaxed))
		doorbell_ring_word(&doorbell_own);
}

/* For the waiter. Not armed: arms it and returns, for the caller has to look
 * once more. Armed: sleeps until it rings, so many microseconds at most. Any
 * thread. */
void doorbell_wait(struct doorbell *bell, unsigned us);

/* For the server. Arms a word, and orders what follows after that. */
static inline void doorbell_arm(doorbell_word *word)
{
	atomic_store(word, 1);
	atomic_thread_fence(memory_order_seq_cst);
}

static inline void doorbell_disarm(doorbell_word *word)
{
	atomic_store(word, 0);
}

/* Can this kernel let a thread sleep on so many words? */
#define DOORBELL_WORDS 128
bool doorbell_can_sleep(unsigned n);
/* Sleeps until one of the words rings, which were armed, so many microseconds
 * at most. It does not touch them itself, so others may unmap them meanwhile.
 * It may return early. */
void doorbell_sleep(doorbell_word *const words[], unsigned n, unsigned us);

#endif
