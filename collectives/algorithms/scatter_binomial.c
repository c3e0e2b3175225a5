/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree scatter. Each rank receives the blocks of its subtree in one
 * message and passes on those that are not its own. Blocks that wrap round the
 * end of the root's buffer take two messages.
 *
 * Hops     log2 N, rounded up, for N ranks
 * Sent     S (N - 1) / N bytes by the root, for S bytes of input
 * Memory   at most S / 2 bytes
 * Best     tiny blocks to many ranks
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0), own;
	int me = shape_from_root(s, s->rank);
	int parent = shape_to_rank(s, me & (me - 1));
	struct span m[2];
	int messages, d = 1;

	if (me != 0 && (me % 2 || me + 1 == s->ranks)) {
		plan_recv(p, parent, recv);
		return;
	}
	while (d < s->ranks && !(me & d))
		d *= 2;
	if (me == 0) {
		own = plan_block(PLAN_SEND, (uint32_t)s->rank);
	} else {
		own = plan_block(
			PLAN_SCRATCH,
			plan_scratch(p, (uint32_t)shape_count(s, me, d)));
		messages = shape_subtree(s, PLAN_SEND, me, d, m);
		for (int i = 0; i < messages; i++)
			plan_recv(p, parent, m[i]);
	}
	for (d /= 2; d >= 1; d /= 2) {
		if (me + d >= s->ranks)
			continue;
		messages = shape_subtree(s, PLAN_SEND, me + d, d, m);
		for (int i = 0; i < messages; i++)
			plan_send(p, shape_to_rank(s, me + d), m[i]);
	}
	plan_copy(p, recv, own);
}

const struct algorithm scatter_binomial = {
	.coll = COLL_SCATTER,
	.name = "binomial",
	.whole = true,
	.serves = shape_any,
	.build = build,
	.work = work_subtrees,
};
