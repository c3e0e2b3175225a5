/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The latencies and rates of a machine and its links that the estimate uses.
 * All are integers. src/links/cost_table.c fills them in.
 */
#ifndef DICOMM_COLLECTIVES_SELECT_ESTIMATE_PARAMS_H
#define DICOMM_COLLECTIVES_SELECT_ESTIMATE_PARAMS_H

#include <stdint.h>

#include "src/base/links.h"

/* What a machine can do. This is plain data: rank 0 measures it, and all ranks
 * get a copy. */
struct estimate_params {
	uint64_t latency_ps;     /* of a message of a few bytes, from call to
				  * call */
	uint64_t per_message_ps; /* CPU time to send or to receive a message */
	/* If a node has more ranks than cores: the time that a waiting rank
	 * needs to let another rank run on its core. 0: as latency_ps. */
	uint64_t yield_ps;
	uint64_t bytes_per_s;        /* of a link, in one direction */
	uint64_t reduce_bytes_per_s; /* bytes of result, by one core */
	uint64_t copy_bytes_per_s;   /* by one core */
	uint32_t slot_bytes;         /* the largest message */
	/* The largest message of an algorithm without scratch, if no slot has
	 * to hold its messages. 0 if slots have to. */
	uint32_t slice_bytes;
	uint32_t node_ranks, node_cores;
};

#define MEMORY_SPANS 3

/* How fast one core copies, for different numbers of bytes that the copies
 * touch in all: these fit into a cache, or do not. */
struct memory_rates {
	uint64_t bytes[MEMORY_SPANS]; /* upper bound of each entry, ascending */
	uint64_t bytes_per_s[MEMORY_SPANS]; /* 0: not known */
};

/* Replaces rates by those of class c of nodes, where the declared links have
 * them: the rate between two ranks of a node, and the rate of reductions.
 * Copies become at least as fast as messages within the node. */
void estimate_params_of_node(struct estimate_params *e,
			     const struct links_class *c);

#endif
