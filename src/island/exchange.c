/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-to-all, also with counts for each rank. Blocks for ranks of other islands
 * go by this library directly, since each of them crosses the boundary once
 * anyway; those inside an island go by sends of the vendor's library at the
 * same time.
 *
 * Only two ranks know how long a block is. So it is chosen for each block: a
 * short one inside an island goes by this library, too.
 *
 * The vendor's library sends a part of each block at a time. In place, a part
 * is received into scratch, and copied when its group of sends has ended.
 */
#include "src/island/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/type.h"
#include "src/engine/engine.h"
#include "src/stream/submit.h"

/* A side of it: the blocks that are sent, or those that are received */
struct side {
	size_t *counts, *displs; /* in bytes both; [ranks] */
	size_t longest;          /* that goes by the vendor's library */
};

struct exchange {
	struct job job;
	struct side out, in;
	bool in_place;
	size_t from, most; /* where the part of each block begins; its length */
};

/* ---- inside an island ---- */

/* The bytes of a member's block in this part */
static size_t part_of(const struct exchange *x, const struct side *side,
		      uint32_t rank)
{
	size_t n = side->counts[rank];

	if (n <= x->from)
		return 0;
	return n - x->from < x->most ? n - x->from : x->most;
}

static uint32_t rank_of(const struct exchange *x, uint32_t member)
{
	const struct island *is = x->job.is;

	return is->rank[is->first[is->mine] + member];
}

static int queue_part(struct job *j)
{
	const struct exchange *x = (const struct exchange *)j;
	uint8_t *room = j->scratch;
	int result = VENDOR_SUCCESS;

	for (uint32_t m = 0; m < j->size && result == VENDOR_SUCCESS; m++) {
		uint32_t r = rank_of(x, m);
		size_t out = part_of(x, &x->out, r), in = part_of(x, &x->in, r);

		if (out)
			result = j->f->send(
				j->send + x->out.displs[r] + x->from, out,
				DICOMM_UINT8, (int)m, j->vendor, j->stream);
		if (!in || result != VENDOR_SUCCESS)
			continue;
		result = j->f->recv(
			x->in_place ? room
				    : j->recv + x->in.displs[r] + x->from,
			in, DICOMM_UINT8, (int)m, j->vendor, j->stream);
		room += x->in_place ? in : 0;
	}
	return result;
}

/* From scratch to their places: each is sent to this rank itself. */
static int queue_copies(struct job *j)
{
	const struct exchange *x = (const struct exchange *)j;
	const uint8_t *room = j->scratch;
	int result = VENDOR_SUCCESS;

	for (uint32_t m = 0; m < j->size && result == VENDOR_SUCCESS; m++) {
		uint32_t r = rank_of(x, m);
		size_t in = part_of(x, &x->in, r);

		if (!in)
			continue;
		result = j->f->send(room, in, DICOMM_UINT8, (int)j->me,
				    j->vendor, j->stream);
		if (result == VENDOR_SUCCESS)
			result = j->f->recv(j->recv + x->in.displs[r] + x->from,
					    in, DICOMM_UINT8, (int)j->me,
					    j->vendor, j->stream);
		room += in;
	}
	return result;
}

/* Both ranks of a block have its part in the same group, counted from the
 * first. */
static dicomm_result_t run_inside(struct exchange *x)
{
	struct job *j = &x->job;
	size_t longest = x->out.longest;

	if (x->in.longest > longest)
		longest = x->in.longest;
	for (x->from = 0; x->from < longest; x->from += x->most) {
		TRY(island_job_inside(j, queue_part, "ncclSend"));
		if (x->in_place && x->from < x->in.longest)
			TRY(island_job_inside(j, queue_copies, "ncclSend"));
	}
	return DICOMM_SUCCESS;
}

/* ---- all of it ---- */

/* Moves blocks of the call that go by the vendor's library to the side; the
 * call keeps the others. */
static void divide(const struct exchange *x, struct side *side, size_t *counts,
		   const size_t *displs, size_t elem)
{
	const struct island *is = x->job.is;

	for (uint32_t m = 0; m < x->job.size; m++) {
		uint32_t r = rank_of(x, m);
		size_t bytes = counts[r] * elem;

		if (m == x->job.me || bytes < is->least_block)
			continue;
		side->counts[r] = bytes;
		side->displs[r] = displs[r];
		counts[r] = 0;
		if (bytes > side->longest)
			side->longest = bytes;
	}
}

/* Bytes of scratch for a part */
static size_t scratch_bytes(struct exchange *x)
{
	size_t bytes = 0;

	x->from = 0;
	for (uint32_t m = 0; x->in_place && m < x->job.size; m++)
		bytes += part_of(x, &x->in, rank_of(x, m));
	return bytes;
}

static dicomm_result_t run_both(struct exchange *x, struct item *item)
{
	struct job *j = &x->job;
	struct dicomm_comm *comm = item->comm;
	struct island_part *part;
	dicomm_result_t status, ended;

	if (!x->out.longest && !x->in.longest)
		return group_call(comm, &item->call, item->counts, j->stream);
	/* Stops of parts in a graph would wait for each other. */
	if (j->captured) {
		TRY(island_job_missed(j, group_call(comm, &item->call,
						    item->counts, j->stream)));
		return run_inside(x);
	}
	TRY(island_job_missed(j, island_part_begin(&j->is->parts, item, 1,
						   j->stream, &part)));
	status = run_inside(x);
	ended = island_job_missed(j, island_part_end(part));
	return status != DICOMM_SUCCESS ? status : ended;
}

/* The numbers of a call with one count, as those of one with counts for each
 * rank; or a copy of those. */
static void list_blocks(const struct call *call, int ranks, size_t *room,
			struct call *out)
{
	size_t n = (size_t)ranks, bytes = call->count * type_bytes(call->type);

	out->function = COLL_ALLTOALLV;
	out->count = 0;
	for (size_t r = 0; r < n; r++) {
		bool each = call->send_counts;

		room[r] = each ? call->send_counts[r] : call->count;
		room[n + r] = each ? call->send_displs[r] : r * bytes;
		room[2 * n + r] = each ? call->recv_counts[r] : call->count;
		room[3 * n + r] = each ? call->recv_displs[r] : r * bytes;
	}
	out->send_counts = room;
	out->send_displs = room + n;
	out->recv_counts = room + 2 * n;
	out->recv_displs = room + 3 * n;
}

dicomm_result_t island_exchange(const struct job *j, const struct call *call)
{
	struct dicomm_comm *comm = j->is->comm;
	size_t n = (size_t)comm->ranks, bytes, elem = type_bytes(call->type);
	size_t *room = calloc(4 * n, sizeof(*room));
	size_t *inside = calloc(4 * n, sizeof(*inside));
	struct item item = {.comm = comm, .call = *call, .counts = room};
	struct exchange x = {
		.job = *j,
		.out = {inside, inside + n, 0},
		.in = {inside + 2 * n, inside + 3 * n, 0},
		.in_place = call_in_place(call, comm->rank, comm->ranks),
		.most = j->is->exchange_bytes};
	dicomm_result_t status;

	if (!room || !inside) {
		free(room);
		free(inside);
		return island_job_missed(
			j, FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory"));
	}
	list_blocks(call, comm->ranks, room, &item.call);
	divide(&x, &x.out, room, room + n, elem);
	divide(&x, &x.in, room + 2 * n, room + 3 * n, elem);
	bytes = scratch_bytes(&x);
	status = bytes ? island_job_missed(j, island_job_scratch(&x.job, bytes))
		       : DICOMM_SUCCESS;
	if (status == DICOMM_SUCCESS)
		status = run_both(&x, &item);
	else
		free(room);
	free(inside);
	return status;
}
