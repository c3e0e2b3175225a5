/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct scatter: the root sends everybody its block.
 *
 * Hops     1
 * Sent     S (N - 1) / N bytes by the root, for N ranks and S bytes of input
 * Memory   none
 * Best     anything but tiny blocks to many ranks
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);

	if (s->rank != s->root) {
		plan_recv(p, s->root, recv);
		return;
	}
	for (int k = 1; k < s->ranks; k++) {
		int to = shape_rank(s, s->root + k);

		plan_send(p, to, plan_block(PLAN_SEND, (uint32_t)to));
	}
	plan_copy(p, recv, plan_block(PLAN_SEND, (uint32_t)s->root));
}

ALGORITHM_AND_V(scatter_direct, COLL_SCATTER, scatterv_direct, COLL_SCATTERV,
		.name = "direct", .scratchless = true, .serves = shape_any,
		.build = build, .work = work_direct);
