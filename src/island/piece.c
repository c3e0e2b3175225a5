/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the pieces of a message are. */
#include "src/island/piece.h"

size_t island_piece_at(const struct job *j, uint32_t piece)
{
	uint32_t n = j->is->pieces;

	return j->count / n * piece +
	       (piece < j->count % n ? piece : j->count % n);
}

size_t island_piece_length(const struct job *j, uint32_t piece)
{
	return island_piece_at(j, piece + 1) - island_piece_at(j, piece);
}

bool island_piece_is_mine(const struct job *j, uint32_t piece)
{
	return piece % j->size == j->me;
}

size_t island_piece_room(const struct job *j)
{
	return (j->count / j->is->pieces + 1) * j->elem;
}

/* A captured call would keep scratch for as long as the communicator. All ranks
 * capture it, or none. */
bool island_piece_is_swapped(const struct job *j)
{
	return j->coll == COLL_ALLREDUCE && j->is->islands == 2 &&
	       !j->is->equal && !j->captured;
}

uint8_t *island_piece_sum(const struct job *j, uint32_t piece)
{
	return j->scratch && !island_piece_is_swapped(j)
		       ? j->scratch + piece / j->size * island_piece_room(j)
		       : j->recv + island_piece_at(j, piece) * j->elem;
}

bool island_piece_adds_own(const struct job *j)
{
	return island_job_is_alone(j) && j->send != j->recv;
}

uint8_t *island_piece_other(const struct job *j, uint32_t piece)
{
	return island_piece_adds_own(j)
		       ? j->recv + island_piece_at(j, piece) * j->elem
		       : j->scratch + piece / j->size * island_piece_room(j);
}
