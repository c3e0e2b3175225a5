/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a collective takes by an algorithm: arithmetic on its work.
 *
 * Integers only, so that all ranks get the same answer whatever their CPUs:
 * picoseconds, bytes, bytes per second. Results saturate.
 */
#ifndef DICOMM_COLLECTIVES_ESTIMATE_H
#define DICOMM_COLLECTIVES_ESTIMATE_H

#include "collectives/algorithm.h"

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

/* In place of a time: no memory to find it. */
#define ESTIMATE_FAILED UINT64_MAX

/* Picoseconds from the first post to the last completion, for buffers of
 * `bytes` (the longer one). */
uint64_t estimate_ps(const struct estimate_params *e, const struct algorithm *a,
		     const struct shape *s, uint64_t bytes);
/* What ranks of a node have instead, where its class says so: between two of
 * them, to reduce, and to copy, which is no slower than from one to another. */
void estimate_of_node(struct estimate_params *e, const struct links_class *c);
/* Bytes of the longest message, before it is cut into slices. */
uint64_t estimate_message_bytes(const struct algorithm *a,
				const struct shape *s, uint64_t bytes);

#endif
