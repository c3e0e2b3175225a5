/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a machine and its links can do, as the estimate of a collective takes
 * it: latencies and rates, integers only.
 */
#ifndef DICOMM_COLLECTIVES_SELECT_ESTIMATE_PARAMS_H
#define DICOMM_COLLECTIVES_SELECT_ESTIMATE_PARAMS_H

#include <stdint.h>

#include "src/base/links.h"

/* What a machine can do. Plain data: rank 0 measures it, all get its copy. */
struct estimate_params {
	uint64_t latency_ps;     /* a few bytes, from call to call */
	uint64_t per_message_ps; /* of the CPU, to send or receive one */
	/* With more ranks than cores: until a rank that waits for another one
	 * on its core has let it run. 0: latency_ps. */
	uint64_t yield_ps;
	uint64_t bytes_per_s;        /* of a link, one way */
	uint64_t reduce_bytes_per_s; /* result bytes; one core */
	uint64_t copy_bytes_per_s;   /* one core */
	uint32_t slot_bytes;         /* largest message */
	/* The same of algorithms without scratch, where no slot has to hold it;
	 * 0: that is not so. */
	uint32_t slice_bytes;
	uint32_t node_ranks, node_cores;
};

/* Replace rates by those of one node, where its class in the declared links has
 * them: between two of its ranks, and to reduce. A copy is no slower than a
 * message to another rank. */
void estimate_params_of_node(struct estimate_params *e,
			     const struct links_class *c);

#endif
