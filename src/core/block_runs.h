/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks that lie where the user says, as wires hold them: in runs. Blocks near
 * each other are one run, with what lies between; of the rest, each is its own.
 * So memory between blocks that lie far apart is not pinned, and none that is
 * not there is asked for.
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
	struct block_run *run; /* owned; NULL: none */
	size_t n;
};

/* Does the call say where the blocks of that buffer lie? */
static inline bool block_runs_apply(const struct call *call,
				    enum plan_buffer buffer)
{
	return buffer == PLAN_SEND ? call->send_displs : call->recv_displs;
}

/* The runs of such a buffer, by address. No block is in two. */
dicomm_result_t block_runs_find(const struct call *call, int rank, int ranks,
				enum plan_buffer buffer,
				struct block_runs *runs);
void block_runs_free(struct block_runs *runs);
/* Find and hold them; all, or none. */
dicomm_result_t block_runs_register(struct dicomm_comm *comm,
				    const struct call *call,
				    enum plan_buffer buffer,
				    struct block_runs *runs);
void block_runs_deregister(struct dicomm_comm *comm, struct block_runs *runs);

#endif
