/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks that may make a sum, such that the fewest bytes move.
 *
 * A rank that makes the sum of a cell receives the terms that it does not hold,
 * and sends the result to each other rank that wants it. So the fewest bytes
 * move if the sum is made where the most terms are, counting the wish for the
 * result as a term. A rank that wants the sum and holds all terms makes it for
 * itself.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_OWNERS_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_OWNERS_H

#include "collectives/redistribute/overlay.h"

/* Box of an owner that does not want the result. */
#define OWNERS_NO_BOX UINT32_MAX

struct owners {
	/* Each of these ranks can make the sum; or if `all_make`, all of them
	 * do, because none needs a term of another rank. */
	struct overlay_holder *list;
	uint32_t n;
	bool all_make;
	/* Used by owners_find(). [rank] */
	struct owners_rank {
		uint32_t held; /* number of terms */
		int last;      /* the last of these terms, or -1 */
		uint32_t box;
		bool counted;
	} * rank;
	int *counted; /* the ranks that hold or want the cell */
	uint32_t ncounted;
};

/* Returns DICOMM_ERR_NO_MEMORY on failure. */
dicomm_result_t owners_make(struct owners *w, int ranks);
void owners_free(struct owners *w);
/* Finds the owners of a cell. wanters: each rank that wants it, once. If
 * `all_make`, the owners are taken out of the wanters. */
void owners_find(struct owners *w, const struct overlay *o,
		 const struct overlay_cell *cell,
		 struct overlay_holder *wanters, uint32_t *nwanters);

#endif
