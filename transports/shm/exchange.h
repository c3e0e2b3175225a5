/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchange buffers: what a rank has received in, it may send in.
 *
 * A line that a core has read lies in that core's cache. The core that wrote it
 * must get it back before it can write it again, so in a ring each line crosses
 * between the cores twice for each message. Where both ranks of a pair send, a
 * rank rather sends in the buffer in which it received last: then each line
 * crosses once. (Measured: perftest/results/2026-11-30-exchange.md.)
 *
 * Behind its slots, each ring has some buffers of the size of a slot. At any
 * time one of the two ranks has a buffer: at first the sender of the ring; then
 * who has received a message in it, and has released that message. Who has none
 * sends in the slot of the message, as in one direction only after a few
 * messages. Neither waits for a buffer, and none is given back.
 *
 * The thread that uses the device calls these functions.
 */
#ifndef DICOMM_TRANSPORTS_SHM_EXCHANGE_H
#define DICOMM_TRANSPORTS_SHM_EXCHANGE_H

#include <stdint.h>

#include "transports/transport.h"

/* Of each ring */
#define SHM_EXCHANGE_BUFFERS (TP_BUFFERS / 2)

/* Of a peer and class. Numbers are those that this rank sees: first the buffers
 * in the ring by which it receives, then those in the ring by which it sends;
 * the peer sees them the other way round. */
struct shm_exchange {
	struct tp_buffers buffers;
	/* Those that this rank has, the one that it has got last at the end */
	uint32_t count;
	uint8_t held[TP_BUFFERS];
	uint32_t is_held; /* a bit for each number */
};

/* The ring by which this rank receives has been found: its buffers begin
 * there. */
void shm_exchange_theirs(struct shm_exchange *x, const uint8_t *buffers,
			 uint64_t bytes);
/* The same of the ring by which it sends: this rank has all of them. */
void shm_exchange_ours(struct shm_exchange *x, const uint8_t *buffers,
		       uint64_t bytes);

/* Returns how many buffers this rank has, or has when it has released what has
 * arrived. */
static inline uint64_t shm_exchange_has(const struct shm_exchange *x)
{
	return x->count + (uint64_t)__builtin_popcount(x->buffers.arrived);
}

/* Returns a buffer to write a message to, and its number for the peer; NULL if
 * this rank has none. `released` is the number of the last message that it has
 * released. */
uint8_t *shm_exchange_take(struct shm_exchange *x, uint64_t released,
			   uint8_t *number);

#endif
