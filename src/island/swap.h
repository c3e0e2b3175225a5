/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What passes between unequal islands: each rank sends each other one all that
 * these two have to pass, in one call for all of them, or in two; and adds up
 * what it got. So all ranks of an island take part equally, and no byte crosses
 * the boundary more often than it has to.
 *
 *   allreduce       two islands: each sends the other what it adds; more: each
 *                   sends the others their shares, and then its sum of its own
 *   reduce          all but the root's send each other their shares, and then
 *                   the sums to the root's
 *   broadcast       the root's sends each other one its share, which these then
 *                   send each other
 *   allgather, reduce_scatter   each sends the others their blocks
 *
 * Whoever has a sum has it alone, or has it from one rank, or there are two
 * terms, which in either order are one sum.
 */
#ifndef DICOMM_ISLAND_SWAP_H
#define DICOMM_ISLAND_SWAP_H

#include "src/island/job.h"

/* Fills in the calls, and *n, how many there are: at most so many. Some have
 * counts, which the caller frees, also on failure. */
uint32_t island_swap_most_calls(const struct job *j);
dicomm_result_t island_swap_calls(const struct job *j, struct item *items,
				  uint32_t *n);
/* Bytes of scratch that these need, with the sums of this island */
size_t island_swap_scratch(const struct job *j);

#endif
