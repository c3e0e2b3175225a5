/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between unequal islands, ranks send each other all that has to pass.
 *
 * A rank does its calls one after the other, so one with several pieces would
 * hold up the owners of the others. So in an all-gather, a reduce-scatter and
 * an all-reduce of two islands, one call has all that ranks send each other, as
 * few bytes as otherwise, and each adds up what it got. Whoever has a sum has
 * it alone, or there are two terms, which in either order are one sum.
 */
#ifndef DICOMM_ISLAND_SWAP_H
#define DICOMM_ISLAND_SWAP_H

#include "src/island/job.h"

/* Is it so for this collective? */
bool island_swap_is_for(const struct job *j);
/* Fills in the calls, of which *n is how many there are. Some have counts,
 * which the caller frees, also on failure. */
dicomm_result_t island_swap_calls(const struct job *j, struct item *items,
				  uint32_t *n);

#endif
