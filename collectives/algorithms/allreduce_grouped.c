/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Grouped all-reduce. Each part is summed within every group, then over the
 * groups, and the result goes back the same way. groups.h says which rank sums
 * which part; shares follow the rates of the links. A rank on a slow link sums
 * nothing: it sends its input once and receives the result once.
 *
 *   weighted      each rank is a group
 *   hierarchical  the ranks of a node are a group, as they share NICs
 *   islands       the ranks behind one link into the network are a group
 *
 * Hops     2 if each rank is a group, else 4
 * Sent     by a group of share x, of n: S (1 + (n - 2) x) bytes for S bytes
 * Memory   none
 * Best     large S over links of different rates, or links that ranks share
 */
#include "collectives/groups/groups.h"

/* Appends the steps of this rank for one part of group `top`'s share of a
 * column. All ranks build the parts in the same order. */
static void build_part(struct plan *p, const struct shape *s,
		       const struct groups *g, uint32_t column, uint32_t top,
		       struct span in, struct span out)
{
	uint32_t mine = groups_mine(g, s), mates = groups_size(g, mine);
	int owner = groups_owner(g, mine, column);
	int root = groups_owner(g, top, column);
	struct span now = in;

	if (s->rank != owner) {
		plan_send(p, owner, in);
		plan_recv(p, owner, out);
		return;
	}
	for (uint32_t i = 0; i < mates; i++) {
		int mate = groups_member(g, s, mine, i);

		if (mate == s->rank)
			continue;
		plan_recv_reduce(p, mate, out, now);
		now = out;
	}
	if (s->rank != root) {
		plan_send(p, root, now);
		plan_recv(p, root, out);
	}
	for (uint32_t k = 1; k < g->n && s->rank == root; k++) {
		plan_recv_reduce(p, groups_owner(g, (top + k) % g->n, column),
				 out, now);
		now = out;
	}
	if (s->rank == root)
		shape_result(p, s, out);
	for (uint32_t k = 1; k < g->n && s->rank == root; k++)
		plan_send(p, groups_owner(g, (top + k) % g->n, column), out);
	for (uint32_t i = 0; i < mates; i++) {
		int mate = groups_member(g, s, mine, i);

		if (mate != s->rank)
			plan_send(p, mate, out);
	}
}

/* Appends the steps for group k's share of a column, one message after the
 * other. */
static void build_share(struct plan *p, const struct shape *s,
			const struct groups *g, uint32_t column, uint32_t k,
			struct span in, struct span recv)
{
	uint32_t parts = g->columns * g->parts, begin = column * g->parts;
	uint32_t lo = begin + g->cut[k], end = begin + g->cut[k + 1];

	while (lo < end) {
		uint32_t n = groups_message(g, k);
		uint32_t hi = n < end - lo ? lo + n : end;

		build_part(p, s, g, column, k, plan_cut(in, lo, hi, parts),
			   plan_cut(recv, lo, hi, parts));
		lo = hi;
	}
}

static void build(struct plan *p, const struct shape *s, enum groups_by by)
{
	struct span recv = plan_block(PLAN_RECV, 0), in;
	const struct groups *g;
	dicomm_result_t status = groups_find(s, by, &g);

	if (status != DICOMM_SUCCESS) {
		plan_fail(p, status);
		return;
	}
	in = shape_input(p, s, plan_block(PLAN_SEND, 0), recv);
	plan_largest(p, groups_largest_message(g), g->columns * g->parts);
	for (uint32_t c = 0; c < g->columns; c++)
		for (uint32_t k = 0; k < g->n; k++)
			build_share(p, s, g, c, k, in, recv);
}

GROUPS_ALGORITHM(allreduce, weighted, COLL_ALLREDUCE, GROUPS_BY_RANK)
GROUPS_ALGORITHM(allreduce, hierarchical, COLL_ALLREDUCE, GROUPS_BY_NODE)
GROUPS_ALGORITHM(allreduce, islands, COLL_ALLREDUCE, GROUPS_BY_ISLAND)
