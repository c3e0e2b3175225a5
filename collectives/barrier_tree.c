/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tree barrier: a binomial gather to rank 0 of one byte from each rank, then a
 * binomial broadcast.
 *
 * Hops     2 log2 N, rounded up, for N ranks
 * Sent     a byte to each child, one for each rank of the subtree to the parent
 * Memory   2 N bytes at rank 0
 * Best     many more ranks than cores: 2 (N - 1) messages in all
 */
#include "collectives/algorithm.h"

/* Ranks in the subtree of a rank, if below d. */
static uint32_t subtree(const struct shape *s, int rank, int d)
{
	return (uint32_t)(d < s->ranks - rank ? d : s->ranks - rank);
}

static void build(struct plan *p, const struct shape *s)
{
	uint32_t n = (uint32_t)s->ranks;
	struct span go = plan_block(PLAN_SCRATCH, n);
	int me = s->rank, d;

	for (d = 1; d < s->ranks && !(me & d); d *= 2)
		if (me + d < s->ranks)
			plan_recv(p, me + d,
				  plan_blocks(PLAN_SCRATCH, (uint32_t)d,
					      subtree(s, me + d, d)));
	if (me == 0) {
		/* What goes down waits for all that came up. */
		plan_scratch(p, 2 * n);
		plan_copy(p, plan_blocks(PLAN_SCRATCH, n, n),
			  plan_blocks(PLAN_SCRATCH, 0, n));
	} else {
		plan_scratch(p, n + 1);
		plan_send(p, me - d,
			  plan_blocks(PLAN_SCRATCH, 0, subtree(s, me, d)));
		plan_recv(p, me - d, go);
	}
	for (d /= 2; d >= 1; d /= 2)
		if (me + d < s->ranks)
			plan_send(p, me + d, go);
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t others = (uint64_t)s->ranks - 1;

	(void)bytes;
	w->hops = 2 * shape_log2(s);
	w->messages = w->hops;
	w->message_bytes = (uint64_t)s->ranks / 2;
	w->wire_bytes = others;
	w->total_bytes = 2 * others;
}

const struct algorithm barrier_tree = {
	.coll = COLL_BARRIER,
	.name = "tree",
	.whole = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
