/* SPDX-License-Identifier: BSD-3-Clause */
/* What the vendor's library does of a collective inside islands. */
#include "src/island/queue.h"

#include "src/island/block.h"
#include "src/island/piece.h"

/* Has each rank of the island as much of it? */
static bool is_even(const struct job *j, struct piece share)
{
	return !(share.length % j->size);
}

static int reduce_share(struct job *j, uint32_t nth)
{
	int op = island_job_op(j), type = (int)j->type, result = VENDOR_SUCCESS;
	struct piece share = island_piece_share(j, nth);

	if (is_even(j, share))
		return j->f->reduce_scatter(
			j->send + share.at * j->elem, island_piece_sum(j, nth),
			share.length / j->size, type, op, j->vendor, j->stream);
	for (uint32_t m = 0; m < j->size && result == VENDOR_SUCCESS; m++) {
		struct piece p = island_piece_near(j, nth, m);

		if (p.length)
			result = j->f->reduce(j->send + p.at * j->elem,
					      island_piece_sum(j, nth),
					      p.length, type, op, (int)m,
					      j->vendor, j->stream);
	}
	return result;
}

/* Queues all shares that have elements, one after the other. */
static int queue_shares(struct job *j, int (*queue)(struct job *, uint32_t nth))
{
	uint32_t shares = island_piece_shares(j);
	int result = VENDOR_SUCCESS;

	for (uint32_t s = 0; s < shares && result == VENDOR_SUCCESS; s++)
		if (island_piece_share(j, s).length)
			result = queue(j, s);
	return result;
}

int island_queue_reduce_scatter(struct job *j)
{
	j->what = "ncclReduceScatter";
	return queue_shares(j, reduce_share);
}

static int gather_share(struct job *j, uint32_t nth)
{
	struct piece share = island_piece_share(j, nth);
	int type = (int)j->type, result = VENDOR_SUCCESS;

	if (is_even(j, share))
		return j->f->allgather(
			j->recv + island_piece_near(j, nth, j->me).at * j->elem,
			j->recv + share.at * j->elem, share.length / j->size,
			type, j->vendor, j->stream);
	for (uint32_t m = 0; m < j->size && result == VENDOR_SUCCESS; m++) {
		struct piece p = island_piece_near(j, nth, m);
		uint8_t *at = j->recv + p.at * j->elem;

		if (p.length)
			result = j->f->broadcast(at, at, p.length, type, (int)m,
						 j->vendor, j->stream);
	}
	return result;
}

int island_queue_allgather(struct job *j)
{
	j->what = "ncclAllGather";
	return queue_shares(j, gather_share);
}

int island_queue_broadcast(struct job *j)
{
	bool root = j->is->comm->rank == j->root;

	j->what = "ncclBroadcast";
	return j->f->broadcast(root ? j->send : j->recv, j->recv, j->count,
			       (int)j->type, (int)j->is->index[j->root],
			       j->vendor, j->stream);
}

static int send_to_root(struct job *j, uint32_t share, uint32_t owner)
{
	struct piece p = island_piece_near(j, share, owner);
	uint32_t root = j->is->index[j->root];

	if (owner == root || !p.length)
		return VENDOR_SUCCESS;
	if (j->me == root)
		return j->f->recv(j->recv + p.at * j->elem, p.length,
				  (int)j->type, (int)owner, j->vendor,
				  j->stream);
	if (j->me == owner)
		return j->f->send(island_piece_sum(j, share), p.length,
				  (int)j->type, (int)root, j->vendor,
				  j->stream);
	return VENDOR_SUCCESS;
}

int island_queue_to_root(struct job *j)
{
	uint32_t shares = island_piece_shares(j);
	int result = VENDOR_SUCCESS;

	j->what = "ncclSend";
	for (uint32_t s = 0; s < shares; s++)
		for (uint32_t m = 0; m < j->size && result == VENDOR_SUCCESS;
		     m++)
			result = send_to_root(j, s, m);
	return result;
}

int island_queue_block_sums(struct job *j)
{
	const struct island *is = j->is;
	int result = VENDOR_SUCCESS;

	j->what = "ncclReduce";
	for (uint32_t r = 0;
	     r < (uint32_t)is->comm->ranks && result == VENDOR_SUCCESS; r++) {
		uint32_t n = is->index[r];
		uint8_t *to = j->scratch;

		if (n % j->size == j->me)
			to += (island_block_slot(j, n) +
			       island_block_before(is, n, is->of[r])) *
			      island_block_bytes(j);
		result = j->f->reduce(j->send + r * island_block_stride(j), to,
				      j->count, (int)j->type, island_job_op(j),
				      (int)(n % j->size), j->vendor, j->stream);
	}
	return result;
}

int island_queue_blocks(struct job *j)
{
	const struct island *is = j->is;
	bool even = is->equal && is->consecutive && j->count == j->stride;
	uint32_t step = even ? j->size : 1;
	int result = VENDOR_SUCCESS;

	j->what = "ncclAllGather";
	for (uint32_t r = 0;
	     r < (uint32_t)is->comm->ranks && result == VENDOR_SUCCESS;
	     r += step) {
		uint8_t *at = j->recv + r * island_block_stride(j);

		if (even)
			result = j->f->allgather(
				at + j->me * island_block_bytes(j), at,
				j->count, (int)j->type, j->vendor, j->stream);
		else
			result = j->f->broadcast(at, at, j->count, (int)j->type,
						 (int)(is->index[r] % j->size),
						 j->vendor, j->stream);
	}
	return result;
}
