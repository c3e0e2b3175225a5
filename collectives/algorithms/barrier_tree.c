/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tree barrier. Each rank sends a byte up a binomial tree when its children
 * have sent theirs. Then a byte comes down the tree. It enters each node once.
 *
 * Hops     twice as many as broadcast_binomial.c
 * Sent     a byte to the parent, and one to each child
 * Memory   a few bytes
 * Best     many more ranks than cores: 2 (N - 1) messages in all, many of
 *          them within a node
 */
#include "collectives/groups/tree.h"

/* Scratch holds this rank's byte, the bytes of its children, and a copy of all
 * of these. The copy makes the send to the parent wait for all children. */
static void build(struct plan *p, const struct shape *s)
{
	struct span own = plan_block(PLAN_SCRATCH, 0), up, down;
	struct tree t;
	uint32_t n;

	tree_of(s, 0, &t);
	n = 1 + (uint32_t)t.children;
	plan_scratch(p, 2 * n);
	for (uint32_t i = n - 1; i > 0; i--)
		plan_recv(p, t.child[i - 1], plan_block(PLAN_SCRATCH, i));
	plan_copy(p, plan_blocks(PLAN_SCRATCH, n, n),
		  plan_blocks(PLAN_SCRATCH, 0, n));
	up = plan_block(PLAN_SCRATCH, n);
	down = t.parent < 0 ? up : own;
	if (t.parent >= 0) {
		plan_send(p, t.parent, up);
		plan_recv(p, t.parent, down);
	}
	for (int i = 0; i < t.children; i++)
		plan_send(p, t.child[i], down);
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t others = (uint64_t)s->ranks - 1;

	(void)bytes;
	w->hops = 2 * tree_hops(s);
	w->near_hops = 2 * tree_near_hops(s);
	w->messages = w->hops;
	w->message_bytes = 1;
	w->wire_bytes = w->hops;
	w->total_bytes = 2 * others;
}

const struct algorithm barrier_tree = {
	.coll = COLL_BARRIER,
	.name = "tree",
	.whole = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
