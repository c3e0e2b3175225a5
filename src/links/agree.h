/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the minimum over all ranks of each of a few numbers, between two
 * collectives and without blocking. It takes log2(ranks) rounds; in each, a
 * rank has heard of twice as many others.
 */
#ifndef DICOMM_LINKS_AGREE_H
#define DICOMM_LINKS_AGREE_H

#include "src/links/internal_message.h"

/* Numbers at a time; they fit into the smallest slot. */
#define AGREE_MOST 1024

struct agree {
	struct internal_messages messages;
	/* The caller's: at first this rank's numbers, at the end the minima */
	uint32_t *word;
	uint32_t words;
	int distance; /* to the rank that this one talks to in this round */
	bool sent, taken;
	uint32_t theirs[AGREE_MOST];
};

/* Begin, then call agree_turn() until it does not return AGAIN. */
void agree_begin(struct agree *a, const struct operation *before,
		 uint32_t *word, uint32_t words);
dicomm_result_t agree_turn(struct agree *a, bool *moved);
/* The rank that it waits for */
int agree_awaits(const struct agree *a);

#endif
