/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive halving reduce-scatter. In each round, two ranks that are half as
 * far apart as in the round before exchange blocks: each sends the half of its
 * blocks that the other one's side owns.
 *
 * Hops     log2 N, for N ranks, a power of two
 * Sent     S (N - 1) / N bytes per rank, for S bytes of input
 * Memory   S / 2 bytes; 3 S / 2 if scaled
 * Best     small S and many ranks
 */
#include "collectives/plan/algorithm.h"

/* Where the blocks from `first` on lie. */
struct where {
	enum plan_buffer buffer;
	uint32_t block; /* number of the first one within the buffer */
	uint32_t first; /* number of the first one among all blocks */
};

static struct span blocks(struct where at, uint32_t first, uint32_t n)
{
	return plan_blocks(at.buffer, at.block + first - at.first, n);
}

static void build(struct plan *p, const struct shape *s)
{
	uint32_t n = (uint32_t)s->ranks, me = (uint32_t)s->rank;
	struct where now = {PLAN_SEND, 0, 0}, sums;
	struct span dst;

	if (s->prescale) {
		now.buffer = PLAN_SCRATCH;
		now.block = plan_scratch(p, n);
		shape_input(p, s, plan_blocks(PLAN_SEND, 0, n),
			    blocks(now, 0, n));
	}
	sums.buffer = PLAN_SCRATCH;
	sums.block = plan_scratch(p, n / 2);
	sums.first = me & (n / 2);

	for (uint32_t d = n / 2; d >= 1; d /= 2) {
		uint32_t mine = me / d * d, theirs = mine ^ d;
		int peer = (int)(me ^ d);

		plan_send(p, peer, blocks(now, theirs, d));
		dst = d == 1 ? plan_block(PLAN_RECV, 0) : blocks(sums, mine, d);
		plan_recv_reduce(p, peer, dst, blocks(now, mine, d));
		now = sums;
	}
	shape_result(p, s, plan_block(PLAN_RECV, 0));
}

const struct algorithm reduce_scatter_recursive_halving = {
	.coll = COLL_REDUCE_SCATTER,
	.name = "recursive_halving",
	.whole = true,
	.serves = shape_is_power_of_two,
	.build = build,
	.work = work_doubling,
};
