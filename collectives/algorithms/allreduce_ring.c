/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring all-reduce: a reduce-scatter round the ring, then an all-gather.
 *
 * Hops     2 (N - 1), for N ranks
 * Sent     2 S (N - 1) / N bytes per rank, for S bytes
 * Memory   none
 * Best     large S over links that a rank can use one at a time
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	struct span in = shape_input(p, s, plan_block(PLAN_SEND, 0), recv);
	int next = shape_on_path(s, 1), prev = shape_on_path(s, -1);
	int r = shape_place(s);

	/* Reduce-scatter: round k leaves part r - k - 1 reduced over k + 2
	 * ranks, so the last one leaves part r + 1 complete. */
	for (int k = 0; k < s->ranks - 1; k++) {
		plan_send(p, next, shape_part(s, k == 0 ? in : recv, r - k));
		plan_recv_reduce(p, prev, shape_part(s, recv, r - k - 1),
				 shape_part(s, in, r - k - 1));
	}
	shape_result(p, s, shape_part(s, recv, r + 1));

	/* All-gather: pass complete parts on. */
	for (int k = 0; k < s->ranks - 1; k++) {
		plan_send(p, next, shape_part(s, recv, r - k + 1));
		plan_recv(p, prev, shape_part(s, recv, r - k));
	}
}

const struct algorithm allreduce_ring = {
	.coll = COLL_ALLREDUCE,
	.name = "ring",
	.scratchless = true,
	.serves = shape_any,
	.build = build,
	.work = work_ring,
};
