/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree broadcast. The message enters each node once, and each island
 * of nodes once.
 *
 * Hops     log2 N, rounded up, for N ranks. With links: the sum of these
 *          logarithms for the islands, the nodes of an island and the ranks
 *          of a node
 * Sent     S log2 N by the root, for S bytes
 * Memory   none
 * Best     small S and many ranks
 */
#include "collectives/groups/tree.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	struct span now = s->rank == s->root ? plan_block(PLAN_SEND, 0) : recv;
	struct tree t;

	tree_of(s, s->root, &t);
	if (t.parent >= 0)
		plan_recv(p, t.parent, recv);
	for (int i = 0; i < t.children; i++)
		plan_send(p, t.child[i], now);
	if (t.parent < 0)
		plan_copy(p, recv, now);
}

const struct algorithm broadcast_binomial = {
	.coll = COLL_BROADCAST,
	.name = "binomial",
	.scratchless = true,
	.serves = shape_any,
	.build = build,
	.work = tree_work,
};
