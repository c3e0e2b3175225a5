/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct (one-shot) all-reduce. Each rank sends its input to all others and
 * reduces all inputs itself, in rank order, so that all ranks get the same
 * bits.
 *
 * Hops     1
 * Sent     S (N - 1) per rank, for N ranks and S bytes
 * Memory   a slice if in place or scaled
 * Best     a few bytes: the latency is that of one hop; two ranks of a machine
 */
#include "collectives/plan/algorithm.h"

/* Returns an input that no step overwrites. A receiver may read this rank's
 * input in place, so a step that overwrites it waits until all receivers have
 * read it. If all ranks waited like that, none would go on. */
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

	/* The order is ((0 op 1) op 2) ... Operators commute, so the first two
	 * inputs may be swapped. */
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
	/* This grows with the square of the number of ranks, so it may
	 * overflow. */
	if (__builtin_mul_overflow(2 * others * (uint64_t)s->ranks, bytes,
				   &w->total_bytes))
		w->total_bytes = UINT64_MAX;
}

const struct algorithm allreduce_direct = {
	.coll = COLL_ALLREDUCE,
	.name = "direct",
	.serves = shape_any,
	.build = build,
	.work = work,
};
