/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A collective that goes by islands, as it runs: what the vendor's library does
 * of it, and its memory.
 *
 * Threads: the one that makes the call.
 */
#ifndef DICOMM_ISLAND_JOB_H
#define DICOMM_ISLAND_JOB_H

#include "src/island/island.h"

struct job {
	struct island *is;
	const struct vendor_functions *f;
	struct vendor_comm *vendor;
	dicomm_stream_t stream;
	bool captured;    /* into a graph */
	const char *what; /* the vendor's function that is called */
	enum coll coll;
	dicomm_datatype_t type;
	dicomm_redop_t op;
	int root;
	size_t count, elem; /* of a block, as in struct call */
	size_t stride;      /* of blocks in buffers: longer if this is a part */
	const uint8_t *send;
	uint8_t *recv;
	uint8_t *scratch;
	uint32_t me, size; /* this rank's number in its island, of so many */
};

/* Queues functions of the vendor's. Returns what they do. */
typedef int island_queue_fn(struct job *j);

static inline bool island_job_is_alone(const struct job *j)
{
	return j->size == 1;
}

/* Inside islands an average is a sum. */
static inline int island_job_op(const struct job *j)
{
	return j->op == DICOMM_AVG ? DICOMM_SUM : (int)j->op;
}

/* After a failure, breaks the communicator: the others wait for the calls that
 * are missing. Returns the status. */
dicomm_result_t island_job_missed(const struct job *j, dicomm_result_t status);
/* Has scratch point to so many bytes. */
dicomm_result_t island_job_scratch(struct job *j, size_t bytes);

#endif
