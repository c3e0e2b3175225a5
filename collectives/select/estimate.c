/* SPDX-License-Identifier: BSD-3-Clause */
/* Predicts the time of an algorithm, in integers. */
#include "collectives/select/estimate.h"

#include "collectives/plan/schedule.h"
#include "collectives/select/link_cost.h"

#define PS_PER_S UINT64_C(1000000000000)
/* Within a node, an algorithm with several hops takes 1/HOPS_LATE longer. On a
 * busy machine the delays in a chain of waiting ranks add up, and predictions
 * are no more exact than that. Measured: two ranks all-reduce large messages in
 * one hop at least as fast as in two; if they map each other's memory, in half
 * the time (perftest/results/2026-11-24-two-cores.md, in git). */
#define HOPS_LATE 16
/* Between nodes, an algorithm in which slices return takes 1/RETURN_LATE
 * longer, because a flow that waits for another one cannot make up for lost
 * time. Measured: a tree over links of unlike rates takes 0 to 15 per cent
 * longer, more for longer messages
 * (perftest/results/2026-11-25-uneven-links.md). */
#define RETURN_LATE 32

/* No buffer is longer than this. Far beyond it, work() would overflow for
 * thousands of ranks. */
#define BYTES_MOST (UINT64_C(1) << 44)

typedef unsigned __int128 wide;

/* The time at which results saturate: far longer than any time that is
 * compared, yet a sum of a few of them does not overflow. */
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

/* The time of a hop. If ranks share cores, a rank that waits must let the other
 * ranks of its core run first. */
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
	/* A rank on its own only copies; algorithms see two ranks or more. */
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
 * The time of all work on a node, divided by its cores; 0 if each rank has its
 * own core. Copies and reductions count alike, as both stream through memory.
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
	/* Ranks that do not know the longest block cannot go by it. */
	slice = coll_counts_in_pairs(a->coll)
			? most
			: schedule_slice_bytes(w->message_bytes, most,
					       slotless);
	if (!slice)
		slice = 1;
	return w->message_bytes / slice + (w->message_bytes % slice != 0);
}

/* Predicts the time on several nodes: the most loaded link, or the busiest
 * rank, sets the pace. */
static uint64_t linked_ps(const struct estimate_params *e,
			  const struct algorithm *a, const struct shape *s,
			  uint64_t bytes)
{
	struct link_cost t;
	struct work w;
	uint64_t slices, far, chunk;
	wide ranks, busy, hops, passing, total;

	/* This comes first, because work() of grouped algorithms cannot report
	 * that there is no memory for groups. After this call, the groups
	 * exist. */
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
 * The first slice takes all hops one after the other, or as long as the busiest
 * rank needs for its part of it, whichever is longer. The other slices follow
 * at the pace of the busiest rank.
 */
uint64_t estimate_ps(const struct estimate_params *e, const struct algorithm *a,
		     const struct shape *s, uint64_t bytes)
{
	uint64_t slices, chunk;
	wide hop = hop_ps(e), one_hop, busy, first, total;
	struct work w;

	/* A barrier sends single bytes, whatever the caller passes. */
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

	if (a->whole)
		first = w.hops * hop + busy / slices;
	else
		first = larger(w.hops * one_hop,
			       (w.hops > 0 ? hop : 0) + busy / slices);
	total = first + busy / slices * (slices - 1);
	total = larger(total, w.hops * hop + shared_ps(e, s, &w, slices));
	if (w.hops > 1)
		total += total / HOPS_LATE;
	return (uint64_t)bounded(total);
}
