/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree broadcast.
 *
 * Hops     log2 N, rounded up, for N ranks
 * Sent     S log2 N by the root, for S bytes
 * Memory   none
 * Best     small S and many ranks
 */
#include "collectives/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	int me = shape_from_root(s, s->rank);
	struct span now = me == 0 ? plan_block(PLAN_SEND, 0) : recv;
	int d = 1;

	while (d < s->ranks && !(me & d))
		d *= 2;
	if (me != 0)
		plan_recv(p, shape_to_rank(s, me - d), recv);
	/* The child with the largest subtree first. */
	for (d /= 2; d >= 1; d /= 2)
		if (me + d < s->ranks)
			plan_send(p, shape_to_rank(s, me + d), now);
	if (me == 0)
		plan_copy(p, recv, now);
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t others = (uint64_t)s->ranks - 1;

	w->hops = shape_log2(s);
	w->messages = w->hops;
	w->message_bytes = bytes;
	w->wire_bytes = w->hops * bytes;
	w->copy_bytes = bytes;
	w->total_bytes = others * bytes + bytes;
	w->pipelined = true;
}

const struct algorithm broadcast_binomial = {
	.coll = COLL_BROADCAST,
	.name = "binomial",
	.scratchless = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
