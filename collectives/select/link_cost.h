/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Computes the load that an algorithm puts on each link, by counting the steps
 * of the plans of all ranks. So the result always agrees with what the plans
 * do. All numbers are integers.
 *
 * Counting takes long with many ranks, but the steps do not depend on the size
 * of the message. So it is done once, for buffers of 2^LINK_COST_SHIFT bytes
 * (the longer one), and the result is kept with the links.
 */
#ifndef DICOMM_COLLECTIVES_SELECT_LINK_COST_H
#define DICOMM_COLLECTIVES_SELECT_LINK_COST_H

#include "collectives/plan/algorithm.h"
#include "collectives/select/estimate_params.h"

struct link_cost {
	/* Times in picoseconds for buffers of 2^LINK_COST_SHIFT bytes. */
	uint64_t pipe_ps; /* until the last link has carried its bytes */
	uint64_t rank_ps; /* until the last rank has moved its bytes */
	/* CPU time per slice until the last rank has handled its messages. */
	uint64_t message_ps;
	/* Time of a hop between nodes, averaged over all nodes: a path with
	 * many hops takes slow ones and fast ones. */
	uint64_t hop_ps;
	uint64_t near_hop_ps; /* time of a hop within a node */
	uint64_t latency_ps;  /* latency of a message between nodes */
};

#define LINK_COST_SHIFT 30

/* Computes or looks up the cost for a shape with links. Returns
 * DICOMM_ERR_NO_MEMORY if there is no memory. */
dicomm_result_t link_cost_of(const struct estimate_params *e,
			     const struct algorithm *a, const struct shape *s,
			     struct link_cost *out);
/* Scales one of the times to buffers of `bytes` bytes. The result saturates. */
uint64_t link_cost_scaled(uint64_t ps, uint64_t bytes);

#endif
