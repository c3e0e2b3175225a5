/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct all-gather: everybody sends its block to everybody.
 *
 * Hops     1
 * Sent     S (N - 1) / N bytes per rank, for N ranks and S bytes of result
 * Memory   none
 * Best     where every rank reaches every other one at full speed
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span mine = plan_block(PLAN_SEND, 0);

	for (int k = 1; k < s->ranks; k++)
		plan_send(p, shape_rank(s, s->rank + k), mine);
	plan_copy(p, plan_block(PLAN_RECV, (uint32_t)s->rank), mine);
	for (int k = 1; k < s->ranks; k++) {
		int from = shape_rank(s, s->rank - k);

		plan_recv(p, from, plan_block(PLAN_RECV, (uint32_t)from));
	}
}

ALGORITHM_AND_V(allgather_direct, COLL_ALLGATHER, allgatherv_direct,
		COLL_ALLGATHERV, .name = "direct", .scratchless = true,
		.serves = shape_any, .build = build, .work = work_direct);
