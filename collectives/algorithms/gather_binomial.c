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

/* Finds the spans of the blocks of n ranks from `first` on, counted from the
 * root. `begin` is 0 at the root, which uses its own buffer; elsewhere it is
 * the rank whose block is scratch block 0. There may be two spans, and so two
 * messages on both sides. Returns the number of spans. */
static int cut(const struct shape *s, int first, int n, int begin,
	       struct span out[2])
{
	int rank = shape_to_rank(s, first);
	int head = n < s->ranks - rank ? n : s->ranks - rank;

	if (begin == 0) {
		out[0] = plan_blocks(PLAN_RECV, (uint32_t)rank, (uint32_t)head);
		out[1] = plan_blocks(PLAN_RECV, 0, (uint32_t)(n - head));
	} else {
		uint32_t at = (uint32_t)(first - begin);

		out[0] = plan_blocks(PLAN_SCRATCH, at, (uint32_t)head);
		out[1] = plan_blocks(PLAN_SCRATCH, at + (uint32_t)head,
				     (uint32_t)(n - head));
	}
	return head < n ? 2 : 1;
}

/* Returns how many ranks are in the subtree of rank `from_root`, counted from
 * the root, at most d. */
static int subtree(const struct shape *s, int from_root, int d)
{
	return d < s->ranks - from_root ? d : s->ranks - from_root;
}

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
				     plan_scratch(p, (uint32_t)subtree(
							     s, me, me & -me))),
			  send);
	for (int d = 1; d < s->ranks; d *= 2) {
		if (me & d) {
			messages = cut(s, me, subtree(s, me, d), me, m);
			for (int i = 0; i < messages; i++)
				plan_send(p, shape_to_rank(s, me - d), m[i]);
			return;
		}
		if (me + d >= s->ranks)
			continue;
		messages = cut(s, me + d, subtree(s, me + d, d), me, m);
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
