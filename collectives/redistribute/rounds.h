/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the round in which each piece moves, so that no rank needs more staging
 * memory than it has. Every rank computes this for all ranks. */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_ROUNDS_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_ROUNDS_H

#include <stdint.h>

#include "dicomm.h"

/* Bytes that a piece counts in addition to its own: it may begin a message,
 * which is aligned. */
#define ROUNDS_PIECE 64

struct rounds {
	uint64_t staging;
	struct rounds_rank {
		/* The last round with a first hop of this rank. */
		uint32_t round;
		/* Bytes of staging memory in that round, and in the next
		 * one. */
		uint64_t now, next;
		/* Bytes that the current piece adds to them. */
		uint64_t add_now, add_next;
		uint8_t touched;
	} * rank;
	int *touched; /* the ranks to which it adds */
	int n;
};

dicomm_result_t rounds_make(struct rounds *r, int ranks, uint64_t staging);
void rounds_free(struct rounds *r);
/* Adds to the current piece: it needs `now` bytes of a rank's staging memory in
 * its round, and `next` bytes in the round after it. */
void rounds_add(struct rounds *r, int rank, uint64_t now, uint64_t next);
/* Returns the round of the current piece, and begins the next piece. No rank
 * may need more than its whole staging memory for a piece. */
uint32_t rounds_place(struct rounds *r);

#endif
