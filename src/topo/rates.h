/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes a table of links from measured flows between nodes.
 *
 * The measurement has three stages:
 * 1. Nodes meet in rounds of disjoint pairs. Both send to each other as fast as
 *    they can. The narrowest link on the path limits a flow, so the fastest
 *    flow of a node is the rate of its link. If two nodes get less from each
 *    other than both get from other nodes, they are taken to be in different
 *    islands.
 * 2. The nodes of one island meet those of another, all at the same time. The
 *    sum of their flows is the rate of the link between the islands.
 * 3. A node that was as fast as each of its partners may be faster than they
 *    are. It sends to several nodes of its island at once, and they send to it.
 *
 * All numbers are integers, the same on all ranks.
 */
#ifndef DICOMM_TOPO_RATES_H
#define DICOMM_TOPO_RATES_H

#include "src/base/links.h"

/* Most rounds of pairs. Among up to eight nodes, each meets all others. With
 * more nodes, each meets those at distances of powers of two, and a few
 * others. */
#define RATES_ROUNDS 12
/* Most rounds between islands. Among up to four islands, each meets all
 * others. */
#define RATES_ACROSS 3
/* Most nodes that one node meets at once in stage 3. So a node can be found to
 * be at most this many times as fast as the others. */
#define RATES_FAN 7
/* Places in a node's flows: what it sent to all nodes of its group at once, and
 * what it received from them. */
#define RATES_FAN_UP (RATES_ROUNDS + RATES_ACROSS)
#define RATES_FAN_DOWN (RATES_FAN_UP + 1)
#define RATES_FLOWS (RATES_FAN_DOWN + 1)
/* A flow that was not measured. Flows are in 1000 bytes per second. */
#define RATES_UNKNOWN UINT32_MAX

enum rates_stage { RATES_PAIRS, RATES_ISLANDS, RATES_FANS, RATES_DONE };

struct rates {
	uint32_t nodes;
	/* the stage whose flows are to be measured now */
	enum rates_stage stage;
	/* [node * RATES_FLOWS + round]: what the node received from its partner
	 * of the round. Rounds between islands begin at RATES_ROUNDS. */
	uint32_t *flow;
	uint32_t *island_of; /* [node] */
	uint32_t islands;    /* 1: no islands were found */
	/* In stage RATES_FANS: the group of a node, and the round in which the
	 * node meets all others of its group. RATES_UNKNOWN: it need not. */
	uint32_t *group_of, *turn_of; /* [node] */
};

/* The nodes that a node meets in a round. The one with `begins` sends first. */
struct rates_meeting {
	uint32_t others;
	uint32_t other[RATES_FAN];
	bool begins;
};

/* Begin without any flows. Returns ERR_NO_MEMORY if memory is short. */
dicomm_result_t rates_open(struct rates *r, uint32_t nodes);
void rates_close(struct rates *r);
/* Forget all flows, to measure again. */
void rates_forget(struct rates *r);
/* Add the flows that a rank of that node has measured. Entries that are
 * RATES_UNKNOWN change nothing. */
void rates_add(struct rates *r, uint32_t node,
	       const uint32_t flow[RATES_FLOWS]);

/* Returns the number of rounds of the current stage. */
uint32_t rates_stage_rounds(const struct rates *r);
void rates_meet(const struct rates *r, uint32_t round, uint32_t node,
		struct rates_meeting *m);
/* Returns the place in a node's flows for a round of pairs, of nodes or
 * of islands. */
static inline uint32_t rates_slot(const struct rates *r, uint32_t round)
{
	return r->stage == RATES_ISLANDS ? RATES_ROUNDS + round : round;
}

/* Returns the fastest flow so far, in bytes per second, or 0 if there is
 * none. */
uint64_t rates_most(const struct rates *r);

/* Returns the number of rounds of all stages, if there are as many islands as
 * there can be. */
uint32_t rates_most_rounds(uint32_t nodes);

/* Go on to the next stage that is needed, once all flows of the current one are
 * known. With `known`, the rates in `old` are valid, and links whose rates they
 * have are not measured again. Returns ERR_NO_MEMORY if memory is short. */
dicomm_result_t rates_proceed(struct rates *r, const struct links *old,
			      bool known);

/* The number of rounds of the first stage, and the partner of a node in one of
 * them. RATES_UNKNOWN: the node meets nobody. */
uint32_t rates_rounds(uint32_t nodes);
uint32_t rates_partner(uint32_t nodes, uint32_t round, uint32_t node);

/*
 * Make a table of links from an old one, after all stages. With `known`, the
 * rates in `old` are valid: those that explain what was measured are kept, and
 * *changed is false if all are. Nearly equal rates become equal. The caller
 * frees *out. Returns ERR_NO_MEMORY if memory is short.
 */
dicomm_result_t rates_links(const struct rates *r, const struct links *old,
			    bool known, struct links **out, bool *changed);

#endif
