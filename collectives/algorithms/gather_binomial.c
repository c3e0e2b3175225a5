/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree gather: each rank collects the blocks of its subtree, then
 * hands them up in one message (two, if they cross the end of the buffer of the
 * root).
 *
 * Hops     log2 N, rounded up, for N ranks
 * Sent     S / 2 bytes at most, for S bytes of result
 * Memory   S / 2 bytes at most
 * Best     tiny blocks from many ranks
 */
#include "collectives/plan/algorithm.h"

/* The blocks of n ranks from `first` on, counted from the root, of which
 * `begin` is block 0 of a buffer: in one or two messages, on both sides. */
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

/* Ranks in the subtree of the one that is `from_root`, if below d. */
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

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t others = (uint64_t)s->ranks - 1;
	uint64_t block = bytes / (uint64_t)s->ranks;

	w->hops = shape_log2(s);
	w->messages = w->hops + 1;
	w->message_bytes = (uint64_t)s->ranks / 2 * block;
	w->wire_bytes = others * block;
	w->copy_bytes = block;
	w->total_bytes = bytes / 2 * (w->hops + 1);
}

const struct algorithm gather_binomial = {
	.coll = COLL_GATHER,
	.name = "binomial",
	.whole = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
