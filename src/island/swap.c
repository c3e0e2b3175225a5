/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks of unequal islands send each other in one call. */
#include "src/island/swap.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/island/block.h"
#include "src/island/piece.h"

bool island_swap_is_for(const struct job *j)
{
	return island_piece_is_swapped(j) ||
	       (!j->is->equal &&
		(j->coll == COLL_ALLGATHER || j->coll == COLL_REDUCE_SCATTER));
}

/* Begins an all-to-all of nothing yet, the first of the calls. */
static dicomm_result_t begin_call(const struct job *j, const void *send,
				  void *recv, struct item *item)
{
	size_t ranks = (size_t)j->is->comm->ranks;
	size_t *room = calloc(4 * ranks, sizeof(*room));

	if (!room)
		return FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
	item->counts = room;
	item->call = (struct call){.kind = &planned_kind,
				   .function = COLL_ALLTOALLV,
				   .type = j->type,
				   .root = -1,
				   .send = send,
				   .recv = recv,
				   .send_counts = room,
				   .send_displs = room + ranks,
				   .recv_counts = room + 2 * ranks,
				   .recv_displs = room + 3 * ranks};
	return DICOMM_SUCCESS;
}

static void add_sent(const struct job *j, struct item *item, uint32_t to,
		     size_t count, size_t displ)
{
	item->counts[to] = count;
	item->counts[(size_t)j->is->comm->ranks + to] = displ;
}

static void add_received(const struct job *j, struct item *item, uint32_t from,
			 size_t count, size_t displ)
{
	size_t ranks = (size_t)j->is->comm->ranks;

	item->counts[2 * ranks + from] = count;
	item->counts[3 * ranks + from] = displ;
}

/* recv = recv op send, and an average is divided if this is the last. */
static void make_sum(const struct job *j, const void *send, void *recv,
		     size_t count, bool last, struct item *item)
{
	item->call = (struct call){
		.kind = &planned_kind,
		.function = CALL_REDUCE_LOCAL,
		.type = j->type,
		.op = last ? j->op : (dicomm_redop_t)island_job_op(j),
		.root = -1,
		.count = count,
		.send = send,
		.recv = recv};
}

static dicomm_result_t make_swap(const struct job *j, struct item *items,
				 uint32_t *n)
{
	const struct island *is = j->is;
	const uint8_t *from = island_job_is_alone(j) ? j->send : j->recv;
	uint8_t *to = island_piece_other(j, j->me);

	TRY(begin_call(j, from, to, &items[0]));
	*n = 1;
	for (uint32_t p = j->me; p < is->pieces; p += j->size) {
		uint32_t peer = island_owner(is, 1 - is->mine, p);
		size_t at = island_piece_at(j, p) * j->elem;

		add_sent(j, &items[0], peer, island_piece_length(j, p), at);
		add_received(j, &items[0], peer, island_piece_length(j, p),
			     (size_t)(island_piece_other(j, p) - to));
		make_sum(j,
			 island_piece_adds_own(j) ? j->send + at
						  : island_piece_other(j, p),
			 j->recv + at, island_piece_length(j, p), true,
			 &items[(*n)++]);
	}
	return DICOMM_SUCCESS;
}

/* Each rank sends its block to the owner of its number in each other island. */
static dicomm_result_t make_gathered(const struct job *j, struct item *items,
				     uint32_t *n)
{
	const struct island *is = j->is;
	uint32_t me = (uint32_t)is->comm->rank;

	TRY(begin_call(j, j->send, j->recv, &items[0]));
	*n = 1;
	for (uint32_t i = 0; i < is->islands; i++)
		if (i != is->mine)
			add_sent(j, &items[0], island_owner(is, i, j->me),
				 j->count, 0);
	for (uint32_t r = 0; r < (uint32_t)is->comm->ranks; r++)
		if (is->of[r] != is->mine &&
		    island_piece_is_mine(j, is->index[r]))
			add_received(j, &items[0], r, j->count,
				     r * island_block_stride(j));
	if (j->send == j->recv + me * island_block_stride(j))
		return DICOMM_SUCCESS;
	add_sent(j, &items[0], me, j->count, 0);
	add_received(j, &items[0], me, j->count, me * island_block_stride(j));
	return DICOMM_SUCCESS;
}

/* Is what this island adds to this rank's block where the result is to be? */
static bool is_partial_in_place(const struct job *j)
{
	return island_job_is_alone(j) &&
	       j->recv == j->send + island_block_sum_at(
					    j, (uint32_t)j->is->comm->rank);
}

/* Of several other islands, what they add comes into scratch, and what this one
 * adds is copied to the result by the second call. Of one, the result has room
 * for it. */
static dicomm_result_t make_scattered(const struct job *j, struct item *items,
				      uint32_t *n)
{
	const struct island *is = j->is;
	const uint8_t *from = island_job_is_alone(j) ? j->send : j->scratch;
	bool in_place = is_partial_in_place(j), two = is->islands == 2;
	uint32_t me = (uint32_t)is->comm->rank, got = 0;
	uint8_t *to =
		two && !in_place ? j->recv : j->scratch + island_block_sums(j);

	TRY(begin_call(j, from, to, &items[0]));
	*n = 1;
	for (uint32_t r = 0; r < (uint32_t)is->comm->ranks; r++)
		if (is->of[r] != is->mine &&
		    island_piece_is_mine(j, is->index[r]))
			add_sent(j, &items[0], r, j->count,
				 island_block_sum_at(j, r));
	for (uint32_t i = 0; i < is->islands; i++)
		if (i != is->mine)
			add_received(j, &items[0], island_owner(is, i, j->me),
				     j->count, got++ * island_block_bytes(j));
	if (!two) {
		TRY(begin_call(j, from, j->recv, &items[1]));
		*n = 2;
	}
	if (!two && !in_place) {
		add_sent(j, &items[1], me, j->count,
			 island_block_sum_at(j, me));
		add_received(j, &items[1], me, j->count, 0);
	}
	for (uint32_t i = 0; i < got; i++)
		make_sum(j,
			 two && !in_place ? from + island_block_sum_at(j, me)
					  : to + i * island_block_bytes(j),
			 j->recv, j->count, i + 1 == got, &items[(*n)++]);
	return DICOMM_SUCCESS;
}

dicomm_result_t island_swap_calls(const struct job *j, struct item *items,
				  uint32_t *n)
{
	switch (j->coll) {
	case COLL_ALLGATHER:
		return make_gathered(j, items, n);
	case COLL_REDUCE_SCATTER:
		return make_scattered(j, items, n);
	default:
		return make_swap(j, items, n);
	}
}
