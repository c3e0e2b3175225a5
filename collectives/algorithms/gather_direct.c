/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct gather: everybody sends its block to the root.
 *
 * Hops     1
 * Sent     S / N bytes per rank, for N ranks and S bytes of result
 * Memory   none
 * Best     anything but tiny blocks from many ranks
 */
#include "collectives/plan/algorithm.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span mine = plan_block(PLAN_SEND, 0);

	if (s->rank != s->root) {
		plan_send(p, s->root, mine);
		return;
	}
	plan_copy(p, plan_block(PLAN_RECV, (uint32_t)s->root), mine);
	for (int k = 1; k < s->ranks; k++) {
		int from = shape_rank(s, s->root + k);

		plan_recv(p, from, plan_block(PLAN_RECV, (uint32_t)from));
	}
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t others = (uint64_t)s->ranks - 1;
	uint64_t block = bytes / (uint64_t)s->ranks;

	w->hops = 1;
	w->messages = (uint32_t)others;
	w->message_bytes = block;
	w->wire_bytes = others * block;
	w->copy_bytes = block;
	w->total_bytes = bytes;
}

const struct algorithm gather_direct = {
	.coll = COLL_GATHER,
	.name = "direct",
	.scratchless = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};

/* The v-variant has the same steps; only its blocks differ in length. */
const struct algorithm gatherv_direct = {
	.coll = COLL_GATHERV,
	.name = "direct",
	.scratchless = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
