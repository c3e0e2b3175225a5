/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ordered all-reduce. Rank r gathers part r of all inputs, reduces the N parts
 * in rank order, and sends the result to all ranks. The bits of the result
 * depend neither on the size nor on timing.
 *
 * Hops     2
 * Sent     2 S (N - 1) / N bytes per rank, for N ranks and S bytes
 * Memory   N slices
 * Best     deterministic mode
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	struct span in = shape_input(p, s, plan_block(PLAN_SEND, 0), recv);
	struct span mine = shape_part(s, recv, s->rank);
	uint32_t gathered = plan_scratch(p, (uint32_t)s->ranks);

	for (int k = 1; k < s->ranks; k++) {
		int to = shape_rank(s, s->rank + k);

		plan_send(p, to, shape_part(s, in, to));
	}
	for (int k = 1; k < s->ranks; k++) {
		uint32_t from = (uint32_t)shape_rank(s, s->rank - k);

		plan_recv(p, (int)from,
			  shape_part(s,
				     plan_block(PLAN_SCRATCH, gathered + from),
				     s->rank));
	}
	plan_fold(p, mine, shape_part(s, in, s->rank), gathered,
		  (uint32_t)s->ranks);
	shape_result(p, s, mine);
	for (int k = 1; k < s->ranks; k++)
		plan_send(p, shape_rank(s, s->rank + k), mine);
	for (int k = 1; k < s->ranks; k++) {
		int from = shape_rank(s, s->rank - k);

		plan_recv(p, from, shape_part(s, recv, from));
	}
}

const struct algorithm allreduce_ordered = {
	.coll = COLL_ALLREDUCE,
	.name = "ordered",
	.deterministic = true,
	.serves = shape_any,
	.build = build,
	.work = work_ordered,
};
