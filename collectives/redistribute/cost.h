/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a way costs: the bytes and messages of the busiest rank and link, and
 * the time that follows from them. All numbers are integers, so that all ranks
 * choose alike.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_COST_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_COST_H

#include "collectives/redistribute/ways.h"
#include "collectives/select/estimate_params.h"

struct cost {
	uint64_t ps;
	uint64_t most_sent, most_received; /* by one rank */
	uint64_t bytes, between_nodes;     /* by all ranks */
	uint64_t pairs; /* ordered pairs of ranks that exchange messages */
};

#define COST_UNKNOWN UINT64_MAX

/* A piece of at least this many bytes is a message by itself. If it is
 * contiguous in the tensor, it needs no staging memory. */
#define REDIST_LARGE (UINT64_C(256) << 10)

/* Computes the cost of each way, by its number. First checks that the layouts
 * fit each other. `staging` is how many bytes a rank can move in one round.
 * Rates of `memory` replace those of `params` where the tensors do not fit into
 * the cache of a core. Returns DICOMM_ERR_INVALID_ARGUMENT or
 * DICOMM_ERR_NO_MEMORY on failure. */
dicomm_result_t cost_of_ways(const struct ways_input *in,
			     const struct estimate_params *params,
			     const struct memory_rates *memory,
			     uint64_t staging, struct cost out[WAYS]);

#endif
