/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree reduce. One sum leaves each node, and one each island of nodes.
 *
 * Hops     as many as broadcast_binomial.c
 * Sent     S per rank; the root receives and reduces S log2 N
 * Memory   a slice
 * Best     small S and many ranks
 */
#include "collectives/groups/tree.h"

static void build(struct plan *p, const struct shape *s)
{
	struct span sum, now;
	struct tree t;

	tree_of(s, s->root, &t);
	if (t.parent < 0)
		sum = plan_block(PLAN_RECV, 0);
	else
		sum = plan_block(PLAN_SCRATCH,
				 plan_scratch(p, t.children || s->prescale));
	now = shape_input(p, s, plan_block(PLAN_SEND, 0), sum);
	/* Children with the fewest ranks below them finish first. */
	for (int i = t.children; i-- > 0;) {
		plan_recv_reduce(p, t.child[i], sum, now);
		now = sum;
	}
	if (t.parent >= 0)
		plan_send(p, t.parent, now);
	else
		shape_result(p, s, now);
}

const struct algorithm reduce_binomial = {
	.coll = COLL_REDUCE,
	.name = "binomial",
	.serves = shape_any,
	.build = build,
	.work = tree_work,
};
