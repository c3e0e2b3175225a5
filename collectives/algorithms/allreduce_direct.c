/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct (one-shot) all-reduce: everybody sends its input to everybody, and
 * reduces all of them by itself, in rank order so that all get the same bits.
 *
 * Hops     1
 * Sent     S (N - 1) per rank, for N ranks and S bytes
 * Memory   a slice if in place or scaled
 * Best     a few bytes: one hop is all the latency there is
 */
#include "collectives/plan/algorithm.h"

/* A receiver may read what we send straight from our memory, so it must not be
 * overwritten before all have read it: none would ever go on. */
static struct span stable_input(struct plan *p, const struct shape *s)
{
	struct span send = plan_block(PLAN_SEND, 0);
	struct span copy;

	if (!s->prescale && !s->in_place)
		return send;
	copy = plan_block(PLAN_SCRATCH, plan_scratch(p, 1));
	if (!s->prescale)
		plan_copy(p, copy, send);
	return shape_input(p, s, s->prescale ? send : copy, copy);
}

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	struct span mine = stable_input(p, s);

	for (int k = 1; k < s->ranks; k++)
		plan_send(p, shape_rank(s, s->rank + k), mine);

	/* ((0 op 1) op 2) ...: operators commute, so that the first two may
	 * come in either order. */
	if (s->rank > 1)
		plan_recv(p, 0, recv);
	else
		plan_recv_reduce(p, 1 - s->rank, recv, mine);
	for (int r = s->rank > 1 ? 1 : 2; r < s->ranks; r++) {
		if (r == s->rank)
			plan_reduce(p, recv, recv, mine);
		else
			plan_recv_reduce(p, r, recv, recv);
	}
	shape_result(p, s, recv);
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t others = (uint64_t)s->ranks - 1;

	w->hops = 1;
	w->messages = 2 * (uint32_t)others;
	w->message_bytes = bytes;
	w->wire_bytes = others * bytes;
	w->reduce_bytes = others * bytes;
	/* By the square of ranks: it may be more than can be told. */
	if (__builtin_mul_overflow(2 * others * (uint64_t)s->ranks, bytes,
				   &w->total_bytes))
		w->total_bytes = UINT64_MAX;
	w->pipelined = true;
}

const struct algorithm allreduce_direct = {
	.coll = COLL_ALLREDUCE,
	.name = "direct",
	.serves = shape_any,
	.build = build,
	.work = work,
};
