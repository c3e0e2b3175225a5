/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All ranks learn the smallest of each of a few numbers, between two
 * collectives and without blocking: in rounds, as many as the number of ranks
 * has bits, each hears of twice as many others.
 */
#ifndef DICOMM_LINKS_AGREE_H
#define DICOMM_LINKS_AGREE_H

#include "src/links/internal_message.h"

/* Numbers at a time; they fit the shortest slot. */
#define AGREE_MOST 1024

struct agree {
	struct internal_messages messages;
	uint32_t *word; /* the caller's: in its own, out the smallest */
	uint32_t words;
	int distance; /* of the ranks that talk in this round */
	bool sent, taken;
	uint32_t theirs[AGREE_MOST];
};

/* Call agree_turn() until it is not AGAIN. */
void agree_begin(struct agree *a, const struct operation *before,
		 uint32_t *word, uint32_t words);
dicomm_result_t agree_turn(struct agree *a, bool *moved);
/* Whom it waits for. */
int agree_awaits(const struct agree *a);

#endif
