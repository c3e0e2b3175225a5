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

/* Returns how many blocks the round of distance d sends. */
static int round_blocks(const struct shape *s, int d)
{
	return d < s->ranks - d ? d : s->ranks - d;
}

/* Finds the spans of the blocks of ranks [first, first + n). If these wrap
 * round the end of the buffer, there are two spans, and so two messages on both
 * sides. Returns the number of spans. */
static int cut(const struct shape *s, int first, int n, struct span out[2])
{
	int begin = shape_rank(s, first);
	int until_end = s->ranks - begin;

	if (n <= until_end) {
		out[0] = plan_blocks(PLAN_RECV, (uint32_t)begin, (uint32_t)n);
		return 1;
	}
	out[0] = plan_blocks(PLAN_RECV, (uint32_t)begin, (uint32_t)until_end);
	out[1] = plan_blocks(PLAN_RECV, 0, (uint32_t)(n - until_end));
	return 2;
}

static void build(struct plan *p, const struct shape *s)
{
	struct span m[2];

	for (int d = 1; d < s->ranks; d *= 2) {
		int n = round_blocks(s, d);
		int to = shape_rank(s, s->rank - d);
		int from = shape_rank(s, s->rank + d);
		int messages = cut(s, s->rank, n, m);

		if (d == 1)
			m[0] = plan_block(PLAN_SEND, 0);
		for (int i = 0; i < messages; i++)
			plan_send(p, to, m[i]);
		if (d == 1)
			plan_copy(p, plan_block(PLAN_RECV, (uint32_t)s->rank),
				  m[0]);
		messages = cut(s, s->rank + d, n, m);
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
		w->messages += round_blocks(s, d) > 1 ? 3 : 2;
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
