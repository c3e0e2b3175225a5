/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring reduce-scatter: the sum of block b starts at rank b + 1 and goes round
 * to rank b, each rank adding its own.
 *
 * Hops     N - 1, for N ranks
 * Sent     S (N - 1) / N bytes per rank, for S bytes of input
 * Memory   two slices
 * Best     large S over links that a rank can use one at a time
 */
#include "collectives/plan/algorithm.h"

/* The next rank may still be reading the sum that this rank sends. Sums
 * alternate between two scratch blocks, so that the next write need not wait
 * for that. */
static struct span sum_of(const struct shape *s, uint32_t scratch, int round,
			  int block)
{
	if (block == s->rank)
		return plan_block(PLAN_RECV, 0);
	return plan_like(
		plan_block(PLAN_SCRATCH, scratch + (uint32_t)(round % 2)),
		(uint32_t)block);
}

static void build(struct plan *p, const struct shape *s)
{
	int next = shape_on_path(s, 1), prev = shape_on_path(s, -1);
	uint32_t scratch = plan_scratch(p, 2);
	struct span now;

	now = shape_input(p, s, plan_block(PLAN_SEND, (uint32_t)prev),
			  sum_of(s, scratch, 0, prev));
	for (int k = 1; k < s->ranks; k++) {
		int block = shape_on_path(s, -k - 1);
		struct span sum = sum_of(s, scratch, k, block);

		plan_send(p, next, now);
		now = shape_input(p, s, plan_block(PLAN_SEND, (uint32_t)block),
				  sum);
		plan_recv_reduce(p, prev, sum, now);
		now = sum;
	}
	shape_result(p, s, now);
}

ALGORITHM_AND_V(reduce_scatter_ring, COLL_REDUCE_SCATTER, reduce_scatterv_ring,
		COLL_REDUCE_SCATTERV, .name = "ring", .serves = shape_any,
		.build = build, .work = work_ring);
