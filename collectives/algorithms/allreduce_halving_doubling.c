/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Halving-doubling all-reduce (Rabenseifner): a reduce-scatter by recursive
 * halving, then an all-gather by recursive doubling. Beyond a power of two,
 * each extra rank hands its input to a partner first and gets the result from
 * it last.
 *
 * Hops     2 log2 N (and 2 if N is not a power of two)
 * Sent     2 S (N - 1) / N bytes per rank, for N ranks and S bytes; 3 S if N is
 *          not a power of two
 * Memory   none
 * Best     medium S and a power of two of ranks
 */
#include "collectives/plan/algorithm.h"

/* Half of all parts go in one message. A part is at least a cache line, and
 * slots may be as small as 4 KiB. */
static bool serves(const struct shape *s)
{
	return shape_power_of_two(s) <= 128;
}

/* Returns the n parts that `rank` holds when ranks at a distance of n have
 * exchanged theirs. There is one part for each rank of the power of two. */
static struct span held(const struct shape *s, struct span whole, int rank,
			int n)
{
	uint32_t lo = (uint32_t)(rank / n * n);

	return plan_cut(whole, lo, lo + (uint32_t)n,
			(uint32_t)shape_power_of_two(s));
}

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	int core = shape_power_of_two(s);
	int extra = s->rank + core;
	struct span now;

	/* An extra rank hands over its whole input; other messages are at most
	 * half as long. */
	if (s->ranks > core)
		plan_largest(p, 1, 1);
	if (s->rank >= core) {
		shape_extra(p, s, s->rank - core);
		return;
	}
	now = shape_input(p, s, plan_block(PLAN_SEND, 0), recv);
	if (extra < s->ranks) {
		plan_recv_reduce(p, extra, recv, now);
		now = recv;
	}
	for (int d = core / 2; d >= 1; d /= 2) {
		int peer = s->rank ^ d;

		plan_send(p, peer, held(s, now, peer, d));
		plan_recv_reduce(p, peer, held(s, recv, s->rank, d),
				 held(s, now, s->rank, d));
		now = recv;
	}
	shape_result(p, s, held(s, recv, s->rank, 1));
	for (int d = 1; d < core; d *= 2) {
		int peer = s->rank ^ d;

		plan_send(p, peer, held(s, recv, s->rank, d));
		plan_recv(p, peer, held(s, recv, peer, d));
	}
	if (extra < s->ranks)
		plan_send(p, extra, recv);
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t core = (uint64_t)shape_power_of_two(s);
	uint64_t extras = (uint64_t)s->ranks - core;
	uint64_t most = bytes / core * (core - 1);

	for (uint64_t d = 1; d < core; d *= 2)
		w->hops += 2;
	w->messages = 2 * w->hops;
	w->message_bytes = bytes / 2 + 64;
	w->wire_bytes = 2 * most;
	w->reduce_bytes = most;
	w->copy_bytes = most;
	w->total_bytes = 4 * core * most + 4 * extras * bytes;
	if (extras > 0) {
		w->hops += 2;
		w->messages += 2;
		w->message_bytes = bytes;
		w->wire_bytes += bytes;
		w->reduce_bytes += bytes;
	}
}

const struct algorithm allreduce_halving_doubling = {
	.coll = COLL_ALLREDUCE,
	.name = "halving_doubling",
	.scratchless = true,
	.serves = serves,
	.build = build,
	.work = work,
};
