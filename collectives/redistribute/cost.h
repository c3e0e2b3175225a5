/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a way costs: the bytes and messages of the busiest rank and link, and
 * the time that follows. Integers only, so that all ranks choose alike.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_COST_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_COST_H

#include "collectives/redistribute/ways.h"
#include "collectives/select/estimate_params.h"

struct cost {
	uint64_t ps;
	uint64_t most_sent, most_received; /* of one rank */
	uint64_t bytes, between_nodes;     /* of all ranks */
	uint64_t pairs; /* of ranks that exchange messages, one way */
};

#define COST_UNKNOWN UINT64_MAX

/* Of each way, by its number. Says first whether the layouts fit. staging:
 * bytes that a rank can move in one round. ERR_INVALID_ARGUMENT, ERR_NO_MEMORY.
 */
dicomm_result_t cost_of_ways(const struct ways_input *in,
			     const struct estimate_params *params,
			     uint64_t staging, struct cost out[WAYS]);

#endif
