/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive doubling all-reduce: in round k, ranks 2^k apart on the path
 * exchange what they have reduced so far, neighbours first. Beyond a power of
 * two, each extra rank hands its input to a partner first and gets the result
 * from it last.
 *
 * Hops     log2 N (and 2 if N is not a power of two)
 * Sent     S log2 N per rank, for N ranks and S bytes
 * Memory   a slice
 * Best     small S and many ranks
 */
#include "collectives/plan/algorithm.h"

static uint32_t rounds(const struct shape *s)
{
	uint32_t n = 0;

	for (int d = 1; d < shape_power_of_two(s); d *= 2)
		n++;
	return n;
}

/* Returns the number of rounds in which all messages stay within a node. */
static uint32_t near_rounds(const struct shape *s, uint32_t all)
{
	uint32_t n = 0;

	for (uint32_t d = 2; s->links && n < all; d *= 2, n++)
		for (uint32_t i = 0; i < s->links->nodes; i++)
			if (s->links->ranks_of[i] % d)
				return n;
	return n;
}

/*
 * Returns the buffer to which a round writes, with w writes to go. A peer may
 * read what this rank sends in place. So a round receives into another buffer
 * than the one from which it sends; otherwise two ranks could wait for each
 * other. Odd w is the receive buffer, so that the last write goes there.
 */
static struct span target(uint32_t w)
{
	return w % 2 ? plan_block(PLAN_RECV, 0) : plan_block(PLAN_SCRATCH, 0);
}

static void build(struct plan *p, const struct shape *s)
{
	struct span now = plan_block(PLAN_SEND, 0);
	int core = shape_power_of_two(s), me = shape_place(s);
	int extra = me + core;
	uint32_t left = rounds(s);

	if (me >= core) {
		shape_extra(p, s, shape_on_path(s, -core));
		return;
	}
	plan_scratch(p, 1);
	if (extra < s->ranks)
		left++;

	/* In place, the first write would hit the memory from which this rank
	 * sends. So the input is copied first. */
	if (s->prescale) {
		now = shape_input(p, s, now, target(left + 1));
	} else if (s->in_place && left % 2 && extra >= s->ranks) {
		plan_copy(p, target(left + 1), now);
		now = target(left + 1);
	}

	if (extra < s->ranks) {
		plan_recv_reduce(p, shape_on_path(s, core), target(left), now);
		now = target(left--);
	}
	for (int d = 1; d < core; d *= 2) {
		int peer = shape_on_path(s, (me ^ d) - me);

		plan_send(p, peer, now);
		plan_recv_reduce(p, peer, target(left), now);
		now = target(left--);
	}
	shape_result(p, s, now);
	if (extra < s->ranks)
		plan_send(p, shape_on_path(s, core), now);
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t core = (uint64_t)shape_power_of_two(s);
	uint64_t extras = (uint64_t)s->ranks - core;
	uint32_t n = rounds(s);

	w->hops = n + (extras > 0 ? 2 : 0);
	w->near_hops = near_rounds(s, n);
	w->messages = 2 * w->hops;
	w->message_bytes = bytes;
	w->wire_bytes = w->hops * bytes;
	w->reduce_bytes = (n + (extras > 0)) * bytes;
	w->total_bytes = (2 * core * n + 3 * extras) * bytes;
}

const struct algorithm allreduce_recursive_doubling = {
	.coll = COLL_ALLREDUCE,
	.name = "recursive_doubling",
	.whole = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
