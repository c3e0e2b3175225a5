/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From measured flows between nodes to a table of links.
 *
 * Nodes meet in rounds of disjoint pairs, in which each sends to the other as
 * fast as it goes. A flow is as fast as the narrowest way that it takes; so
 * what a node's way carries is the fastest flow through it. Pairs that get less
 * than both nodes have been seen to carry are taken to be of unlike islands. In
 * further rounds the nodes of one island meet those of another, all at the same
 * time: so much do the ways of both carry. Integers, the same on all ranks.
 */
#ifndef DICOMM_TOPO_RATES_H
#define DICOMM_TOPO_RATES_H

#include "src/base/links.h"

/* Rounds at most. Of up to eight nodes all meet all; more of them meet those at
 * distances of powers of two, and some others. */
#define RATES_ROUNDS 12
/* Rounds between islands; up to four of them all meet. */
#define RATES_ACROSS 3
#define RATES_FLOWS (RATES_ROUNDS + RATES_ACROSS)
/* Of a flow, in 1000 bytes per second: it was not measured. */
#define RATES_UNKNOWN UINT32_MAX

struct rates {
	uint32_t nodes;
	/* [node * RATES_FLOWS + round]: what reached it from its partner. Those
	 * across begin at RATES_ROUNDS. */
	uint32_t *flow;
	uint32_t *island_of; /* [node] */
	uint32_t islands;    /* 1: none were found */
};

/* Nothing is known yet; ERR_NO_MEMORY. */
dicomm_result_t rates_open(struct rates *r, uint32_t nodes);
void rates_close(struct rates *r);
/* Again. */
void rates_forget(struct rates *r);
/* What a rank of that node has measured, if anything. */
void rates_add(struct rates *r, uint32_t node,
	       const uint32_t flow[RATES_FLOWS]);

uint32_t rates_rounds(uint32_t nodes);
/* Whom a node meets in a round; RATES_UNKNOWN: nobody. */
uint32_t rates_partner(uint32_t nodes, uint32_t round, uint32_t node);

/* All rounds, if as many islands are found as there can be. */
uint32_t rates_most_rounds(uint32_t nodes);

/* After these rounds: the islands of the old table, or if it has none, those
 * that nodes seem to be in. ERR_NO_MEMORY. */
dicomm_result_t rates_find_islands(struct rates *r, const struct links *old);
uint32_t rates_across_rounds(const struct rates *r);
uint32_t rates_across_partner(const struct rates *r, uint32_t round,
			      uint32_t node);

/*
 * A table made from an old one, after all rounds. Where the old rates are
 * `known`, those that explain what was measured stay as they are, and *changed
 * is false if all do. Nearly equal rates become equal. ERR_NO_MEMORY.
 */
dicomm_result_t rates_links(const struct rates *r, const struct links *old,
			    bool known, struct links **out, bool *changed);

#endif
