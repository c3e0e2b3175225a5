/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trees of ranks that follow the links: a message enters each island once and
 * each node once, and goes on from that rank to the others of the node.
 *
 * There is one binomial tree of islands, one of the nodes in each island, and
 * one of the ranks on each node; without links there is one of all ranks. In
 * each tree, number i has the children i + 2^k for all 2^k > i. The first
 * numbers, which are the fast nodes, have the most children.
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
