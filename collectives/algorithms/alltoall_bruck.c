/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bruck's all-to-all. The block for the rank that is i ahead moves 2^k ranks on
 * in round k if bit k of i is set. All blocks that move in a round travel in
 * one message.
 *
 * Hops     log2 N, rounded up, for N ranks
 * Sent     about S log2 N / 2 bytes per rank, for S bytes of input
 * Memory   about S (1 + log2 N) / 2 bytes
 * Best     tiny blocks among many ranks
 */
#include "collectives/plan/algorithm.h"

/* Returns how many numbers below n have bit d set. */
static uint32_t with_bit(uint32_t n, uint32_t d)
{
	uint32_t rest = n % (2 * d);

	return n / (2 * d) * d + (rest > d ? rest - d : 0);
}

struct bruck {
	const struct shape *s;
	uint32_t room[32]; /* [round]: the first scratch block that the round
			    * receives into */
};

/* Returns where the block for the rank that is i ahead lies before the round of
 * bit d: where the last round that moved it received it, or else in the send
 * buffer. */
static struct span where(const struct bruck *b, uint32_t i, uint32_t d)
{
	uint32_t moves = i & (d - 1), last;

	if (!moves)
		return plan_block(
			PLAN_SEND,
			(uint32_t)shape_rank(b->s, b->s->rank + (int)i));
	last = 31 - (uint32_t)__builtin_clz(moves);
	return plan_block(PLAN_SCRATCH,
			  b->room[last] + with_bit(i, UINT32_C(1) << last));
}

/* Copies the blocks that move in a round next to each other. Blocks that are
 * neighbours already take one copy together. */
static void pack(struct plan *p, const struct bruck *b, uint32_t d, uint32_t to)
{
	struct span run = {0}, next;

	for (uint32_t i = d; i < (uint32_t)b->s->ranks; i++) {
		if (!(i & d))
			continue;
		next = where(b, i, d);
		if (run.nblocks > 0 && next.buffer == run.buffer &&
		    next.block == run.block + run.nblocks) {
			run.nblocks++;
			continue;
		}
		if (run.nblocks > 0)
			plan_copy(p, plan_blocks(PLAN_SCRATCH, to, run.nblocks),
				  run);
		to += run.nblocks;
		run = next;
	}
	plan_copy(p, plan_blocks(PLAN_SCRATCH, to, run.nblocks), run);
}

static void build(struct plan *p, const struct shape *s)
{
	uint32_t n = (uint32_t)s->ranks, top = 1;
	uint32_t packed = plan_scratch(p, n / 2 + 1);
	struct bruck b = {.s = s};

	for (uint32_t d = 1, k = 0; d < n; d *= 2, k++) {
		uint32_t moving = with_bit(n, d);

		b.room[k] = plan_scratch(p, moving);
		pack(p, &b, d, packed);
		plan_send(p, shape_rank(s, s->rank + (int)d),
			  plan_blocks(PLAN_SCRATCH, packed, moving));
		plan_recv(p, shape_rank(s, s->rank - (int)d),
			  plan_blocks(PLAN_SCRATCH, b.room[k], moving));
		top = 2 * d;
	}
	for (uint32_t i = 0; i < n; i++)
		plan_copy(p,
			  plan_block(PLAN_RECV,
				     (uint32_t)shape_rank(s, s->rank - (int)i)),
			  where(&b, i, top));
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint32_t n = (uint32_t)s->ranks;
	uint64_t block = bytes / n;

	w->hops = shape_log2(s);
	w->messages = 2 * w->hops;
	for (uint32_t d = 1; d < n; d *= 2) {
		uint64_t moving = with_bit(n, d) * block;

		w->wire_bytes += moving;
		if (w->message_bytes < moving)
			w->message_bytes = moving;
	}
	w->copy_bytes = w->wire_bytes + bytes;
	w->total_bytes = n * (w->wire_bytes + w->copy_bytes);
}

const struct algorithm alltoall_bruck = {
	.coll = COLL_ALLTOALL,
	.name = "bruck",
	.whole = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
