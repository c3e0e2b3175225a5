/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The blocks of a v-collective's buffer, as the runs in which they are
 * registered with the transports. Blocks near each other form one run, together
 * with the gap between them. Every other block is a run of its own. So memory
 * between distant blocks is not pinned, and need not exist.
 */
#ifndef DICOMM_CORE_BLOCK_RUNS_H
#define DICOMM_CORE_BLOCK_RUNS_H

#include "src/core/call.h"
#include "src/core/memory.h"

struct dicomm_comm;

struct block_run {
	uintptr_t at;
	size_t len;
	struct mem_handles handles;
};

struct block_runs {
	struct block_run *run; /* owned; NULL: no runs */
	size_t n;
};

/* Returns true if the call gives the positions of the blocks of that buffer. */
static inline bool block_runs_apply(const struct call *call,
				    enum plan_buffer buffer)
{
	return buffer == PLAN_SEND ? call->send_displs : call->recv_displs;
}

/* Finds the runs of that buffer, in order of addresses. Runs do not overlap. */
dicomm_result_t block_runs_find(const struct call *call, int rank, int ranks,
				enum plan_buffer buffer,
				struct block_runs *runs);
void block_runs_free(struct block_runs *runs);
/* Finds the runs and registers them. On failure, none is registered. */
dicomm_result_t block_runs_register(struct dicomm_comm *comm,
				    const struct call *call,
				    enum plan_buffer buffer,
				    struct block_runs *runs);
void block_runs_deregister(struct dicomm_comm *comm, struct block_runs *runs);

#endif
