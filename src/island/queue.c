/* SPDX-License-Identifier: BSD-3-Clause */
/* What the vendor's library does of a collective inside islands. */
#include "src/island/queue.h"

#include "src/island/block.h"
#include "src/island/piece.h"

/* Are all pieces as long as each other, with one for each rank? */
static bool is_even(const struct job *j)
{
	return j->size == j->is->pieces && !(j->count % j->is->pieces);
}

int island_queue_reduce_scatter(struct job *j)
{
	int op = island_job_op(j), type = (int)j->type, result = VENDOR_SUCCESS;

	j->what = "ncclReduceScatter";
	if (is_even(j))
		return j->f->reduce_scatter(j->send, island_piece_sum(j, j->me),
					    island_piece_length(j, 0), type, op,
					    j->vendor, j->stream);
	for (uint32_t p = 0; p < j->is->pieces && result == VENDOR_SUCCESS; p++)
		result = j->f->reduce(j->send + island_piece_at(j, p) * j->elem,
				      island_piece_sum(j, p),
				      island_piece_length(j, p), type, op,
				      (int)(p % j->size), j->vendor, j->stream);
	return result;
}

int island_queue_allgather(struct job *j)
{
	int type = (int)j->type, result = VENDOR_SUCCESS;

	j->what = "ncclAllGather";
	if (is_even(j))
		return j->f->allgather(
			j->recv + island_piece_at(j, j->me) * j->elem, j->recv,
			island_piece_length(j, 0), type, j->vendor, j->stream);
	for (uint32_t p = 0; p < j->is->pieces && result == VENDOR_SUCCESS;
	     p++) {
		uint8_t *at = j->recv + island_piece_at(j, p) * j->elem;

		result = j->f->broadcast(at, at, island_piece_length(j, p),
					 type, (int)(p % j->size), j->vendor,
					 j->stream);
	}
	return result;
}

int island_queue_broadcast(struct job *j)
{
	bool root = j->is->comm->rank == j->root;

	j->what = "ncclBroadcast";
	return j->f->broadcast(root ? j->send : j->recv, j->recv, j->count,
			       (int)j->type, (int)j->is->index[j->root],
			       j->vendor, j->stream);
}

int island_queue_to_root(struct job *j)
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
			result = j->f->recv(
				j->recv + island_piece_at(j, p) * j->elem,
				island_piece_length(j, p), (int)j->type,
				(int)owner, j->vendor, j->stream);
		else if (j->me == owner)
			result = j->f->send(island_piece_sum(j, p),
					    island_piece_length(j, p),
					    (int)j->type, (int)root, j->vendor,
					    j->stream);
	}
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

		if (island_piece_is_mine(j, n))
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
