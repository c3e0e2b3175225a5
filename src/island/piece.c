/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the pieces of a message are. */
#include "src/island/piece.h"

static struct piece part(struct piece of, uint32_t n, uint32_t nth)
{
	size_t each = of.length / n, more = of.length % n;

	return (struct piece){of.at + each * nth + (nth < more ? nth : more),
			      each + (nth < more)};
}

uint32_t island_piece_shares(const struct job *j)
{
	uint32_t islands = j->is->islands;

	if (j->is->equal)
		return 1;
	if (coll_rooted(j->coll))
		return islands - 1;
	return islands == 2 ? 1 : islands;
}

struct piece island_piece_share(const struct job *j, uint32_t share)
{
	return part((struct piece){0, j->count}, island_piece_shares(j), share);
}

uint32_t island_piece_share_of(const struct job *j, uint32_t island)
{
	return island - (coll_rooted(j->coll) && island > j->is->of[j->root]);
}

struct piece island_piece_of(const struct job *j, uint32_t share, uint32_t rank)
{
	const struct island *is = j->is;

	return part(island_piece_share(j, share), is->size[is->of[rank]],
		    is->index[rank]);
}

struct piece island_piece_near(const struct job *j, uint32_t share,
			       uint32_t member)
{
	return part(island_piece_share(j, share), j->size, member);
}

struct piece island_piece_common(struct piece a, struct piece b)
{
	size_t a_end = a.at + a.length, b_end = b.at + b.length;
	size_t at = a.at > b.at ? a.at : b.at;
	size_t end = a_end < b_end ? a_end : b_end;

	return (struct piece){at, end > at ? end - at : 0};
}

/* Aligned, as kernels like it */
size_t island_piece_room(const struct job *j)
{
	size_t share = j->count / island_piece_shares(j) + 1;

	return ((share / j->size + 1) * j->elem | 63) + 1;
}

bool island_piece_is_apart(const struct job *j)
{
	return j->coll == COLL_REDUCE && j->is->comm->rank != j->root &&
	       !island_job_is_alone(j);
}

uint8_t *island_piece_sum(const struct job *j, uint32_t share)
{
	size_t at = island_piece_near(j, share, j->me).at * j->elem;

	if (island_job_is_alone(j))
		return (uint8_t *)(uintptr_t)j->send + at;
	if (island_piece_is_apart(j))
		return j->scratch + share * island_piece_room(j);
	return j->recv + at;
}
