/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Grouped reduce-scatter. One rank of each group sums up what its group has of
 * a block, and sends the sum to the block's owner. Groups are the ranks of a
 * node (hierarchical) or of an island of nodes (islands).
 *
 * Hops     2
 * Sent     by a group of m of N ranks, S (N - m) / N to other groups
 * Memory   a few slices
 * Best     large S where ranks share the link to those of other groups
 */
#include "collectives/groups/groups.h"

/* Scratch blocks for sums and scaled blocks that wait to be sent. Block k +
 * ROOM is begun when block k has left. */
#define ROOM 4

/* Adds what the other members of this rank's group have of a block. */
static struct span add_mates(struct plan *p, const struct shape *s,
			     const struct groups *g, struct span sum,
			     struct span now)
{
	uint32_t mine = groups_mine(g, s);

	for (uint32_t i = 0; i < groups_size(g, mine); i++) {
		int mate = groups_member(g, s, mine, i);

		if (mate == s->rank)
			continue;
		plan_recv_reduce(p, mate, sum, now);
		now = sum;
	}
	return now;
}

static void build_own(struct plan *p, const struct shape *s,
		      const struct groups *g)
{
	struct span recv = plan_block(PLAN_RECV, 0), now;

	now = shape_input(p, s, plan_block(PLAN_SEND, (uint32_t)s->rank), recv);
	now = add_mates(p, s, g, recv, now);
	for (uint32_t k = 1; k < g->n; k++) {
		uint32_t other = (groups_mine(g, s) + k) % g->n;

		plan_recv_reduce(p, groups_agent(g, s, other, s->rank), recv,
				 now);
		now = recv;
	}
	shape_result(p, s, recv);
}

/* Appends the steps for a block that another rank owns. `sum` is scratch for
 * it. */
static void build_other(struct plan *p, const struct shape *s,
			const struct groups *g, int owner, struct span sum)
{
	uint32_t mine = groups_mine(g, s);
	bool home = g->of[owner] == mine;
	int agent = home ? owner : groups_agent(g, s, mine, owner);
	struct span now =
		shape_input(p, s, plan_block(PLAN_SEND, (uint32_t)owner), sum);

	if (s->rank == agent)
		plan_send(p, owner, add_mates(p, s, g, sum, now));
	else
		plan_send(p, agent, now);
}

static void build(struct plan *p, const struct shape *s, enum groups_by by)
{
	uint32_t scratch = plan_scratch(p, ROOM);
	const struct groups *g;
	dicomm_result_t status = groups_find(s, by, &g);

	if (status != DICOMM_SUCCESS) {
		plan_fail(p, status);
		return;
	}
	for (int r = 0; r < s->ranks; r++) {
		struct span room =
			plan_block(PLAN_SCRATCH, scratch + (uint32_t)r % ROOM);

		if (r == s->rank)
			build_own(p, s, g);
		else
			build_other(p, s, g, r, plan_like(room, (uint32_t)r));
	}
}

GROUPS_ALGORITHM(reduce_scatter, hierarchical, COLL_REDUCE_SCATTER,
		 GROUPS_BY_NODE)
GROUPS_ALGORITHM(reduce_scatter, islands, COLL_REDUCE_SCATTER, GROUPS_BY_ISLAND)
/* The v-variants have the same steps; only their blocks differ in length. */
GROUPS_ALGORITHM(reduce_scatterv, hierarchical, COLL_REDUCE_SCATTERV,
		 GROUPS_BY_NODE)
GROUPS_ALGORITHM(reduce_scatterv, islands, COLL_REDUCE_SCATTERV,
		 GROUPS_BY_ISLAND)
