/* SPDX-License-Identifier: BSD-3-Clause */
/* In which round each piece moves, so that no rank needs more staging memory
 * than it has. Every rank counts for all ranks. */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_ROUNDS_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_ROUNDS_H

#include <stdint.h>

#include "dicomm.h"

/* Bytes that a piece counts beside its own: it may begin a message, which is
 * aligned. */
#define ROUNDS_PIECE 64

struct rounds {
	uint64_t staging;
	struct rounds_rank {
		uint32_t round;     /* the last one it has a first hop in */
		uint64_t now, next; /* bytes in it, and in the one after it */
		/* what the piece at hand adds */
		uint64_t add_now, add_next;
		uint8_t touched;
	} * rank;
	int *touched; /* ranks that it adds to */
	int n;
};

dicomm_result_t rounds_make(struct rounds *r, int ranks, uint64_t staging);
void rounds_free(struct rounds *r);
/* The piece at hand takes so many bytes of a rank in its round, and in the one
 * after that. */
void rounds_add(struct rounds *r, int rank, uint64_t now, uint64_t next);
/* The round of the piece at hand; then the next piece is at hand. No rank may
 * take more than the staging memory for it. */
uint32_t rounds_place(struct rounds *r);

#endif
