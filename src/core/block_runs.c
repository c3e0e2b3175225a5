/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers the blocks of a v-collective's buffer in a few runs. */
#include "src/core/block_runs.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/plan/plan.h"
#include "src/base/log.h"
#include "src/base/type.h"
#include "src/core/comm.h"
#include "src/core/memory.h"

#ifndef MADV_POPULATE_READ
/* Known since Linux 5.14; older kernels refuse it. */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/*
 * Registering a gap of up to this many bytes costs no more than another
 * registration. Measured over rxe in a virtual machine: registering and
 * deregistering a page takes 52 us, each further page 0.4 us, and the check
 * below as much. That makes 64 pages. No real NIC was measured.
 */
#define GAP_BYTES ((size_t)256 << 10)

/*
 * Returns true if the gap between two blocks may be registered, too. Pages that
 * hold bytes of the blocks exist. Whether other pages exist is not known, so
 * this asks the kernel whether they do and whether they may be read or written.
 * The request also populates them, as registration would.
 */
static bool has_peer_access(uintptr_t end, uintptr_t next, bool written)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (end + page - 1) & -page, to = next & -page;

	if (next <= end)
		return true;
	if (next - end > GAP_BYTES)
		return false;
	return from >= to ||
	       !madvise((void *)from, to - from,
			written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

static int by_address(const void *a, const void *b)
{
	const struct block_run *x = a, *y = b;

	return (x->at > y->at) - (x->at < y->at);
}

/* Merges sorted runs. Returns how many are left. Blocks that are sent may
 * overlap. */
static size_t merge(struct block_run *run, size_t n, bool written)
{
	size_t last = 0;

	for (size_t i = 1; i < n; i++) {
		uintptr_t end = run[last].at + run[last].len;

		if (!has_peer_access(end, run[i].at, written))
			run[++last] = run[i];
		else if (run[i].at + run[i].len > end)
			run[last].len = run[i].at + run[i].len - run[last].at;
	}
	return n ? last + 1 : 0;
}

dicomm_result_t block_runs_find(const struct call *call, int rank, int ranks,
				enum plan_buffer buffer,
				struct block_runs *runs)
{
	bool sends = buffer == PLAN_SEND;
	const size_t *counts = sends ? call->send_counts : call->recv_counts;
	const size_t *displs = sends ? call->send_displs : call->recv_displs;
	uintptr_t base = (uintptr_t)(sends ? call->send : call->recv);
	size_t bytes = type_bytes(call->type), n = 0;
	uint32_t sent, received, blocks;
	struct block_run *run;

	call_layout(call->function, rank, ranks, call->root, &sent, &received);
	blocks = sends ? sent : received;
	run = calloc(blocks, sizeof(*run));
	if (!run)
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: no memory for %u blocks",
			    call_name(call->function), blocks);
	for (uint32_t b = 0; b < blocks; b++)
		if (counts[b])
			run[n++] = (struct block_run){base + displs[b],
						      counts[b] * bytes,
						      {.transports = 0}};
	qsort(run, n, sizeof(*run), by_address);
	runs->run = run;
	runs->n = merge(run, n, !sends);
	return DICOMM_SUCCESS;
}

void block_runs_free(struct block_runs *runs)
{
	free(runs->run);
	*runs = (struct block_runs){NULL, 0};
}

dicomm_result_t block_runs_register(struct dicomm_comm *comm,
				    const struct call *call,
				    enum plan_buffer buffer,
				    struct block_runs *runs)
{
	dicomm_result_t status;

	TRY(block_runs_find(call, call_rank(call, comm->rank),
			    call_ranks(call, comm->ranks), buffer, runs));
	for (size_t i = 0; i < runs->n; i++) {
		struct block_run *r = &runs->run[i];

		status = comm_mem_register(comm, (void *)r->at, r->len,
					   buffer == PLAN_RECV, &r->handles);
		if (status != DICOMM_SUCCESS) {
			block_runs_deregister(comm, runs);
			return status;
		}
	}
	return DICOMM_SUCCESS;
}

void block_runs_deregister(struct dicomm_comm *comm, struct block_runs *runs)
{
	/* Transports find the latest registration first, so deregister in
	 * reverse. */
	for (size_t i = runs->n; i > 0; i--)
		comm_mem_deregister(comm, &runs->run[i - 1].handles);
	block_runs_free(runs);
}
