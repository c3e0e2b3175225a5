/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Double binary tree all-reduce: each of two trees reduces a half of every
 * slice to its root and broadcasts it back. A rank that has children in one
 * tree is a leaf of the other, so that all have about the same to do.
 *
 * Hops     about 2 log2 N, for N ranks
 * Sent     2 S bytes per rank at most, for S bytes
 * Memory   none
 * Best     medium S and many ranks: few hops, and pipelined over slices
 *
 * Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast,
 * reduction and scan (2009); the numbering of nodes is NCCL's.
 */
#include "collectives/algorithm.h"

struct node {
	int up;      /* -1 at the root */
	int down[2]; /* -1 if absent */
};

/* Ranks are in order in the tree: a node lies between its subtrees, and the
 * lowest bit set in its number is its height. */
static struct node in_order_node(int rank, int ranks)
{
	struct node n = {-1, {-1, -1}};
	int bit = 1, low;

	while (bit < ranks && !(rank & bit))
		bit *= 2;
	low = bit / 2;
	if (rank == 0) {
		/* The root is beside the tree, over its highest node. */
		n.down[1] = low > 0 ? low : -1;
		return n;
	}
	n.up = (rank ^ bit) | (bit * 2);
	if (n.up >= ranks)
		n.up = rank ^ bit;
	if (low == 0)
		return n;
	n.down[0] = rank - low;
	while (low > 0 && rank + low >= ranks)
		low /= 2;
	if (low > 0)
		n.down[1] = rank + low;
	return n;
}

static int moved(int rank, int ranks, int second)
{
	if (!second || rank < 0)
		return rank;
	return ranks % 2 ? (rank + 1) % ranks : ranks - 1 - rank;
}

/* The second tree is the first one mirrored, or shifted if N is odd: what is
 * inside in one is a leaf in the other. */
static struct node tree_node(int rank, int ranks, int second)
{
	struct node n;

	if (!second)
		return in_order_node(rank, ranks);
	n = in_order_node(ranks % 2 ? (rank + ranks - 1) % ranks
				    : ranks - 1 - rank,
			  ranks);
	n.up = moved(n.up, ranks, second);
	n.down[0] = moved(n.down[0], ranks, second);
	n.down[1] = moved(n.down[1], ranks, second);
	return n;
}

static void reduce_up(struct plan *p, const struct shape *s, struct node n,
		      struct span recv, struct span now)
{
	for (int i = 0; i < 2; i++) {
		if (n.down[i] < 0)
			continue;
		plan_recv_reduce(p, n.down[i], recv, now);
		now = recv;
	}
	if (n.up >= 0)
		plan_send(p, n.up, now);
	else
		shape_result(p, s, now);
}

static void broadcast_down(struct plan *p, struct node n, struct span recv)
{
	if (n.up >= 0)
		plan_recv(p, n.up, recv);
	for (int i = 0; i < 2; i++)
		if (n.down[i] >= 0)
			plan_send(p, n.down[i], recv);
}

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	struct span in = shape_input(p, s, plan_block(PLAN_SEND, 0), recv);
	struct node n[2];

	for (uint32_t t = 0; t < 2; t++) {
		n[t] = tree_node(s->rank, s->ranks, (int)t);
		reduce_up(p, s, n[t], plan_cut(recv, t, t + 1, 2),
			  plan_cut(in, t, t + 1, 2));
	}
	for (uint32_t t = 0; t < 2; t++)
		broadcast_down(p, n[t], plan_cut(recv, t, t + 1, 2));
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t others = (uint64_t)s->ranks - 1;

	w->hops = 2 * shape_log2(s);
	w->messages = s->ranks > 2 ? 8 : 4;
	w->message_bytes = bytes / 2 + 64;
	w->wire_bytes = s->ranks > 2 ? 2 * bytes : bytes;
	w->reduce_bytes = s->ranks > 2 ? bytes : bytes / 2;
	w->copy_bytes = s->ranks > 2 ? bytes : bytes / 2;
	w->total_bytes = 4 * others * bytes;
	w->pipelined = true;
}

const struct algorithm allreduce_tree = {
	.coll = COLL_ALLREDUCE,
	.name = "tree",
	.scratchless = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
