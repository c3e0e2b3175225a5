/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Double binary tree all-reduce. Each of two trees reduces one half of every
 * slice to its root and broadcasts the result back. A node that has children in
 * one tree is a leaf of the other, so that all nodes have about the same load.
 * The ranks of a node hang below its first rank in one tree, and below its last
 * rank in the other.
 *
 * Hops     about 2 log2 N, for N ranks
 * Sent     at most 2 S bytes per rank, for S bytes; more on nodes with many
 *          ranks
 * Memory   none
 * Best     medium S and many ranks: few hops, pipelined over slices
 *
 * Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast,
 * reduction and scan (2009). The numbering of the tree is NCCL's.
 */
#include "collectives/groups/tree.h"

/* The neighbours of a node in a tree, as numbers of nodes. */
struct vertex {
	int up;      /* -1 for the root */
	int down[2]; /* -1 if there is none */
};

/* Returns the neighbours of node i of n in the first tree. The numbering is in
 * order: a node lies between its two subtrees. The lowest set bit of its number
 * is its height. */
static struct vertex in_order(int i, int n)
{
	struct vertex v = {-1, {-1, -1}};
	int bit = 1, low;

	while (bit < n && !(i & bit))
		bit *= 2;
	low = bit / 2;
	if (i == 0) {
		/* Node 0 is the root. It has one child, the highest node of the
		 * rest. */
		v.down[1] = low > 0 ? low : -1;
		return v;
	}
	v.up = (i ^ bit) | (bit * 2);
	if (v.up >= n)
		v.up = i ^ bit;
	if (low == 0)
		return v;
	v.down[0] = i - low;
	while (low > 0 && i + low >= n)
		low /= 2;
	if (low > 0)
		v.down[1] = i + low;
	return v;
}

static int moved(int i, int n)
{
	if (i < 0)
		return i;
	return n % 2 ? (i + 1) % n : n - 1 - i;
}

/* Returns the neighbours of node i of n. The second tree is the first one
 * mirrored, or shifted by one if n is odd, so that an inner node of one tree is
 * a leaf of the other. */
static struct vertex vertex_of(int i, int n, int second)
{
	struct vertex v;

	if (!second)
		return in_order(i, n);
	v = in_order(n % 2 ? (i + n - 1) % n : n - 1 - i, n);
	v.up = moved(v.up, n);
	v.down[0] = moved(v.down[0], n);
	v.down[1] = moved(v.down[1], n);
	return v;
}

static int nodes_of(const struct shape *s)
{
	return s->links ? (int)s->links->nodes : s->ranks;
}

/* Returns the rank that represents a node towards other nodes. */
static int rank_of(const struct shape *s, int node, int second)
{
	const struct links *l = s->links;

	if (!l || node < 0)
		return node;
	return (int)l->path[second ? l->node_begin[node + 1] - 1
				   : l->node_begin[node]];
}

/* Children on other nodes come first, as most ranks are below them. */
static struct tree tree_in(const struct shape *s, int second)
{
	const struct links *l = s->links;
	int n = nodes_of(s), node = s->rank;
	struct tree t, near;
	struct vertex v;

	tree_of_node(s, second, &near);
	if (near.parent >= 0)
		return near;
	t.children = 0;
	if (l)
		node = (int)links_find(l->node_begin, l->nodes,
				       l->place[s->rank]);
	v = vertex_of(node, n, second);
	t.parent = rank_of(s, v.up, second);
	for (int i = 0; i < 2; i++)
		if (v.down[i] >= 0)
			t.child[t.children++] = rank_of(s, v.down[i], second);
	for (int i = 0; i < near.children; i++)
		t.child[t.children++] = near.child[i];
	return t;
}

static void reduce_up(struct plan *p, const struct shape *s,
		      const struct tree *t, struct span recv, struct span now)
{
	for (int i = t->children; i-- > 0;) {
		plan_recv_reduce(p, t->child[i], recv, now);
		now = recv;
	}
	if (t->parent >= 0)
		plan_send(p, t->parent, now);
	else
		shape_result(p, s, now);
}

static void broadcast_down(struct plan *p, const struct tree *t,
			   struct span recv)
{
	if (t->parent >= 0)
		plan_recv(p, t->parent, recv);
	for (int i = 0; i < t->children; i++)
		plan_send(p, t->child[i], recv);
}

static void build(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	struct span in = shape_input(p, s, plan_block(PLAN_SEND, 0), recv);
	struct tree t[2];

	for (uint32_t i = 0; i < 2; i++) {
		t[i] = tree_in(s, (int)i);
		reduce_up(p, s, &t[i], plan_cut(recv, i, i + 1, 2),
			  plan_cut(in, i, i + 1, 2));
	}
	for (uint32_t i = 0; i < 2; i++)
		broadcast_down(p, &t[i], plan_cut(recv, i, i + 1, 2));
}

static void work(const struct shape *s, uint64_t bytes, struct work *w)
{
	uint64_t others = (uint64_t)s->ranks - 1;

	w->near_hops = 2 * tree_near_hops(s);
	w->hops = 2 * shape_log2_of((uint32_t)nodes_of(s)) + w->near_hops;
	w->messages = s->ranks > 2 ? 8 : 4;
	w->message_bytes = bytes / 2 + 64;
	w->wire_bytes = s->ranks > 2 ? 2 * bytes : bytes;
	w->reduce_bytes = s->ranks > 2 ? bytes : bytes / 2;
	w->copy_bytes = s->ranks > 2 ? bytes : bytes / 2;
	w->total_bytes = 4 * others * bytes;
	w->returns = true;
}

const struct algorithm allreduce_tree = {
	.coll = COLL_ALLREDUCE,
	.name = "tree",
	.scratchless = true,
	.serves = shape_any,
	.build = build,
	.work = work,
};
