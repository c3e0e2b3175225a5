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

/* ---- inside an island ---- */

/* The bytes of a member's block in this part */
static size_t part_of(const struct exchange *x,
		      const struct exchange_side *side, uint32_t rank)
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

	j->what = "ncclSend";
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

	j->what = "ncclSend";
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

size_t island_exchange_turns(const struct exchange *x)
{
	size_t longest = x->out.longest;

	if (x->in.longest > longest)
		longest = x->in.longest;
	return longest / x->most + (longest % x->most != 0);
}

/* Both ranks of a block have its part in the same group, counted from the
 * first. */
island_queue_fn *island_exchange_send(struct exchange *x, size_t turn)
{
	if (turn >= island_exchange_turns(x))
		return NULL;
	x->from = turn * x->most;
	return queue_part;
}

island_queue_fn *island_exchange_copy(struct exchange *x, size_t turn)
{
	if (!x->in_place || turn >= island_exchange_turns(x))
		return NULL;
	x->from = turn * x->most;
	return x->from < x->in.longest ? queue_copies : NULL;
}

/* ---- all of it ---- */

/* Moves blocks of the call that go by the vendor's library to the side; the
 * call keeps the others. */
static void divide(const struct exchange *x, struct exchange_side *side,
		   size_t *counts, const size_t *displs, size_t elem)
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

bool island_exchange_waits(const struct exchange *x)
{
	return x->job.captured || !island_exchange_turns(x);
}

dicomm_result_t island_exchange_begin(struct exchange *x)
{
	struct job *j = &x->job;
	struct item item = x->others;
	dicomm_result_t status;

	x->others.counts = NULL;
	if (island_exchange_waits(x))
		status = group_call(item.comm, &item.call, item.counts,
				    j->stream);
	else
		status = island_part_begin(&j->is->parts, &item, 1, j->stream,
					   &x->part);
	return island_job_missed(j, status);
}

dicomm_result_t island_exchange_end(struct exchange *x)
{
	struct island_part *part = x->part;

	x->part = NULL;
	return part ? island_job_missed(&x->job, island_part_end(part))
		    : DICOMM_SUCCESS;
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

static dicomm_result_t fill(struct exchange *x, const struct call *call)
{
	struct dicomm_comm *comm = x->job.is->comm;
	size_t n = (size_t)comm->ranks, elem = type_bytes(call->type), bytes;
	size_t *room = calloc(4 * n, sizeof(*room));
	size_t *inside = calloc(4 * n, sizeof(*inside));

	x->others = (struct item){.comm = comm, .call = *call, .counts = room};
	x->inside = inside;
	if (!room || !inside)
		return FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
	x->out = (struct exchange_side){inside, inside + n, 0};
	x->in = (struct exchange_side){inside + 2 * n, inside + 3 * n, 0};
	x->in_place = call_in_place(call, comm->rank, comm->ranks);
	x->most = x->job.is->exchange_bytes;
	list_blocks(call, comm->ranks, room, &x->others.call);
	divide(x, &x->out, room, room + n, elem);
	divide(x, &x->in, room + 2 * n, room + 3 * n, elem);
	bytes = scratch_bytes(x);
	return bytes ? island_job_scratch(&x->job, bytes) : DICOMM_SUCCESS;
}

dicomm_result_t island_exchange_make(const struct job *j,
				     const struct call *call,
				     struct exchange **out)
{
	struct exchange *x = calloc(1, sizeof(*x));
	dicomm_result_t status;

	if (!x)
		return FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
	x->job = *j;
	status = fill(x, call);
	if (status == DICOMM_SUCCESS)
		*out = x;
	else
		island_exchange_free(x);
	return status;
}

void island_exchange_free(struct exchange *x)
{
	if (!x)
		return;
	free(x->others.counts);
	free(x->inside);
	free(x);
}
