/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive doubling all-gather: in each round, ranks that are twice as far
 * apart exchange all that they have.
 *
 * Hops     log2 N, for N ranks, a power of two
 * Sent     S (N - 1) / N bytes per rank, for S bytes of result
 * Memory   none
 * Best     small S and many ranks
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	uint32_t me = (uint32_t)s->rank;

	for (uint32_t d = 1; d < (uint32_t)s->ranks; d *= 2) {
		uint32_t mine = me / d * d, theirs = mine ^ d;
		int peer = (int)(me ^ d);

		plan_send(p, peer,
			  d == 1 ? plan_block(PLAN_SEND, 0)
				 : plan_blocks(PLAN_RECV, mine, d));
		if (d == 1)
			plan_copy(p, plan_block(PLAN_RECV, me),
				  plan_block(PLAN_SEND, 0));
		plan_recv(p, peer, plan_blocks(PLAN_RECV, theirs, d));
	}
}

const struct algorithm allgather_recursive_doubling = {
	.coll = COLL_ALLGATHER,
	.name = "recursive_doubling",
	.whole = true,
	.serves = shape_is_power_of_two,
	.build = build,
	.work = work_doubling,
};
