/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a reference refers to, where the receiver can neither map nor read it:
 * memory that the kernel does not show to other processes, or a sender that has
 * given up privileges since it connected. The receiver asks for a piece; the
 * sender, who waits for the release anyway, copies it into the data area of the
 * slot of that message, or of that slice of it.
 */
#ifndef DICOMM_TRANSPORTS_SHM_PULL_H
#define DICOMM_TRANSPORTS_SHM_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

struct shm_ring;

/* What the receiver waits for: one for each slot */
struct shm_pull {
	uint8_t *dst;    /* NULL: nothing */
	uint64_t seq;    /* of a message that is not released yet */
	uint64_t from;   /* address in the sender */
	uint64_t left;   /* bytes, with the piece that was asked for */
	uint64_t number; /* of that question */
};

/* Ask for len bytes at an address of the sender that message seq refers to.
 * AGAIN: the slot of that number may still hold an earlier message; the last
 * one that was released is `consumed`. */
dicomm_result_t shm_pull_begin(struct shm_ring *ring, struct shm_pull pulls[],
			       uint64_t consumed, uint64_t seq, void *dst,
			       uint64_t from, uint64_t len);
/* Take what has come for message seq. IN_PROGRESS: that was not all. */
dicomm_result_t shm_pull_poll(struct shm_ring *ring, struct shm_pull pulls[],
			      uint64_t seq);
/* The sender: answer all questions about messages that are not released yet.
 * `seen` counts the questions that were looked at. True: there was one. */
bool shm_pull_serve(struct shm_ring *ring, uint64_t *seen);

#endif
