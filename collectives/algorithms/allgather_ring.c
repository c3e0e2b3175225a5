/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring all-gather: each rank passes on to the next one what it receives.
 *
 * Hops     N - 1, for N ranks
 * Sent     S (N - 1) / N bytes per rank, for S bytes of result
 * Memory   none
 * Best     large S over links that a rank can use one at a time
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	int next = shape_on_path(s, 1), prev = shape_on_path(s, -1);
	struct span now = plan_block(PLAN_SEND, 0);

	for (int k = 1; k < s->ranks; k++) {
		plan_send(p, next, now);
		if (k == 1)
			plan_copy(p, plan_block(PLAN_RECV, (uint32_t)s->rank),
				  now);
		now = plan_block(PLAN_RECV, (uint32_t)shape_on_path(s, -k));
		plan_recv(p, prev, now);
	}
}

ALGORITHM_AND_V(allgather_ring, COLL_ALLGATHER, allgatherv_ring,
		COLL_ALLGATHERV, .name = "ring", .scratchless = true,
		.serves = shape_any, .build = build, .work = work_ring);
