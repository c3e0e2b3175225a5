/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dissemination barrier: an all-gather of one byte per rank. A rank that has
 * not arrived cannot have sent its byte. In round k, a rank sends all bytes
 * that it has to the rank 2^k ahead. Scratch block i holds the byte of the rank
 * i behind.
 *
 * Hops     log2 N, rounded up, for N ranks
 * Sent     N - 1 bytes per rank
 * Memory   N bytes
 * Best     any N
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	plan_scratch(p, (uint32_t)s->ranks);
	for (int d = 1; d < s->ranks; d *= 2) {
		uint32_t n = (uint32_t)shape_count(s, d, d);

		plan_send(p, shape_rank(s, s->rank + d),
			  plan_blocks(PLAN_SCRATCH, 0, n));
		plan_recv(p, shape_rank(s, s->rank - d),
			  plan_blocks(PLAN_SCRATCH, (uint32_t)d, n));
	}
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t others = (uint64_t)s->ranks - 1;

	(void)bytes;
	w->hops = shape_log2(s);
	w->messages = 2 * w->hops;
	w->message_bytes = (uint64_t)s->ranks / 2;
	w->wire_bytes = others;
	w->total_bytes = others * (uint64_t)s->ranks;
}

const struct algorithm barrier_dissemination = {
	.coll = COLL_BARRIER,
	.name = "dissemination",
	.whole = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
