/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ordered reduce-scatter. Rank r gathers block r of all inputs and reduces the
 * N blocks in rank order.
 *
 * Hops     1
 * Sent     S (N - 1) / N bytes per rank, for N ranks and S bytes of input
 * Memory   N slices, a few more if scaled
 * Best     deterministic mode
 */
#include "collectives/plan/algorithm.h"

/* Scratch blocks for scaled blocks that wait to be sent. ROOM of them do: block
 * k + ROOM is scaled when block k has left. */
#define ROOM 4

static void build(struct plan *p, const struct shape *s)
{
	uint32_t me = (uint32_t)s->rank;
	struct span recv = plan_like(plan_block(PLAN_RECV, 0), me);
	uint32_t gathered = plan_scratch(p, (uint32_t)s->ranks);
	uint32_t scaled = plan_scratch(p, s->prescale ? ROOM : 0);

	for (int k = 1; k < s->ranks; k++) {
		uint32_t to = (uint32_t)shape_rank(s, s->rank + k);
		struct span room =
			plan_block(PLAN_SCRATCH, scaled + (uint32_t)k % ROOM);

		plan_send(p, (int)to,
			  shape_input(p, s, plan_block(PLAN_SEND, to),
				      plan_like(room, to)));
	}
	for (int k = 1; k < s->ranks; k++) {
		uint32_t from = (uint32_t)shape_rank(s, s->rank - k);

		plan_recv(p, (int)from,
			  plan_like(plan_block(PLAN_SCRATCH, gathered + from),
				    me));
	}
	plan_fold(p, recv, shape_input(p, s, plan_block(PLAN_SEND, me), recv),
		  gathered, (uint32_t)s->ranks);
	shape_result(p, s, recv);
}

ALGORITHM_AND_V(reduce_scatter_ordered, COLL_REDUCE_SCATTER,
		reduce_scatterv_ordered, COLL_REDUCE_SCATTERV,
		.name = "ordered", .deterministic = true, .serves = shape_any,
		.build = build, .work = work_ordered);
