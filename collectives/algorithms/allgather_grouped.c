/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Grouped all-gather. Each rank sends its block to the members of its own group
 * and to one rank of each other group. That rank passes the block on to the
 * other members of its group. Groups are the ranks of a node (hierarchical) or
 * of an island of nodes (islands).
 *
 * Hops     2
 * Sent     by a group of m of N ranks, m S / N for each other group
 * Memory   none
 * Best     large S where ranks share the link to those of other groups
 */
#include "collectives/groups/groups.h"

static void pass_on(struct plan *p, const struct shape *s,
		    const struct groups *g, struct span block)
{
	uint32_t mine = groups_mine(g, s);

	for (uint32_t i = 0; i < groups_size(g, mine); i++) {
		int mate = groups_member(g, s, mine, i);

		if (mate != s->rank)
			plan_send(p, mate, block);
	}
}

static void build_block(struct plan *p, const struct shape *s,
			const struct groups *g, int owner)
{
	struct span block = plan_block(PLAN_RECV, (uint32_t)owner);
	struct span mine = plan_block(PLAN_SEND, 0);
	uint32_t home = g->of[owner];
	int agent = groups_agent(g, s, groups_mine(g, s), owner);

	if (s->rank == owner) {
		for (uint32_t k = 1; k < g->n; k++) {
			uint32_t other = (home + k) % g->n;

			plan_send(p, groups_agent(g, s, other, owner), mine);
		}
		pass_on(p, s, g, mine);
		plan_copy(p, block, mine);
	} else if (groups_mine(g, s) == home) {
		plan_recv(p, owner, block);
	} else if (s->rank == agent) {
		plan_recv(p, owner, block);
		pass_on(p, s, g, block);
	} else {
		plan_recv(p, agent, block);
	}
}

static void build(struct plan *p, const struct shape *s, enum groups_by by)
{
	const struct groups *g;
	dicomm_result_t status = groups_find(s, by, &g);

	if (status != DICOMM_SUCCESS) {
		plan_fail(p, status);
		return;
	}
	for (int r = 0; r < s->ranks; r++)
		build_block(p, s, g, r);
}

GROUPS_ALGORITHM(allgather, hierarchical, COLL_ALLGATHER, GROUPS_BY_NODE)
GROUPS_ALGORITHM(allgather, islands, COLL_ALLGATHER, GROUPS_BY_ISLAND)
/* The v-variants have the same steps; only their blocks differ in length. */
GROUPS_ALGORITHM(allgatherv, hierarchical, COLL_ALLGATHERV, GROUPS_BY_NODE)
GROUPS_ALGORITHM(allgatherv, islands, COLL_ALLGATHERV, GROUPS_BY_ISLAND)
