/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct reduce-scatter: everybody sends block r to rank r, which reduces.
 *
 * Hops     1
 * Sent     S (N - 1) / N bytes per rank, for N ranks and S bytes of input
 * Memory   a few slices if scaled
 * Best     where every rank reaches every other one at full speed
 */
#include "collectives/plan/algorithm.h"

/* Scratch blocks for scaled blocks that wait to be sent. ROOM of them do: block
 * k + ROOM is scaled when block k has left. */
#define ROOM 4

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	struct span mine = plan_block(PLAN_SEND, (uint32_t)s->rank);
	uint32_t scratch = plan_scratch(p, s->prescale ? ROOM : 0);

	for (int k = 1; k < s->ranks; k++) {
		int to = shape_rank(s, s->rank + k);
		struct span room =
			plan_block(PLAN_SCRATCH, scratch + (uint32_t)k % ROOM);

		plan_send(p, to,
			  shape_input(p, s, plan_block(PLAN_SEND, (uint32_t)to),
				      plan_like(room, (uint32_t)to)));
	}
	mine = shape_input(p, s, mine, recv);
	for (int k = 1; k < s->ranks; k++)
		plan_recv_reduce(p, shape_rank(s, s->rank - k), recv,
				 k == 1 ? mine : recv);
	shape_result(p, s, recv);
}

ALGORITHM_AND_V(reduce_scatter_direct, COLL_REDUCE_SCATTER,
		reduce_scatterv_direct, COLL_REDUCE_SCATTERV, .name = "direct",
		.serves = shape_any, .build = build, .work = work_direct);
