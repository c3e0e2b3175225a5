/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an algorithm loads the links with: the steps of all ranks, counted, so
 * it cannot differ from what they do. Integers only, as in the estimate.
 */
#ifndef DICOMM_COLLECTIVES_TALLY_H
#define DICOMM_COLLECTIVES_TALLY_H

#include "collectives/estimate.h"

struct tally_load {
	uint64_t pipe_ps;    /* until the last pipe has carried its bytes */
	uint64_t rank_ps;    /* until the last rank has done its work */
	uint64_t slowest;    /* bytes per second of the slowest node's way */
	uint64_t latency_ps; /* of a message between nodes */
};

/* For buffers of `bytes` (the longer one), and messages cut into so many
 * slices. ERR_NO_MEMORY. */
dicomm_result_t tally_load(const struct estimate_params *e,
			   const struct algorithm *a, const struct shape *s,
			   uint64_t bytes, uint64_t slices,
			   struct tally_load *load);

#endif
