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
		out[0] = plan_blocks(PLAN_SEND, (uint32_t)rank, (uint32_t)head);
		out[1] = plan_blocks(PLAN_SEND, 0, (uint32_t)(n - head));
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
		int n = subtree(s, me, d);

		own = plan_block(PLAN_SCRATCH, plan_scratch(p, (uint32_t)n));
		messages = cut(s, me, n, me, m);
		for (int i = 0; i < messages; i++)
			plan_recv(p, parent, m[i]);
	}
	for (d /= 2; d >= 1; d /= 2) {
		if (me + d >= s->ranks)
			continue;
		messages = cut(s, me + d, subtree(s, me + d, d), me, m);
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
