/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast by a scatter and an all-gather. The root sends one part to each
 * other rank, which sends it to all the rest.
 *
 * Hops     2
 * Sent     S per rank, for S bytes
 * Memory   none
 * Best     large S where every rank reaches every other one at full speed
 */
#include "collectives/plan/algorithm.h"

static bool serves(const struct shape *s)
{
	return s->ranks > 2;
}

/* Returns the part that rank `owner`, counted from the root, distributes. */
static struct span part(const struct shape *s, struct span whole, int owner)
{
	uint32_t lo = (uint32_t)owner - 1;

	return plan_cut(whole, lo, lo + 1, (uint32_t)s->ranks - 1);
}

static void build_root(struct plan *p, const struct shape *s)
{
	struct span send = plan_block(PLAN_SEND, 0);

	for (int k = 1; k < s->ranks; k++)
		plan_send(p, shape_to_rank(s, k), part(s, send, k));
	plan_copy(p, plan_block(PLAN_RECV, 0), send);
}

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	int me = shape_from_root(s, s->rank);
	int others = s->ranks - 1;

	if (me == 0) {
		build_root(p, s);
		return;
	}
	plan_recv(p, s->root, part(s, recv, me));
	for (int k = 1; k < others; k++)
		plan_send(p, shape_to_rank(s, 1 + (me - 1 + k) % others),
			  part(s, recv, me));
	for (int k = 1; k < others; k++) {
		int from = 1 + (me - 1 + others - k) % others;

		plan_recv(p, shape_to_rank(s, from), part(s, recv, from));
	}
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t others = (uint64_t)s->ranks - 1;

	work_direct(s, bytes, w);
	w->hops = 2;
	w->messages = 2 * (uint32_t)others;
	w->message_bytes = bytes / others + 64;
	w->wire_bytes = bytes;
}

const struct algorithm broadcast_scatter_allgather = {
	.coll = COLL_BROADCAST,
	.name = "scatter_allgather",
	.scratchless = true,
	.serves = serves,
	.build = build,
	.work = work,
};
