/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ordered reduce. The root gathers all inputs and reduces them in rank order.
 *
 * Hops     1
 * Sent     S per rank; the root receives and reduces S (N - 1)
 * Memory   N slices at the root
 * Best     deterministic mode
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span send = plan_block(PLAN_SEND, 0);
	struct span recv = plan_block(PLAN_RECV, 0);
	uint32_t gathered;
	struct span in;

	if (s->rank != s->root) {
		struct span to =
			plan_block(PLAN_SCRATCH, plan_scratch(p, s->prescale));

		plan_send(p, s->root, shape_input(p, s, send, to));
		return;
	}
	gathered = plan_scratch(p, (uint32_t)s->ranks);
	in = shape_input(p, s, send, recv);
	for (int k = 1; k < s->ranks; k++) {
		uint32_t from = (uint32_t)shape_rank(s, s->root + k);

		plan_recv(p, (int)from,
			  plan_block(PLAN_SCRATCH, gathered + from));
	}
	plan_fold(p, recv, in, gathered, (uint32_t)s->ranks);
	shape_result(p, s, recv);
}

const struct algorithm reduce_ordered = {
	.coll = COLL_REDUCE,
	.name = "ordered",
	.deterministic = true,
	.serves = shape_any,
	.build = build,
	.work = work_ordered,
};
