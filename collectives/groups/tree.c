/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/groups/tree.h"

enum units { ISLANDS, NODES, RANKS };

/* A binomial tree of islands, nodes or ranks ("units") that are neighbours on
 * the path. A rank represents each unit. */
struct level {
	/* NULL: there is no path; places are ranks. */
	const struct links *links;
	enum units units;
	/* Number of the first unit and how many units there are. Nodes and
	 * islands are numbered in the order of the path. */
	uint32_t first, n;
	uint32_t home; /* the root unit, counted from `first` */
	int root;      /* the rank that represents the root unit */
};

/* Returns the position of a unit in the tree. The root unit is 0; the others
 * keep their order. */
static uint32_t turn_of(const struct level *v, uint32_t unit)
{
	if (unit == v->home)
		return 0;
	return unit < v->home ? unit + 1 : unit;
}

static int rank_of(const struct level *v, uint32_t turn)
{
	uint32_t at = v->first + (turn <= v->home ? turn - 1 : turn);

	if (!turn)
		return v->root;
	if (!v->links)
		return (int)at;
	if (v->units == ISLANDS)
		at = v->links->island_begin[at];
	if (v->units != RANKS)
		at = v->links->node_begin[at];
	return (int)v->links->path[at];
}

/* Adds the neighbours of the rank that represents `unit`. */
static void add_level(struct tree *t, const struct level *v, uint32_t unit)
{
	uint32_t me = turn_of(v, unit - v->first), bit = 1;

	while (bit <= me)
		bit *= 2;
	if (me)
		t->parent = rank_of(v, me - bit / 2);
	for (; bit < v->n - me; bit *= 2)
		t->child[t->children++] = rank_of(v, me + bit);
}

/* Where a rank is on the path of links. */
struct position {
	uint32_t place, node, island;
};

static struct position position_of(const struct links *l, int rank)
{
	struct position p = {.place = l->place[rank]};

	p.node = links_find(l->node_begin, l->nodes, p.place);
	p.island = links_find(l->island_begin, l->islands, p.node);
	return p;
}

static void add_islands(struct tree *t, const struct links *l,
			const struct position *root, const struct position *me)
{
	struct level v = {.links = l,
			  .units = ISLANDS,
			  .n = l->islands,
			  .home = root->island,
			  .root = (int)l->path[root->place]};

	add_level(t, &v, me->island);
}

static void add_nodes(struct tree *t, const struct links *l,
		      const struct position *root, const struct position *me)
{
	struct level v = {.links = l,
			  .units = NODES,
			  .first = l->island_begin[me->island],
			  .n = l->island_begin[me->island + 1]};

	v.n -= v.first;
	v.root = (int)l->path[l->node_begin[v.first]];
	if (me->island == root->island) {
		v.home = root->node - v.first;
		v.root = (int)l->path[root->place];
	}
	add_level(t, &v, me->node);
}

/* Adds the tree of the ranks on a node, with the rank at `from` as its root. */
static void add_ranks(struct tree *t, const struct links *l,
		      const struct position *from, const struct position *me)
{
	struct level v = {.links = l,
			  .units = RANKS,
			  .first = l->node_begin[me->node],
			  .n = l->node_begin[me->node + 1]};

	v.n -= v.first;
	v.home = from->place - v.first;
	v.root = (int)l->path[from->place];
	add_level(t, &v, me->place);
}

/* The position of the first rank of a node, which receives messages for it. */
static struct position first_of(const struct links *l, uint32_t node)
{
	return position_of(l, (int)l->path[l->node_begin[node]]);
}

static void all_ranks(const struct shape *s, int root, struct tree *t)
{
	struct level v = {.units = RANKS,
			  .n = (uint32_t)s->ranks,
			  .home = (uint32_t)root,
			  .root = root};

	add_level(t, &v, (uint32_t)s->rank);
}

void tree_of(const struct shape *s, int root, struct tree *t)
{
	const struct links *l = s->links;
	struct position start, me, from;

	t->parent = -1;
	t->children = 0;
	if (!l) {
		all_ranks(s, root, t);
		return;
	}
	start = position_of(l, root);
	me = position_of(l, s->rank);
	from = me.island == start.island
		       ? start
		       : first_of(l, l->island_begin[me.island]);
	if (me.place == from.place)
		add_islands(t, l, &start, &me);
	if (me.node != from.node)
		from = first_of(l, me.node);
	if (me.place == from.place)
		add_nodes(t, l, &start, &me);
	add_ranks(t, l, &from, &me);
}

void tree_of_node(const struct shape *s, bool from_last, struct tree *t)
{
	const struct links *l = s->links;
	struct position me, from;

	t->parent = -1;
	t->children = 0;
	if (!l)
		return;
	me = position_of(l, s->rank);
	from = me;
	from.place = from_last ? l->node_begin[me.node + 1] - 1
			       : l->node_begin[me.node];
	add_ranks(t, l, &from, &me);
}

/* Returns the number of members of the largest one of n neighbours. Neighbour i
 * holds [begin[i], begin[i + 1]). */
static uint32_t most_of(const uint32_t *begin, uint32_t n)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < n; i++)
		if (begin[i + 1] - begin[i] > most)
			most = begin[i + 1] - begin[i];
	return most;
}

uint32_t tree_near_hops(const struct shape *s)
{
	const struct links *l = s->links;

	return l ? shape_log2_of(most_of(l->node_begin, l->nodes)) : 0;
}

uint32_t tree_hops(const struct shape *s)
{
	const struct links *l = s->links;

	if (!l)
		return shape_log2(s);
	return shape_log2_of(l->islands) +
	       shape_log2_of(most_of(l->island_begin, l->islands)) +
	       tree_near_hops(s);
}

void tree_work(const struct shape *s, uint64_t bytes, struct work *w)
{
	work_direct(s, bytes, w);
	w->hops = tree_hops(s);
	w->near_hops = tree_near_hops(s);
	/* The root has the most children, and as many as there are hops. */
	w->messages = w->hops;
	w->wire_bytes = w->hops * bytes;
	if (coll_reduces(s->coll))
		w->reduce_bytes = w->wire_bytes;
}
