/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct reduce: everybody sends to the root, which reduces.
 *
 * Hops     1
 * Sent     S per rank; the root receives and reduces S (N - 1)
 * Memory   a slice if scaled
 * Best     small S or few ranks
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span send = plan_block(PLAN_SEND, 0);
	struct span recv = plan_block(PLAN_RECV, 0);
	struct span in;

	if (s->rank != s->root) {
		struct span to =
			plan_block(PLAN_SCRATCH, plan_scratch(p, s->prescale));

		plan_send(p, s->root, shape_input(p, s, send, to));
		return;
	}
	in = shape_input(p, s, send, recv);
	for (int k = 1; k < s->ranks; k++)
		plan_recv_reduce(p, shape_rank(s, s->root + k), recv,
				 k == 1 ? in : recv);
	shape_result(p, s, recv);
}

const struct algorithm reduce_direct = {
	.coll = COLL_REDUCE,
	.name = "direct",
	.serves = shape_any,
	.build = build,
	.work = work_direct,
};
