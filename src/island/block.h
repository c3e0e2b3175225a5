/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An all-gather and a reduce-scatter have a block for each rank. It passes
 * between islands by the owners of the piece of that rank's number: where it
 * is, and where an owner has what its island adds to it.
 */
#ifndef DICOMM_ISLAND_BLOCK_H
#define DICOMM_ISLAND_BLOCK_H

#include "src/island/job.h"

/* How many islands before this one have a rank with that number */
uint32_t island_block_before(const struct island *is, uint32_t number,
			     uint32_t island);
/* First block of scratch with the sums for ranks of that number */
uint32_t island_block_slot(const struct job *j, uint32_t number);
size_t island_block_bytes(const struct job *j);
/* From a block to the next one in the user's buffers */
size_t island_block_stride(const struct job *j);
/* Where an owner has what its island adds to the block of a rank, from the
 * first byte of all of them */
size_t island_block_sum_at(const struct job *j, uint32_t rank);
/* Bytes of scratch for what this island adds; behind them is what the others
 * add, one block each. */
size_t island_block_sums(const struct job *j);

#endif
