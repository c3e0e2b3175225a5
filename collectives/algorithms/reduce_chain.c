/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chain reduce. Each rank adds its input to what it receives and passes the sum
 * on towards the root. Neighbours come first, as in the chain broadcast.
 *
 * Hops     N - 1, for N ranks
 * Sent     S per rank, for S bytes
 * Memory   a slice
 * Best     large S: each rank works on another slice at the same time
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span send = plan_block(PLAN_SEND, 0);
	int me = shape_chain_place(s);
	bool last = me == s->ranks - 1;
	struct span sum, now;

	if (me == 0)
		sum = plan_block(PLAN_RECV, 0);
	else
		sum = plan_block(PLAN_SCRATCH,
				 plan_scratch(p, !last || s->prescale));
	now = shape_input(p, s, send, sum);
	if (!last) {
		plan_recv_reduce(p, shape_chain_rank(s, me + 1), sum, now);
		now = sum;
	}
	if (me == 0)
		shape_result(p, s, now);
	else
		plan_send(p, shape_chain_rank(s, me - 1), now);
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	work_direct(s, bytes, w);
	w->hops = (uint32_t)s->ranks - 1;
	w->near_hops = shape_near_of_chain(s);
	w->messages = 2;
	w->wire_bytes = bytes;
	w->reduce_bytes = bytes;
}

const struct algorithm reduce_chain = {
	.coll = COLL_REDUCE,
	.name = "chain",
	.serves = shape_any,
	.build = build,
	.work = work,
};
