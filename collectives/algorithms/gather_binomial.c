/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree gather. Each rank collects the blocks of its subtree, then
 * sends them to its parent in one message. Blocks that wrap round the end of
 * the root's buffer take two messages.
 *
 * Hops     log2 N, rounded up, for N ranks
 * Sent     at most S / 2 bytes, for S bytes of result
 * Memory   at most S / 2 bytes
 * Best     tiny blocks from many ranks
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span send = plan_block(PLAN_SEND, 0);
	int me = shape_from_root(s, s->rank);
	struct span m[2];
	int messages;

	if (me % 2 || me + 1 == s->ranks) {
		plan_send(p, shape_to_rank(s, me & (me - 1)), send);
		return;
	}
	if (me == 0)
		plan_copy(p, plan_block(PLAN_RECV, (uint32_t)s->rank), send);
	else
		plan_copy(p,
			  plan_block(PLAN_SCRATCH,
				     plan_scratch(p, (uint32_t)shape_count(
							     s, me, me & -me))),
			  send);
	for (int d = 1; d < s->ranks; d *= 2) {
		if (me & d) {
			messages = shape_subtree(s, PLAN_RECV, me, d, m);
			for (int i = 0; i < messages; i++)
				plan_send(p, shape_to_rank(s, me - d), m[i]);
			return;
		}
		if (me + d >= s->ranks)
			continue;
		messages = shape_subtree(s, PLAN_RECV, me + d, d, m);
		for (int i = 0; i < messages; i++)
			plan_recv(p, shape_to_rank(s, me + d), m[i]);
	}
}

const struct algorithm gather_binomial = {
	.coll = COLL_GATHER,
	.name = "binomial",
	.whole = true,
	.serves = shape_any,
	.build = build,
	.work = work_subtrees,
};
