/* SPDX-License-Identifier: BSD-3-Clause */
/* Predicted time of an algorithm, in integers. */
#include "collectives/select/estimate.h"

#include "collectives/plan/schedule.h"
#include "collectives/select/link_cost.h"

#define PS_PER_S UINT64_C(1000000000000)
/* Within a node, several hops take one part in so many longer: who waits for
 * what waits itself is late on a busy machine, and predictions are no better
 * than that. Two ranks all-reduce large messages in one hop as fast as in two,
 * or faster; mapped, in half the time
 * (perftest/results/2026-11-24-two-cores.md). */
#define HOPS_LATE 16
/* Between nodes, one part in so many where slices return: a flow that waits for
 * another has nothing in store to make up with for what it lost on its way. By
 * a tree over unlike ways it is 0 to 15 per cent, more for longer messages
 * (perftest/results/2026-11-25-uneven-links.md). */
#define RETURN_LATE 32

/* No buffer is as long as that; of thousands of ranks, work() would overflow a
 * bit beyond it. */
#define BYTES_MOST (UINT64_C(1) << 44)

typedef unsigned __int128 wide;

/* Far beyond any time that is compared, far below overflow of a few sums. */
#define LONGEST ((wide)UINT64_MAX / 2)

static wide bounded(wide x)
{
	return x < LONGEST ? x : LONGEST;
}

static wide transfer_ps(uint64_t bytes, uint64_t bytes_per_s)
{
	if (bytes == 0)
		return 0;
	if (bytes_per_s == 0)
		return LONGEST;
	return bounded(((wide)bytes * PS_PER_S + bytes_per_s - 1) /
		       bytes_per_s);
}

static wide larger(wide a, wide b)
{
	return a > b ? a : b;
}

/* A rank that waits for one on its own core must let it run first. */
static wide hop_ps(const struct estimate_params *e)
{
	uint64_t yield_ps = e->yield_ps ? e->yield_ps : e->latency_ps;

	if (e->node_cores == 0 || e->node_ranks <= e->node_cores)
		return e->latency_ps;
	return e->latency_ps +
	       (wide)((e->node_ranks - 1) / e->node_cores) * yield_ps;
}

static void work_of(const struct algorithm *a, const struct shape *s,
		    uint64_t bytes, struct work *w)
{
	*w = (struct work){0};
	/* A rank on its own copies at most; algorithms see two at least. */
	if (s->ranks > 1)
		a->work(s, bytes, w);
	else
		w->copy_bytes = bytes;
}

uint64_t estimate_message_bytes(const struct algorithm *a,
				const struct shape *s, uint64_t bytes)
{
	struct work w;

	work_of(a, s, bytes, &w);
	return w.message_bytes;
}

/*
 * With more ranks than cores, the cores share the work of all ranks.
 * An upper bound for copies and reductions alike: they stream through memory.
 */
static wide shared_ps(const struct estimate_params *e, const struct shape *s,
		      const struct work *w, uint64_t slices)
{
	uint64_t ranks = (uint64_t)s->ranks;
	wide messages = (wide)w->messages * slices * ranks;

	if (e->node_cores == 0 || e->node_ranks <= e->node_cores)
		return 0;
	return bounded((transfer_ps(w->total_bytes, e->copy_bytes_per_s) +
			bounded(messages * e->per_message_ps)) /
		       e->node_cores);
}

static uint64_t slices_of(const struct estimate_params *e,
			  const struct algorithm *a, const struct work *w)
{
	bool slotless = e->slice_bytes && a->scratchless;
	uint64_t most = slotless ? e->slice_bytes : e->slot_bytes, slice;

	if (a->whole || !w->message_bytes)
		return 1;
	/* All blocks of an alltoallv may be as long as that one. */
	slice = a->coll == COLL_ALLTOALLV
			? most
			: schedule_slice_bytes(w->message_bytes, most,
					       slotless);
	if (!slice)
		slice = 1;
	return w->message_bytes / slice + (w->message_bytes % slice != 0);
}

/* On several nodes: the fullest pipe, or the busiest rank, sets the pace. */
static uint64_t linked_ps(const struct estimate_params *e,
			  const struct algorithm *a, const struct shape *s,
			  uint64_t bytes)
{
	struct link_cost t;
	struct work w;
	uint64_t slices, far, chunk;
	wide ranks, busy, hops, passing, total;

	/* First: work() of groups fails quietly, and has them after that. */
	if (link_cost_of(e, a, s, &t) != DICOMM_SUCCESS)
		return ESTIMATE_FAILED;
	work_of(a, s, bytes, &w);
	slices = slices_of(e, a, &w);
	far = w.hops - w.near_hops;
	hops = (wide)far * t.latency_ps + (wide)w.near_hops * hop_ps(e);
	chunk = w.message_bytes / slices;
	passing = (wide)far * link_cost_scaled(t.hop_ps, chunk) +
		  (wide)w.near_hops * link_cost_scaled(t.near_hop_ps, chunk);
	ranks = link_cost_scaled(t.rank_ps, bytes) +
		(wide)t.message_ps * slices;
	busy = bounded(larger(link_cost_scaled(t.pipe_ps, bytes), ranks));
	total = hops + larger(passing, busy / slices) +
		busy / slices * (slices - 1);
	if (w.returns)
		total += total / RETURN_LATE;
	return (uint64_t)bounded(total);
}

/*
 * The first slice goes all the way, hop by hop, unless the busiest rank needs
 * longer for its share of it; the others follow as fast as that rank works.
 */
uint64_t estimate_ps(const struct estimate_params *e, const struct algorithm *a,
		     const struct shape *s, uint64_t bytes)
{
	uint64_t slices, chunk;
	wide hop = hop_ps(e), one_hop, busy, first, total;
	struct work w;

	/* It sends single bytes, of whatever size it is asked. */
	if (s->coll == COLL_BARRIER)
		bytes = 1;
	if (bytes > BYTES_MOST)
		bytes = BYTES_MOST;
	if (links_matter(s->links))
		return linked_ps(e, a, s, bytes);
	work_of(a, s, bytes, &w);
	slices = slices_of(e, a, &w);
	chunk = w.message_bytes / slices;

	one_hop = hop + 2 * e->per_message_ps +
		  transfer_ps(chunk, e->bytes_per_s);
	if (w.reduce_bytes > 0)
		one_hop += transfer_ps(chunk, e->reduce_bytes_per_s);
	busy = bounded(transfer_ps(w.wire_bytes, e->bytes_per_s) +
		       transfer_ps(w.reduce_bytes, e->reduce_bytes_per_s) +
		       transfer_ps(w.copy_bytes, e->copy_bytes_per_s) +
		       (wide)w.messages * slices * e->per_message_ps);

	if (w.pipelined)
		first = larger(w.hops * one_hop,
			       (w.hops > 0 ? hop : 0) + busy / slices);
	else
		first = w.hops * hop + busy / slices;
	total = first + busy / slices * (slices - 1);
	total = larger(total, w.hops * hop + shared_ps(e, s, &w, slices));
	if (w.hops > 1)
		total += total / HOPS_LATE;
	return (uint64_t)bounded(total);
}
