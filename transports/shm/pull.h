/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pulls the bytes of a reference where the receiver can neither map nor read
 * the memory: the kernel does not let other processes read it, or the sender
 * has given up privileges since it connected. The receiver requests a piece.
 * The sender, which waits for the release anyway, copies the piece into the
 * data area of the slot of that message.
 */
#ifndef DICOMM_TRANSPORTS_SHM_PULL_H
#define DICOMM_TRANSPORTS_SHM_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

struct shm_ring;

/* A pull of the receiver; there is one for each slot */
struct shm_pull {
	uint8_t *dst;  /* NULL: nothing */
	uint64_t seq;  /* of a message that is not released yet */
	uint64_t from; /* address in the sender */
	/* bytes that are still to come, with the requested piece */
	uint64_t left;
	uint64_t number; /* number of the request */
};

/* Request len bytes at an address of the sender, for message seq. AGAIN: the
 * slot may still be in use by an earlier message; `consumed` is the last
 * message that was released. */
dicomm_result_t shm_pull_begin(struct shm_ring *ring, struct shm_pull pulls[],
			       uint64_t consumed, uint64_t seq, void *dst,
			       uint64_t from, uint64_t len);
/* Copy the piece that has arrived for message seq. IN_PROGRESS: there are
 * more. */
dicomm_result_t shm_pull_poll(struct shm_ring *ring, struct shm_pull pulls[],
			      uint64_t seq);
/* Called by the sender: serve all requests for messages that are not released
 * yet. *seen counts the requests that were checked. Returns true if there was
 * one. */
bool shm_pull_serve(struct shm_ring *ring, uint64_t *seen);

#endif
