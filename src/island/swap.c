/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks of unequal islands send each other in one call. */
#include "src/island/swap.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/island/block.h"
#include "src/island/piece.h"

static uint32_t me_of(const struct job *j)
{
	return (uint32_t)j->is->comm->rank;
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

/* ---- messages that are cut into pieces ---- */

/* This rank's piece of a share, in elements */
static struct piece mine(const struct job *j, uint32_t share)
{
	return island_piece_near(j, share, j->me);
}

/* What this rank and another have in common of a share passes between them.
 * `at`: where this rank has its piece, from the first byte of the buffer */
static void send_common(const struct job *j, struct item *item, uint32_t share,
			uint32_t to, size_t at)
{
	struct piece m = mine(j, share);
	struct piece c = island_piece_common(m, island_piece_of(j, share, to));

	if (c.length)
		add_sent(j, item, to, c.length, at + (c.at - m.at) * j->elem);
}

static void receive_common(const struct job *j, struct item *item,
			   uint32_t share, uint32_t from, size_t at)
{
	struct piece m = mine(j, share);
	struct piece c =
		island_piece_common(m, island_piece_of(j, share, from));

	if (c.length)
		add_received(j, item, from, c.length,
			     at + (c.at - m.at) * j->elem);
}

/* Where its piece is in a user's buffer */
static size_t in_buffer(const struct job *j, uint32_t share)
{
	return mine(j, share).at * j->elem;
}

/* Does the root's island only send, or only receive, so that it has no share of
 * its own? */
static bool is_roots(const struct job *j, uint32_t island)
{
	return coll_rooted(j->coll) && j->is->of[j->root] == island;
}

static bool is_home(const struct job *j)
{
	return is_roots(j, j->is->mine);
}

static uint32_t own_share(const struct job *j)
{
	return island_piece_share_of(j, j->is->mine);
}

/* The islands whose sums come to the owners of a share */
static uint32_t terms(const struct job *j)
{
	return island_piece_shares(j) - 1;
}

/* Memory for those, behind the sums of this rank */
static uint8_t *terms_at(const struct job *j)
{
	return j->scratch +
	       (island_piece_is_apart(j)
			? island_piece_shares(j) * island_piece_room(j)
			: 0);
}

/* Does a rank add what it has to what comes, which is in the result? */
static bool adds_own(const struct job *j)
{
	return island_job_is_alone(j) && j->send != j->recv &&
	       (j->coll == COLL_ALLREDUCE || j->is->comm->rank == j->root);
}

static void add_sum(const struct job *j, struct item *items, uint32_t *n,
		    const void *send, void *recv, uint32_t share, bool last)
{
	size_t count = mine(j, share).length;

	if (count)
		make_sum(j, send, recv, count, last, &items[(*n)++]);
}

/* All islands but the root's: each sends the others their shares of what it
 * adds, and adds up those of its own, in the memory for terms. */
static dicomm_result_t make_terms(const struct job *j, struct item *items,
				  uint32_t *n)
{
	const struct island *is = j->is;
	uint8_t *from = island_piece_sum(j, 0), *to = terms_at(j);
	uint32_t own = own_share(j);
	size_t room = island_piece_room(j);
	struct item *call = &items[*n];

	TRY(begin_call(j, from, to, call));
	++*n;
	if (is_home(j))
		return DICOMM_SUCCESS;
	for (uint32_t r = 0; r < (uint32_t)is->comm->ranks; r++) {
		uint32_t s = island_piece_share_of(j, is->of[r]);

		if (is->of[r] == is->mine || is_roots(j, is->of[r]))
			continue;
		send_common(j, call, s, r,
			    (size_t)(island_piece_sum(j, s) - from));
		receive_common(j, call, own, r, (s - (s > own)) * room);
	}
	for (uint32_t t = 0; t < terms(j); t++)
		add_sum(j, items, n,
			t ? to + t * room : island_piece_sum(j, own), to, own,
			j->coll == COLL_ALLREDUCE && t + 1 == terms(j));
	return DICOMM_SUCCESS;
}

/* All islands send their sums of their shares to all others. */
static dicomm_result_t make_spread(const struct job *j, struct item *items,
				   uint32_t *n)
{
	const struct island *is = j->is;
	uint32_t own = own_share(j);
	struct item *call = &items[*n];

	TRY(begin_call(j, terms_at(j), j->recv, call));
	++*n;
	for (uint32_t r = 0; r < (uint32_t)is->comm->ranks; r++) {
		uint32_t s = island_piece_share_of(j, is->of[r]);

		if (is->of[r] == is->mine)
			continue;
		send_common(j, call, own, r, 0);
		receive_common(j, call, s, r, in_buffer(j, s));
	}
	send_common(j, call, own, me_of(j), 0);
	receive_common(j, call, own, me_of(j), in_buffer(j, own));
	return DICOMM_SUCCESS;
}

/* Two islands send each other what they add. */
static dicomm_result_t make_swap(const struct job *j, struct item *items,
				 uint32_t *n)
{
	const struct island *is = j->is;
	const uint8_t *from = island_job_is_alone(j) ? j->send : j->recv;
	uint8_t *result = j->recv + in_buffer(j, 0);
	uint8_t *to = adds_own(j) ? result : terms_at(j);
	struct item *call = &items[*n];

	TRY(begin_call(j, from, to, call));
	++*n;
	for (uint32_t r = 0; r < (uint32_t)is->comm->ranks; r++) {
		if (is->of[r] == is->mine)
			continue;
		send_common(j, call, 0, r, in_buffer(j, 0));
		receive_common(j, call, 0, r, 0);
	}
	add_sum(j, items, n, adds_own(j) ? j->send + in_buffer(j, 0) : to,
		result, 0, true);
	return DICOMM_SUCCESS;
}

static dicomm_result_t make_allreduce(const struct job *j, struct item *items,
				      uint32_t *n)
{
	if (!terms(j))
		return make_swap(j, items, n);
	TRY(make_terms(j, items, n));
	return make_spread(j, items, n);
}

/* Owners in the root's island add to what they have. */
static void add_to_home(const struct job *j, struct item *items, uint32_t *n)
{
	for (uint32_t s = 0; s < island_piece_shares(j); s++) {
		uint8_t *to = island_piece_sum(j, s);

		if (adds_own(j))
			add_sum(j, items, n, to, j->recv + in_buffer(j, s), s,
				true);
		else
			add_sum(j, items, n,
				terms_at(j) + s * island_piece_room(j), to, s,
				true);
	}
}

static dicomm_result_t make_reduce(const struct job *j, struct item *items,
				   uint32_t *n)
{
	const struct island *is = j->is;
	uint32_t own = own_share(j);
	struct item *call;
	uint8_t *to = adds_own(j) ? j->recv : terms_at(j);

	if (terms(j))
		TRY(make_terms(j, items, n));
	call = &items[*n];
	TRY(begin_call(j, terms(j) ? terms_at(j) : island_piece_sum(j, 0), to,
		       call));
	++*n;
	for (uint32_t r = 0; r < (uint32_t)is->comm->ranks; r++) {
		uint32_t s = island_piece_share_of(j, is->of[r]);

		if (is_roots(j, is->of[r]) == is_home(j))
			continue;
		if (!is_home(j))
			send_common(j, call, own, r, 0);
		else
			receive_common(j, call, s, r,
				       adds_own(j) ? in_buffer(j, s)
						   : s * island_piece_room(j));
	}
	if (is_home(j))
		add_to_home(j, items, n);
	return DICOMM_SUCCESS;
}

/* The root's island sends each other one a share, which these then send each
 * other. */
static dicomm_result_t make_broadcast(const struct job *j, struct item *items,
				      uint32_t *n)
{
	const struct island *is = j->is;
	bool copies =
		is_home(j) && island_job_is_alone(j) && j->send != j->recv;
	uint32_t own = own_share(j);
	struct item *first = &items[0], *second = &items[1];

	TRY(begin_call(j, copies ? j->send : j->recv, j->recv, first));
	*n = 1;
	if (terms(j)) {
		TRY(begin_call(j, j->recv, j->recv, second));
		*n = 2;
	}
	for (uint32_t r = 0; r < (uint32_t)is->comm->ranks; r++) {
		uint32_t s = island_piece_share_of(j, is->of[r]);

		if (is->of[r] == is->mine)
			continue;
		if (is_home(j)) {
			send_common(j, first, s, r, in_buffer(j, s));
		} else if (is_roots(j, is->of[r])) {
			receive_common(j, first, own, r, in_buffer(j, own));
		} else {
			send_common(j, second, own, r, in_buffer(j, own));
			receive_common(j, second, s, r, in_buffer(j, s));
		}
	}
	if (copies) {
		add_sent(j, first, me_of(j), j->count, 0);
		add_received(j, first, me_of(j), j->count, 0);
	}
	return DICOMM_SUCCESS;
}

/* ---- blocks ---- */

/* Is this rank the one of its island by which that rank's block passes? */
static bool is_passed_here(const struct job *j, uint32_t rank)
{
	return j->is->index[rank] % j->size == j->me;
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
		if (is->of[r] != is->mine && is_passed_here(j, r))
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
		if (is->of[r] != is->mine && is_passed_here(j, r))
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
	case COLL_REDUCE:
		return make_reduce(j, items, n);
	case COLL_BROADCAST:
		return make_broadcast(j, items, n);
	default:
		return make_allreduce(j, items, n);
	}
}

uint32_t island_swap_most_calls(const struct job *j)
{
	return 2 * j->is->islands + 2;
}

static size_t blocks_scratch(const struct job *j)
{
	return island_block_sums(j) +
	       (j->is->islands - 1) * island_block_bytes(j);
}

size_t island_swap_scratch(const struct job *j)
{
	size_t pieces = 0;

	if (j->coll == COLL_REDUCE_SCATTER)
		return blocks_scratch(j);
	if (j->coll != COLL_REDUCE && j->coll != COLL_ALLREDUCE)
		return 0;
	if (island_piece_is_apart(j))
		pieces = island_piece_shares(j);
	if (is_home(j))
		pieces += adds_own(j) ? 0 : island_piece_shares(j);
	else if (terms(j))
		pieces += terms(j);
	else if (j->coll == COLL_ALLREDUCE && !adds_own(j))
		pieces++;
	return pieces * island_piece_room(j);
}
