/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trees that follow links: each island is entered once, each node is, and its
 * other ranks hang below the one that was.
 *
 * One binomial tree of islands, one of the nodes of each island, one of the
 * ranks of each node; without links one of all ranks. In each of them i has the
 * children i + 2^k for all 2^k > i: the first ones, which are fast nodes, have
 * most.
 */
#ifndef DICOMM_COLLECTIVES_GROUPS_TREE_H
#define DICOMM_COLLECTIVES_GROUPS_TREE_H

#include "collectives/plan/algorithm.h"

/* Of three binomial trees, and two more. */
#define TREE_MOST (3 * 32 + 2)

/* The neighbours of a rank. */
struct tree {
	int parent; /* -1: it is the root */
	int children;
	int child[TREE_MOST]; /* those first that have most below them */
};

/* Of s->rank in the tree of all ranks that starts at `root`. */
void tree_of(const struct shape *s, int root, struct tree *t);

/* Of s->rank among those of its node, from the first one on, or the last;
 * without links it is alone. */
void tree_of_node(const struct shape *s, bool from_last, struct tree *t);

/* Hops from the root to the last rank; of these, within a node. */
uint32_t tree_hops(const struct shape *s);
uint32_t tree_near_hops(const struct shape *s);

#endif
