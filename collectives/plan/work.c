/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs that several algorithms have in common. */
#include "collectives/plan/algorithm.h"

void work_direct(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t n = (uint64_t)s->ranks, others = n - 1;
	bool both = s->coll == COLL_ALLREDUCE, rooted = coll_rooted(s->coll);
	bool blocks = coll_has_blocks(s->coll);
	uint64_t each = blocks || both ? bytes / n : bytes;

	w->hops = 1;
	w->messages = (rooted ? 1u : 2u) * (uint32_t)others;
	w->message_bytes = each;
	w->wire_bytes = others * each;
	if (coll_reduces(s->coll)) {
		w->reduce_bytes = others * each;
		w->total_bytes = 2 * others * bytes;
	} else {
		w->copy_bytes = each;
		w->total_bytes = rooted && blocks ? bytes : n * bytes;
	}
	if (!both)
		return;
	w->hops *= 2;
	w->messages *= 2;
	/* Parts are rounded up to cache lines. */
	w->message_bytes += 64;
	w->wire_bytes *= 2;
	w->copy_bytes = others * each;
	w->total_bytes *= 2;
}

void work_ordered(const struct shape *s, uint64_t bytes, struct work *w)
{
	work_direct(s, bytes, w);
	w->copy_bytes += w->reduce_bytes;
	w->total_bytes += ((uint64_t)s->ranks - 1) * bytes;
}

void work_ring(const struct shape *s, uint64_t bytes, struct work *w)
{
	work_direct(s, bytes, w);
	w->near_hops = w->hops * shape_near_of_ring(s);
	w->hops *= (uint32_t)s->ranks - 1;
}

void work_doubling(const struct shape *s, uint64_t bytes, struct work *w)
{
	work_direct(s, bytes, w);
	w->hops = shape_log2(s);
	w->messages = 2 * w->hops;
	w->message_bytes = bytes / 2;
}

void work_subtrees(const struct shape *s, uint64_t bytes, struct work *w)
{
	work_direct(s, bytes, w);
	w->hops = shape_log2(s);
	w->messages = w->hops + 1;
	w->message_bytes *= (uint64_t)s->ranks / 2;
	w->total_bytes = bytes / 2 * (w->hops + 1);
}
