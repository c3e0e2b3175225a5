/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of the owners of pieces. */
#include "src/island/owner.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/island/block.h"
#include "src/island/piece.h"

/* Fills in the call for a piece, or the blocks of ranks with that number, of
 * which this rank is the owner. */
typedef dicomm_result_t between_fn(const struct job *j, uint32_t piece,
				   struct call *call, size_t **counts);

static dicomm_result_t fill_piece(const struct job *j, uint32_t piece,
				  struct call *call, size_t **counts)
{
	size_t at = island_piece_at(j, piece) * j->elem;

	(void)counts;
	call->count = island_piece_length(j, piece);
	call->recv = island_piece_sum(j, piece);
	call->send = island_job_is_alone(j) ? j->send + at : call->recv;
	if (!coll_rooted(j->coll))
		return DICOMM_SUCCESS;
	call->root = (int)j->is->of[j->root];
	if (j->coll == COLL_BROADCAST && j->is->comm->rank != j->root)
		call->send = call->recv;
	return DICOMM_SUCCESS;
}

/* Counts and places of blocks of the ranks with that number, one in each island
 * that has so many, for a call with counts for each rank. `sends`: those that
 * are sent; of the others there is one, of `own` elements. */
static dicomm_result_t fill_counts(const struct job *j, uint32_t number,
				   bool sends, const size_t *displs, size_t own,
				   struct call *call, size_t **counts)
{
	const struct island *is = j->is;
	uint32_t n = is->islands;
	size_t *room = calloc(2 * (size_t)n + 2, sizeof(*room));

	if (!room)
		return FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
	for (uint32_t i = 0; i < n; i++) {
		room[i] = number < is->size[i] ? j->count : 0;
		room[n + i] = displs[i];
	}
	room[2 * (size_t)n] = own;
	*(sends ? &call->send_counts : &call->recv_counts) = room;
	*(sends ? &call->send_displs : &call->recv_displs) = room + n;
	*(sends ? &call->recv_counts : &call->send_counts) = room + 2 * n;
	*(sends ? &call->recv_displs : &call->send_displs) = room + 2 * n + 1;
	call->counts = room;
	*counts = room;
	return DICOMM_SUCCESS;
}

static dicomm_result_t fill_gathered(const struct job *j, uint32_t number,
				     struct call *call, size_t **counts)
{
	const struct island *is = j->is;
	size_t displs[is->islands];
	bool own = is->index[is->comm->rank] == number;

	for (uint32_t i = 0; i < is->islands; i++)
		displs[i] = number < is->size[i]
				    ? is->rank[is->first[i] + number] *
					      island_block_stride(j)
				    : 0;
	call->function = COLL_ALLGATHERV;
	call->send = j->send;
	call->recv = j->recv;
	return fill_counts(j, number, false, displs, own ? j->count : 0, call,
			   counts);
}

static dicomm_result_t fill_scattered(const struct job *j, uint32_t number,
				      struct call *call, size_t **counts)
{
	const struct island *is = j->is;
	size_t displs[is->islands], bytes = island_block_bytes(j);
	bool own = is->index[is->comm->rank] == number;

	for (uint32_t i = 0; i < is->islands; i++) {
		if (number >= is->size[i])
			displs[i] = 0;
		else if (island_job_is_alone(j))
			displs[i] = is->rank[is->first[i] + number] *
				    island_block_stride(j);
		else
			displs[i] = (island_block_slot(j, number) +
				     island_block_before(is, number, i)) *
				    bytes;
	}
	call->function = COLL_REDUCE_SCATTERV;
	call->send = island_job_is_alone(j) ? j->send : j->scratch;
	call->recv = j->recv;
	return fill_counts(j, number, true, displs, own ? j->count : 0, call,
			   counts);
}

static between_fn *fill_of(const struct job *j)
{
	switch (j->coll) {
	case COLL_ALLGATHER:
		return fill_gathered;
	case COLL_REDUCE_SCATTER:
		return fill_scattered;
	default:
		return fill_piece;
	}
}

/* All ranks make as many calls; those of a piece that this rank does not own
 * are empty. */
dicomm_result_t island_owner_call(const struct job *j, uint32_t round,
				  struct item *item)
{
	const struct island *is = j->is;
	uint32_t piece = is->equal ? j->me : round;

	item->call = (struct call){.kind = &planned_kind,
				   .function = j->coll,
				   .type = j->type,
				   .op = j->op,
				   .root = coll_rooted(j->coll) ? 0 : -1,
				   .among = &is->groups[round]};
	item->counts = NULL;
	if (island_piece_is_mine(j, piece))
		return fill_of(j)(j, piece, &item->call, &item->counts);
	if (coll_has_blocks(j->coll))
		item->call.function = COLL_ALLREDUCE;
	return DICOMM_SUCCESS;
}
