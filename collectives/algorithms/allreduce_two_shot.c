/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two-shot all-reduce. Rank r reduces part r of all inputs as it receives them,
 * and sends the result to all ranks.
 *
 * Hops     2
 * Sent     2 S (N - 1) / N bytes per rank, for N ranks and S bytes
 * Memory   none
 * Best     large S where every rank reaches every other one at full speed
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	struct span in = shape_input(p, s, plan_block(PLAN_SEND, 0), recv);
	struct span mine = shape_part(s, recv, s->rank);

	for (int k = 1; k < s->ranks; k++) {
		int to = shape_rank(s, s->rank + k);

		plan_send(p, to, shape_part(s, in, to));
	}
	for (int k = 1; k < s->ranks; k++)
		plan_recv_reduce(p, shape_rank(s, s->rank - k), mine,
				 k == 1 ? shape_part(s, in, s->rank) : mine);
	shape_result(p, s, mine);
	for (int k = 1; k < s->ranks; k++)
		plan_send(p, shape_rank(s, s->rank + k), mine);
	for (int k = 1; k < s->ranks; k++) {
		int from = shape_rank(s, s->rank - k);

		plan_recv(p, from, shape_part(s, recv, from));
	}
}

const struct algorithm allreduce_two_shot = {
	.coll = COLL_ALLREDUCE,
	.name = "two_shot",
	.scratchless = true,
	.serves = shape_any,
	.build = build,
	.work = work_direct,
};
