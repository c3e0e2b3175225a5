/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of collectives that go by islands. */
#include "src/island/steps.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/stream/submit.h"

/* ---- parts within an island ---- */

/* Inside islands an average is a sum. */
static int inner_op(const struct job *j)
{
	return j->op == DICOMM_AVG ? DICOMM_SUM : (int)j->op;
}

/* First element of a piece */
static size_t cut(const struct job *j, uint32_t piece)
{
	uint32_t n = j->is->pieces;

	return j->count / n * piece +
	       (piece < j->count % n ? piece : j->count % n);
}

static size_t length(const struct job *j, uint32_t piece)
{
	return cut(j, piece + 1) - cut(j, piece);
}

/* Are all pieces as long as each other, with one for each rank? */
static bool is_even(const struct job *j)
{
	return j->size == j->is->pieces && !(j->count % j->is->pieces);
}

static bool is_mine(const struct job *j, uint32_t piece)
{
	return piece % j->size == j->me;
}

/* Bytes of scratch for a piece */
static size_t room(const struct job *j)
{
	return (j->count / j->is->pieces + 1) * j->elem;
}

/* A captured call would keep scratch for as long as the communicator. All ranks
 * capture it, or none. */
static bool swaps(const struct job *j)
{
	return j->coll == COLL_ALLREDUCE && j->is->islands == 2 &&
	       !j->is->equal && !j->captured;
}

/* Where an owner has the sum of a piece: in the result, or in scratch */
static uint8_t *sum_of(const struct job *j, uint32_t piece)
{
	return j->scratch && !swaps(j) ? j->scratch + piece / j->size * room(j)
				       : j->recv + cut(j, piece) * j->elem;
}

/* Does a rank add what it has to what comes, which is in the result? */
static bool adds_own(const struct job *j)
{
	return island_job_is_alone(j) && j->send != j->recv;
}

/* Where an owner gets the sum of a piece of the other island */
static uint8_t *others_of(const struct job *j, uint32_t piece)
{
	return adds_own(j) ? j->recv + cut(j, piece) * j->elem
			   : j->scratch + piece / j->size * room(j);
}

static int queue_reduce_scatter(struct job *j)
{
	int op = inner_op(j), type = (int)j->type, result = VENDOR_SUCCESS;

	j->what = "ncclReduceScatter";
	if (is_even(j))
		return j->f->reduce_scatter(j->send, sum_of(j, j->me),
					    length(j, 0), type, op, j->vendor,
					    j->stream);
	for (uint32_t p = 0; p < j->is->pieces && result == VENDOR_SUCCESS; p++)
		result = j->f->reduce(j->send + cut(j, p) * j->elem,
				      sum_of(j, p), length(j, p), type, op,
				      (int)(p % j->size), j->vendor, j->stream);
	return result;
}

static int queue_allgather(struct job *j)
{
	int type = (int)j->type, result = VENDOR_SUCCESS;

	j->what = "ncclAllGather";
	if (is_even(j))
		return j->f->allgather(j->recv + cut(j, j->me) * j->elem,
				       j->recv, length(j, 0), type, j->vendor,
				       j->stream);
	for (uint32_t p = 0; p < j->is->pieces && result == VENDOR_SUCCESS;
	     p++) {
		uint8_t *at = j->recv + cut(j, p) * j->elem;

		result = j->f->broadcast(at, at, length(j, p), type,
					 (int)(p % j->size), j->vendor,
					 j->stream);
	}
	return result;
}

static int queue_broadcast(struct job *j)
{
	bool root = j->is->comm->rank == j->root;

	j->what = "ncclBroadcast";
	return j->f->broadcast(root ? j->send : j->recv, j->recv, j->count,
			       (int)j->type, (int)j->is->index[j->root],
			       j->vendor, j->stream);
}

/* From the owners in the root's island to the root */
static int queue_to_root(struct job *j)
{
	uint32_t root = j->is->index[j->root];
	int result = VENDOR_SUCCESS;

	j->what = "ncclSend";
	for (uint32_t p = 0; p < j->is->pieces && result == VENDOR_SUCCESS;
	     p++) {
		uint32_t owner = p % j->size;

		if (owner == root)
			continue;
		if (j->me == root)
			result = j->f->recv(j->recv + cut(j, p) * j->elem,
					    length(j, p), (int)j->type,
					    (int)owner, j->vendor, j->stream);
		else if (j->me == owner)
			result = j->f->send(sum_of(j, p), length(j, p),
					    (int)j->type, (int)root, j->vendor,
					    j->stream);
	}
	return result;
}

/* Ranks with a number: its block passes to the islands by the owners of the
 * piece of that number. Returns how many there are before an island. */
static uint32_t numbered(const struct island *is, uint32_t number,
			 uint32_t island)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < island; i++)
		n += number < is->size[i];
	return n;
}

/* First block of scratch with the sums for ranks of that number */
static uint32_t first_slot(const struct job *j, uint32_t number)
{
	uint32_t slot = 0;

	for (uint32_t n = j->me; n < number; n += j->size)
		slot += numbered(j->is, n, j->is->islands);
	return slot;
}

static size_t block_bytes(const struct job *j)
{
	return j->count * j->elem;
}

/* From a block to the next one in the user's buffers */
static size_t stride_bytes(const struct job *j)
{
	return j->stride * j->elem;
}

static int queue_block_sums(struct job *j)
{
	const struct island *is = j->is;
	int result = VENDOR_SUCCESS;

	j->what = "ncclReduce";
	for (uint32_t r = 0;
	     r < (uint32_t)is->comm->ranks && result == VENDOR_SUCCESS; r++) {
		uint32_t n = is->index[r];
		uint8_t *to = j->scratch;

		if (is_mine(j, n))
			to += (first_slot(j, n) + numbered(is, n, is->of[r])) *
			      block_bytes(j);
		result = j->f->reduce(j->send + r * stride_bytes(j), to,
				      j->count, (int)j->type, inner_op(j),
				      (int)(n % j->size), j->vendor, j->stream);
	}
	return result;
}

static int queue_blocks(struct job *j)
{
	const struct island *is = j->is;
	bool even = is->equal && is->consecutive && j->count == j->stride;
	uint32_t step = even ? j->size : 1;
	int result = VENDOR_SUCCESS;

	j->what = "ncclAllGather";
	for (uint32_t r = 0;
	     r < (uint32_t)is->comm->ranks && result == VENDOR_SUCCESS;
	     r += step) {
		uint8_t *at = j->recv + r * stride_bytes(j);

		if (even)
			result = j->f->allgather(at + j->me * block_bytes(j),
						 at, j->count, (int)j->type,
						 j->vendor, j->stream);
		else
			result = j->f->broadcast(at, at, j->count, (int)j->type,
						 (int)(is->index[r] % j->size),
						 j->vendor, j->stream);
	}
	return result;
}

/* ---- the part between islands ---- */

/* Fills in the call for a piece, or the blocks of ranks with that number, of
 * which this rank is the owner. */
typedef dicomm_result_t between_fn(const struct job *j, uint32_t piece,
				   struct call *call, size_t **counts);

/* All ranks make as many calls; those of a piece that this rank does not own
 * are empty. */
static dicomm_result_t make_call(const struct job *j, uint32_t round,
				 between_fn *fill, struct call *call,
				 size_t **counts)
{
	const struct island *is = j->is;
	uint32_t piece = is->equal ? j->me : round;

	*call = (struct call){.kind = &planned_kind,
			      .function = j->coll,
			      .type = j->type,
			      .op = j->op,
			      .root = coll_rooted(j->coll) ? 0 : -1,
			      .among = &is->groups[round]};
	*counts = NULL;
	if (is_mine(j, piece))
		return fill(j, piece, call, counts);
	if (coll_has_blocks(j->coll))
		call->function = COLL_ALLREDUCE;
	return DICOMM_SUCCESS;
}

/* ---- between unequal islands ---- */

/*
 * A rank does its calls one after the other, so one with several pieces would
 * hold up the owners of the others. So in an all-gather, a reduce-scatter and
 * an all-reduce of two islands, one call has all that ranks send each other, as
 * few bytes as otherwise, and each adds up what it got. Whoever has a sum has
 * it alone, or there are two terms, which in either order are one sum.
 */
static bool is_direct(const struct job *j)
{
	return swaps(j) || (!j->is->equal && (j->coll == COLL_ALLGATHER ||
					      j->coll == COLL_REDUCE_SCATTER));
}

/* Begins an all-to-all of nothing yet, the first of the calls. */
static dicomm_result_t make_direct(const struct job *j, const void *send,
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
	item->call =
		(struct call){.kind = &planned_kind,
			      .function = CALL_REDUCE_LOCAL,
			      .type = j->type,
			      .op = last ? j->op : (dicomm_redop_t)inner_op(j),
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
	uint8_t *to = others_of(j, j->me);

	TRY(make_direct(j, from, to, &items[0]));
	*n = 1;
	for (uint32_t p = j->me; p < is->pieces; p += j->size) {
		uint32_t peer = island_owner(is, 1 - is->mine, p);
		size_t at = cut(j, p) * j->elem;

		add_sent(j, &items[0], peer, length(j, p), at);
		add_received(j, &items[0], peer, length(j, p),
			     (size_t)(others_of(j, p) - to));
		make_sum(j, adds_own(j) ? j->send + at : others_of(j, p),
			 j->recv + at, length(j, p), true, &items[(*n)++]);
	}
	return DICOMM_SUCCESS;
}

/* Each rank sends its block to the owner of its number in each other island. */
static dicomm_result_t make_gathered(const struct job *j, struct item *items,
				     uint32_t *n)
{
	const struct island *is = j->is;
	uint32_t me = (uint32_t)is->comm->rank;

	TRY(make_direct(j, j->send, j->recv, &items[0]));
	*n = 1;
	for (uint32_t i = 0; i < is->islands; i++)
		if (i != is->mine)
			add_sent(j, &items[0], island_owner(is, i, j->me),
				 j->count, 0);
	for (uint32_t r = 0; r < (uint32_t)is->comm->ranks; r++)
		if (is->of[r] != is->mine && is_mine(j, is->index[r]))
			add_received(j, &items[0], r, j->count,
				     r * stride_bytes(j));
	if (j->send == j->recv + me * stride_bytes(j))
		return DICOMM_SUCCESS;
	add_sent(j, &items[0], me, j->count, 0);
	add_received(j, &items[0], me, j->count, me * stride_bytes(j));
	return DICOMM_SUCCESS;
}

/* Where an owner has what its island adds to the block of a rank, from the
 * first byte of all of them */
static size_t partial_at(const struct job *j, uint32_t rank)
{
	const struct island *is = j->is;
	uint32_t number = is->index[rank];

	if (island_job_is_alone(j))
		return rank * stride_bytes(j);
	return (first_slot(j, number) + numbered(is, number, is->of[rank])) *
	       block_bytes(j);
}

/* Is what this island adds to this rank's block where the result is to be? */
static bool is_partial_in_place(const struct job *j)
{
	return island_job_is_alone(j) &&
	       j->recv == j->send + partial_at(j, (uint32_t)j->is->comm->rank);
}

/* Bytes of scratch for what this island adds; behind them is what the others
 * add, one block each. */
static size_t own_partials(const struct job *j)
{
	return island_job_is_alone(j) ? 0
				      : first_slot(j, j->is->pieces + j->size) *
						block_bytes(j);
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
	uint8_t *to = two && !in_place ? j->recv : j->scratch + own_partials(j);

	TRY(make_direct(j, from, to, &items[0]));
	*n = 1;
	for (uint32_t r = 0; r < (uint32_t)is->comm->ranks; r++)
		if (is->of[r] != is->mine && is_mine(j, is->index[r]))
			add_sent(j, &items[0], r, j->count, partial_at(j, r));
	for (uint32_t i = 0; i < is->islands; i++)
		if (i != is->mine)
			add_received(j, &items[0], island_owner(is, i, j->me),
				     j->count, got++ * block_bytes(j));
	if (!two) {
		TRY(make_direct(j, from, j->recv, &items[1]));
		*n = 2;
	}
	if (!two && !in_place) {
		add_sent(j, &items[1], me, j->count, partial_at(j, me));
		add_received(j, &items[1], me, j->count, 0);
	}
	for (uint32_t i = 0; i < got; i++)
		make_sum(j,
			 two && !in_place ? from + partial_at(j, me)
					  : to + i * block_bytes(j),
			 j->recv, j->count, i + 1 == got, &items[(*n)++]);
	return DICOMM_SUCCESS;
}

static dicomm_result_t make_direct_calls(const struct job *j,
					 struct item *items, uint32_t *n)
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

/* ---- between equal islands, or piece by piece ---- */

static dicomm_result_t fill_piece(const struct job *j, uint32_t piece,
				  struct call *call, size_t **counts)
{
	size_t at = cut(j, piece) * j->elem;

	(void)counts;
	call->count = length(j, piece);
	call->recv = sum_of(j, piece);
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
					      stride_bytes(j)
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
	size_t displs[is->islands], bytes = block_bytes(j);
	bool own = is->index[is->comm->rank] == number;

	for (uint32_t i = 0; i < is->islands; i++) {
		if (number >= is->size[i])
			displs[i] = 0;
		else if (island_job_is_alone(j))
			displs[i] = is->rank[is->first[i] + number] *
				    stride_bytes(j);
		else
			displs[i] = (first_slot(j, number) +
				     numbered(is, number, i)) *
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

/* Most calls between islands */
static uint32_t most_calls(const struct job *j)
{
	return j->is->pieces + j->is->islands + 1;
}

/* Makes the calls between islands: `items` has room for the most. */
static dicomm_result_t make_calls(const struct job *j, struct item *items,
				  uint32_t *n)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	*n = 0;
	for (uint32_t i = 0; i < most_calls(j); i++)
		items[i] = (struct item){.comm = j->is->comm};
	if (is_direct(j)) {
		status = make_direct_calls(j, items, n);
		while (status != DICOMM_SUCCESS && *n)
			free(items[--*n].counts);
		return status;
	}
	while (*n < j->is->rounds && status == DICOMM_SUCCESS) {
		status = make_call(j, *n, fill_of(j), &items[*n].call,
				   &items[*n].counts);
		*n += status == DICOMM_SUCCESS;
	}
	while (status != DICOMM_SUCCESS && *n)
		free(items[--*n].counts);
	return status;
}

dicomm_result_t island_steps_between(const struct job *j)
{
	struct item items[most_calls(j)];
	dicomm_result_t status, ended;
	uint32_t n;

	TRY(island_job_missed(j, make_calls(j, items, &n)));
	if (n == 1)
		return island_job_missed(
			j, group_call(j->is->comm, &items[0].call,
				      items[0].counts, j->stream));
	status = dicomm_group_start();
	for (uint32_t i = 0; i < n; i++)
		if (status == DICOMM_SUCCESS)
			status = group_call(j->is->comm, &items[i].call,
					    items[i].counts, j->stream);
		else
			free(items[i].counts);
	island_job_missed(j, status);
	ended = dicomm_group_end();
	return status != DICOMM_SUCCESS ? status : ended;
}

dicomm_result_t island_steps_begin(const struct job *j,
				   struct island_part **part)
{
	struct item items[most_calls(j)];
	dicomm_result_t status;
	uint32_t n;

	status = make_calls(j, items, &n);
	if (status == DICOMM_SUCCESS)
		status = island_part_begin(&j->is->parts, items, n, j->stream,
					   part);
	return island_job_missed(j, status);
}

/* ---- the collectives ---- */

size_t island_steps_scratch(const struct job *j)
{
	if ((j->coll == COLL_REDUCE && j->is->comm->rank != j->root) ||
	    (swaps(j) && !adds_own(j)))
		return ((j->is->pieces - 1) / j->size + 1) * room(j);
	if (j->coll == COLL_REDUCE_SCATTER)
		return own_partials(j) +
		       (is_direct(j) ? j->is->islands - 1 : 0) * block_bytes(j);
	return 0;
}

static bool is_home(const struct job *j)
{
	return j->is->of[j->root] == j->is->mine;
}

island_queue_fn *island_steps_before(const struct job *j)
{
	switch (j->coll) {
	case COLL_ALLREDUCE:
	case COLL_REDUCE:
		return queue_reduce_scatter;
	case COLL_BROADCAST:
		return is_home(j) ? queue_broadcast : NULL;
	case COLL_REDUCE_SCATTER:
		return queue_block_sums;
	default:
		return NULL;
	}
}

island_queue_fn *island_steps_after(const struct job *j)
{
	switch (j->coll) {
	case COLL_ALLREDUCE:
		return queue_allgather;
	case COLL_REDUCE:
		return is_home(j) ? queue_to_root : NULL;
	case COLL_BROADCAST:
		return is_home(j) ? NULL : queue_allgather;
	case COLL_ALLGATHER:
		return queue_blocks;
	default:
		return NULL;
	}
}
