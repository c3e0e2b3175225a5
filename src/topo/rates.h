/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes a table of links from measured flows between nodes.
 *
 * The measurement has three stages:
 * 1. Nodes meet in rounds of disjoint pairs. Both send to each other as fast as
 *    they can. The narrowest link on the path limits a flow, so the fastest
 * flow of a node is the rate of its link. Two nodes that get less than both
 * have reached with others are taken to be in different islands.
 * 2. The nodes of one island meet those of another, all at the same time. The
 * sum of their flows is the rate of the link between the islands.
 * 3. A node that was as fast as each of its partners may be faster than they
 * are. It sends to several nodes of its island at once, and they send to it.
 *
 * All numbers are integers, the same on all ranks.
 */
#ifndef DICOMM_TOPO_RATES_H
#define DICOMM_TOPO_RATES_H

#include "src/base/links.h"

/* Rounds at most. Of up to eight nodes all meet all; more of them meet those at
 * distances of powers of two, and some others. */
#define RATES_ROUNDS 12
/* Rounds between islands; up to four of them all meet. */
#define RATES_ACROSS 3
/* Others that a node meets at once, at most: it may be found to be so many
 * times as fast as they. */
#define RATES_FAN 7
/* Where to find what it sends to all of them, and receives from them. */
#define RATES_FAN_UP (RATES_ROUNDS + RATES_ACROSS)
#define RATES_FAN_DOWN (RATES_FAN_UP + 1)
#define RATES_FLOWS (RATES_FAN_DOWN + 1)
/* Of a flow, in 1000 bytes per second: it was not measured. */
#define RATES_UNKNOWN UINT32_MAX

enum rates_stage { RATES_PAIRS, RATES_ISLANDS, RATES_FANS, RATES_DONE };

struct rates {
	uint32_t nodes;
	enum rates_stage stage; /* which flows are to be measured now */
	/* [node * RATES_FLOWS + round]: what reached it from its partner. Those
	 * across begin at RATES_ROUNDS. */
	uint32_t *flow;
	uint32_t *island_of; /* [node] */
	uint32_t islands;    /* 1: none were found */
	/* In fans: the group of a node, in which each meets all others, and
	 * its number there, or RATES_UNKNOWN: it need not. */
	uint32_t *group_of, *turn_of; /* [node] */
};

/* Whom a node meets in a round; who begins sends first. */
struct rates_meeting {
	uint32_t others;
	uint32_t other[RATES_FAN];
	bool begins;
};

/* Nothing is known yet; ERR_NO_MEMORY. */
dicomm_result_t rates_open(struct rates *r, uint32_t nodes);
void rates_close(struct rates *r);
/* Again. */
void rates_forget(struct rates *r);
/* What a rank of that node has measured, if anything. */
void rates_add(struct rates *r, uint32_t node,
	       const uint32_t flow[RATES_FLOWS]);

/* Of the stage. */
uint32_t rates_stage_rounds(const struct rates *r);
void rates_meet(const struct rates *r, uint32_t round, uint32_t node,
		struct rates_meeting *m);
/* Where in `flow` a round of pairs is. */
static inline uint32_t rates_slot(const struct rates *r, uint32_t round)
{
	return r->stage == RATES_ISLANDS ? RATES_ROUNDS + round : round;
}

/* Of the fastest flow so far, in bytes per second; 0: there was none. */
uint64_t rates_most(const struct rates *r);

/* Of all stages, if as many islands are found as there can be. */
uint32_t rates_most_rounds(uint32_t nodes);

/* When all flows of a stage are known: on to the next one that is needed. Where
 * the old rates are `known`, what they tell need not be found. ERR_NO_MEMORY.
 */
dicomm_result_t rates_proceed(struct rates *r, const struct links *old,
			      bool known);

/* Of the first stage; RATES_UNKNOWN: a node meets nobody. */
uint32_t rates_rounds(uint32_t nodes);
uint32_t rates_partner(uint32_t nodes, uint32_t round, uint32_t node);

/*
 * A table made from an old one, after all stages. Where the old rates are
 * `known`, those that explain what was measured stay as they are, and *changed
 * is false if all do. Nearly equal rates become equal. ERR_NO_MEMORY.
 */
dicomm_result_t rates_links(const struct rates *r, const struct links *old,
			    bool known, struct links **out, bool *changed);

#endif
