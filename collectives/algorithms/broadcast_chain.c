/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chain broadcast. Each rank passes on what it receives to the next rank, which
 * is a neighbour as long as there is one left. So the message enters each node
 * once, and each island of nodes once. Slow nodes come last, so that they need
 * not pass on one broadcast while they receive the next.
 *
 * Hops     N - 1, for N ranks
 * Sent     S per rank, for S bytes
 * Memory   none
 * Best     large S: each rank works on another slice at the same time
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	int me = shape_chain_place(s);

	if (me == 0) {
		plan_send(p, shape_chain_rank(s, 1), plan_block(PLAN_SEND, 0));
		plan_copy(p, recv, plan_block(PLAN_SEND, 0));
		return;
	}
	plan_recv(p, shape_chain_rank(s, me - 1), recv);
	if (me + 1 < s->ranks)
		plan_send(p, shape_chain_rank(s, me + 1), recv);
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	work_direct(s, bytes, w);
	w->hops = (uint32_t)s->ranks - 1;
	w->near_hops = shape_near_of_chain(s);
	w->messages = s->ranks > 2 ? 2 : 1;
	w->wire_bytes = bytes;
}

const struct algorithm broadcast_chain = {
	.coll = COLL_BROADCAST,
	.name = "chain",
	.scratchless = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
