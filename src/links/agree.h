/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the minimum over all ranks of each of a few numbers, between two
 * collectives and without blocking. It takes log2(ranks) rounds; in each, the
 * number of ranks whose values a rank knows doubles.
 */
#ifndef DICOMM_LINKS_AGREE_H
#define DICOMM_LINKS_AGREE_H

#include "src/links/internal_message.h"

/* Most numbers in one agreement; they fit into the smallest slot. */
#define AGREE_MOST 1024

struct agree {
	struct internal_messages messages;
	/* In: this rank's values. Out: the minimum over all ranks. The caller
	 * owns the array. */
	uint32_t *word;
	uint32_t words;
	/* To the rank to which this one sends in the current round. */
	int distance;
	bool sent, taken;
	uint32_t theirs[AGREE_MOST];
};

/* To use it, call agree_begin(), then agree_turn() until that does not return
 * DICOMM_AGAIN. agree_turn() sets *moved to true if it made progress. */
void agree_begin(struct agree *a, const struct operation *before,
		 uint32_t *word, uint32_t words);
dicomm_result_t agree_turn(struct agree *a, bool *moved);
/* Returns the rank for which the agreement waits. */
int agree_awaits(const struct agree *a);

#endif
