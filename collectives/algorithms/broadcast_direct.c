/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct broadcast: the root sends to everybody.
 *
 * Hops     1
 * Sent     S (N - 1) by the root, for N ranks and S bytes
 * Memory   none
 * Best     few ranks, or small S
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);

	if (s->rank != s->root) {
		plan_recv(p, s->root, recv);
		return;
	}
	for (int k = 1; k < s->ranks; k++)
		plan_send(p, shape_rank(s, s->root + k),
			  plan_block(PLAN_SEND, 0));
	plan_copy(p, recv, plan_block(PLAN_SEND, 0));
}

const struct algorithm broadcast_direct = {
	.coll = COLL_BROADCAST,
	.name = "direct",
	.scratchless = true,
	.serves = shape_any,
	.build = build,
	.work = work_direct,
};
