/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an algorithm loads the links with: the steps of all ranks, counted, so
 * it cannot differ from what they do. Integers only, as in the estimate.
 *
 * Counting takes a while where there are many ranks, and the steps do not
 * depend on the size: so it is done for one size, and kept with the links.
 */
#ifndef DICOMM_COLLECTIVES_SELECT_LINK_COST_H
#define DICOMM_COLLECTIVES_SELECT_LINK_COST_H

#include "collectives/plan/algorithm.h"
#include "collectives/select/estimate_params.h"

struct link_cost {
	/* For buffers of 2^LINK_COST_SHIFT bytes (the longer one). */
	uint64_t pipe_ps; /* until the last pipe has carried its bytes */
	uint64_t rank_ps; /* until the last rank has moved its bytes */
	/* For each slice: of the CPU, until the last rank has done with its
	 * messages. */
	uint64_t message_ps;
	/* From one node to the next: the mean of all, of which a path with many
	 * hops takes in slow ones and fast ones. */
	uint64_t hop_ps;
	uint64_t near_hop_ps; /* likewise, within a node */
	uint64_t latency_ps;  /* of a message between nodes */
};

#define LINK_COST_SHIFT 30

/* Of a shape with links. ERR_NO_MEMORY. */
dicomm_result_t link_cost_of(const struct estimate_params *e,
			     const struct algorithm *a, const struct shape *s,
			     struct link_cost *out);
/* One of its times for buffers of so many bytes. */
uint64_t link_cost_scaled(uint64_t ps, uint64_t bytes);

#endif
