/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the blocks of ranks are, and what islands add to them. */
#include "src/island/block.h"

uint32_t island_block_before(const struct island *is, uint32_t number,
			     uint32_t island)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < island; i++)
		n += number < is->size[i];
	return n;
}

uint32_t island_block_slot(const struct job *j, uint32_t number)
{
	uint32_t slot = 0;

	for (uint32_t n = j->me; n < number; n += j->size)
		slot += island_block_before(j->is, n, j->is->islands);
	return slot;
}

size_t island_block_bytes(const struct job *j)
{
	return j->count * j->elem;
}

size_t island_block_stride(const struct job *j)
{
	return j->stride * j->elem;
}

size_t island_block_sum_at(const struct job *j, uint32_t rank)
{
	const struct island *is = j->is;
	uint32_t number = is->index[rank];

	if (island_job_is_alone(j))
		return rank * island_block_stride(j);
	return (island_block_slot(j, number) +
		island_block_before(is, number, is->of[rank])) *
	       island_block_bytes(j);
}

size_t island_block_sums(const struct job *j)
{
	return island_job_is_alone(j)
		       ? 0
		       : island_block_slot(j, j->is->pieces + j->size) *
				 island_block_bytes(j);
}
