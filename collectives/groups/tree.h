/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trees of ranks that follow the links. A message enters each island once and
 * each node once; the rank that receives it passes it on to the other ranks of
 * the node.
 *
 * There is one binomial tree of islands, one of the nodes in each island, and
 * one of the ranks on each node. Without links, there is one tree of all ranks.
 * In each tree, member i has the children i + 2^k for all 2^k > i. The members
 * with the lowest numbers have the most children; these are the fast nodes.
 */
#ifndef DICOMM_COLLECTIVES_GROUPS_TREE_H
#define DICOMM_COLLECTIVES_GROUPS_TREE_H

#include "collectives/plan/algorithm.h"

/* The most children of a rank: 32 in each of three binomial trees, and two in
 * the binary tree of allreduce_tree.c. */
#define TREE_MOST (3 * 32 + 2)

/* The neighbours of a rank in a tree. */
struct tree {
	int parent; /* -1 for the root */
	int children;
	/* Children with the most ranks below them come first. */
	int child[TREE_MOST];
};

/* Finds the neighbours of s->rank in the tree of all ranks with the given
 * root. */
void tree_of(const struct shape *s, int root, struct tree *t);

/* Finds the neighbours of s->rank in the tree of its node. The root is the
 * first rank of the node, or the last one if from_last. Without links, the rank
 * has no neighbours. */
void tree_of_node(const struct shape *s, bool from_last, struct tree *t);

/* tree_hops() returns the hops from the root to the rank that is reached last;
 * tree_near_hops() returns how many of them are within a node. */
uint32_t tree_hops(const struct shape *s);
uint32_t tree_near_hops(const struct shape *s);
/* A work() for algorithms that send a whole buffer along each edge of that
 * tree. */
void tree_work(const struct shape *s, uint64_t bytes, struct work *w);

#endif
