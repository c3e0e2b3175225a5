/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the spans of a prepared call lie in its buffers. */
#include "src/engine/prepared.h"

#include <string.h>

#include "src/base/type.h"

/* Is each block received into where it is sent from? */
static bool same_blocks(const struct call *call, int ranks)
{
	size_t bytes = (size_t)ranks * sizeof(size_t);

	return call->send == call->recv &&
	       !memcmp(call->send_counts, call->recv_counts, bytes) &&
	       !memcmp(call->send_displs, call->recv_displs, bytes);
}

bool call_in_place(const struct call *call, int rank, int ranks)
{
	const char *send = call->send, *recv = call->recv;
	size_t block = call->count * type_bytes(call->type);

	switch (call->function) {
	case COLL_ALLREDUCE:
	case COLL_ALLTOALL:
		return send == recv;
	case COLL_ALLTOALLV:
		return same_blocks(call, ranks);
	case COLL_REDUCE:
	case COLL_BROADCAST:
		return rank == call->root && send == recv;
	case COLL_ALLGATHER:
		return send == recv + (size_t)rank * block;
	case COLL_GATHER:
		return rank == call->root &&
		       send == recv + (size_t)rank * block;
	case COLL_REDUCE_SCATTER:
		return recv == send + (size_t)rank * block;
	case COLL_SCATTER:
		return rank == call->root &&
		       recv == send + (size_t)rank * block;
	case COLL_ALLGATHERV:
		return send == recv + call->recv_displs[rank];
	case COLL_REDUCE_SCATTERV:
		return recv == send + call->send_displs[rank];
	case COLL_GATHERV:
		return rank == call->root &&
		       send == recv + call->recv_displs[rank];
	case COLL_SCATTERV:
		return rank == call->root &&
		       recv == send + call->send_displs[rank];
	default:
		return false;
	}
}

size_t call_elem_bytes(const struct call *call)
{
	return call->function == COLL_BARRIER ? 1 : type_bytes(call->type);
}

/* Position and length of a block in a buffer */
static struct extent block_of(const struct call *call, enum plan_buffer buffer,
			      uint32_t block, size_t elem)
{
	if (buffer == PLAN_SEND && call->send_counts)
		return (struct extent){call->send_displs[block],
				       call->send_counts[block]};
	if (buffer == PLAN_RECV && call->recv_counts)
		return (struct extent){call->recv_displs[block],
				       call->recv_counts[block]};
	return (struct extent){block * call->count * elem, call->count};
}

/* Elements of a block of scratch. Where ranks know counts in pairs, only what
 * is sent passes through scratch. */
static uint64_t scratch_count(const struct prepared *prep,
			      const struct call *call, const struct span *s)
{
	if (call->counts)
		return call->counts[s->like];
	if (call->function == COLL_ALLTOALLV)
		return call->send_counts[s->like];
	return prep->longest;
}

void call_touches(const struct call *call, int rank, int ranks,
		  enum plan_buffer buffer, size_t *first, size_t *bytes)
{
	size_t begin = SIZE_MAX, end = 0, elem = call_elem_bytes(call);
	uint32_t send, recv, blocks;

	call_layout(call->function, rank, ranks, call->root, &send, &recv);
	blocks = buffer == PLAN_SEND ? send : recv;
	for (uint32_t b = 0; b < blocks; b++) {
		struct extent x = block_of(call, buffer, b, elem);

		if (x.n && x.at < begin)
			begin = x.at;
		if (x.n && x.at + x.n * elem > end)
			end = x.at + x.n * elem;
	}
	if (begin > end)
		begin = end;
	*first = begin;
	*bytes = end - begin;
}

uint64_t prepared_block(const struct prepared *prep, const struct call *call,
			const struct span *s)
{
	if (s->buffer == PLAN_SCRATCH)
		return scratch_count(prep, call, s);
	return block_of(call, (enum plan_buffer)s->buffer, s->block,
			prep->elem_bytes)
		.n;
}

struct extent prepared_extent(const struct prepared *prep,
			      const struct call *call, const struct span *s,
			      uint64_t k)
{
	struct extent x;
	uint64_t begin = k * prep->slice;
	size_t elem = prep->elem_bytes, first;

	if (s->buffer == PLAN_SCRATCH) {
		x.at = (k % prep->window * prep->plan.scratch_blocks +
			s->block) *
		       prep->slice * elem;
		x.n = scratch_count(prep, call, s);
	} else {
		x = block_of(call, (enum plan_buffer)s->buffer, s->block, elem);
	}
	if (s->nblocks > 1)
		return (struct extent){x.at, x.n * s->nblocks};
	x.n = begin < x.n ? x.n - begin : 0;
	if (x.n > prep->slice)
		x.n = prep->slice;
	if (s->buffer != PLAN_SCRATCH)
		x.at += begin * elem;
	if (s->parts == 1)
		return x;
	plan_split(x.n, s->lo, s->hi, s->parts, prep->align, &first, &x.n);
	x.at += first * elem;
	return x;
}
