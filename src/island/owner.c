/* SPDX-License-Identifier: BSD-3-Clause */
/* What passes between equal islands. */
#include "src/island/owner.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/island/block.h"
#include "src/island/piece.h"

static void fill_piece(const struct job *j, struct call *call)
{
	call->count = island_piece_of(j, 0, (uint32_t)j->is->comm->rank).length;
	call->recv = island_piece_sum(j, 0);
	call->send = call->recv;
	if (coll_rooted(j->coll))
		call->root = (int)j->is->of[j->root];
}

/* The rank of an island with this rank's number */
static uint32_t peer_in(const struct island *is, uint32_t island)
{
	return is->rank[is->first[island] + is->index[is->comm->rank]];
}

/* Blocks of the owners, for a call with counts for each rank. `sends`: those
 * that are sent; of the others there is one. */
static dicomm_result_t fill_blocks(const struct job *j, bool sends,
				   struct item *item)
{
	const struct island *is = j->is;
	size_t n = is->islands, *room = calloc(2 * n + 2, sizeof(*room));
	struct call *call = &item->call;

	if (!room)
		return FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
	for (uint32_t i = 0; i < n; i++) {
		uint32_t peer = peer_in(is, i);

		room[i] = j->count;
		room[n + i] = sends ? island_block_sum_at(j, peer)
				    : peer * island_block_stride(j);
	}
	room[2 * n] = j->count;
	*(sends ? &call->send_counts : &call->recv_counts) = room;
	*(sends ? &call->send_displs : &call->recv_displs) = room + n;
	*(sends ? &call->recv_counts : &call->send_counts) = room + 2 * n;
	*(sends ? &call->recv_displs : &call->send_displs) = room + 2 * n + 1;
	call->counts = room;
	item->counts = room;
	return DICOMM_SUCCESS;
}

dicomm_result_t island_owner_call(const struct job *j, struct item *item)
{
	struct call *call = &item->call;

	item->counts = NULL;
	*call = (struct call){.kind = &planned_kind,
			      .function = j->coll,
			      .type = j->type,
			      .op = j->op,
			      .root = coll_rooted(j->coll) ? 0 : -1,
			      .send = j->send,
			      .recv = j->recv,
			      .among = &j->is->owners};
	switch (j->coll) {
	case COLL_ALLGATHER:
		call->function = COLL_ALLGATHERV;
		return fill_blocks(j, false, item);
	case COLL_REDUCE_SCATTER:
		call->function = COLL_REDUCE_SCATTERV;
		call->send = j->scratch;
		return fill_blocks(j, true, item);
	default:
		fill_piece(j, call);
		return DICOMM_SUCCESS;
	}
}
