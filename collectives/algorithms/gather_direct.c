/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct gather: everybody sends its block to the root.
 *
 * Hops     1
 * Sent     S / N bytes per rank, for N ranks and S bytes of result
 * Memory   none
 * Best     anything but tiny blocks from many ranks
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span mine = plan_block(PLAN_SEND, 0);

	if (s->rank != s->root) {
		plan_send(p, s->root, mine);
		return;
	}
	plan_copy(p, plan_block(PLAN_RECV, (uint32_t)s->root), mine);
	for (int k = 1; k < s->ranks; k++) {
		int from = shape_rank(s, s->root + k);

		plan_recv(p, from, plan_block(PLAN_RECV, (uint32_t)from));
	}
}

ALGORITHM_AND_V(gather_direct, COLL_GATHER, gatherv_direct, COLL_GATHERV,
		.name = "direct", .scratchless = true, .serves = shape_any,
		.build = build, .work = work_direct);
