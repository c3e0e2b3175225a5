/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bruck's all-gather. In each round, a rank sends all blocks that it has to a
 * rank that is twice as far behind it as in the round before. Blocks stay in
 * their final places, so a range of blocks that wraps round the end of the
 * buffer takes two messages.
 *
 * Hops     log2 N, rounded up, for N ranks
 * Sent     S (N - 1) / N bytes per rank, for S bytes of result
 * Memory   none
 * Best     small S and many ranks, any number of them
 *
 * Bruck et al.: Efficient algorithms for all-to-all communications in multiport
 * message-passing systems (1997).
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span m[2];

	for (int d = 1; d < s->ranks; d *= 2) {
		int n = shape_count(s, d, d);
		int to = shape_rank(s, s->rank - d);
		int from = shape_rank(s, s->rank + d);
		int messages = shape_blocks(s, PLAN_RECV, s->rank, n, m);

		if (d == 1)
			m[0] = plan_block(PLAN_SEND, 0);
		for (int i = 0; i < messages; i++)
			plan_send(p, to, m[i]);
		if (d == 1)
			plan_copy(p, plan_block(PLAN_RECV, (uint32_t)s->rank),
				  m[0]);
		messages = shape_blocks(s, PLAN_RECV, s->rank + d, n, m);
		for (int i = 0; i < messages; i++)
			plan_recv(p, from, m[i]);
	}
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	work_direct(s, bytes, w);
	w->hops = shape_log2(s);
	w->messages = 0;
	/* A single block never wraps. */
	for (int d = 1; d < s->ranks; d *= 2)
		w->messages += shape_count(s, d, d) > 1 ? 3 : 2;
	w->message_bytes *= (uint64_t)s->ranks / 2;
}

const struct algorithm allgather_bruck = {
	.coll = COLL_ALLGATHER,
	.name = "bruck",
	.whole = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
