/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plan of collectives/redistribute/ with what its runs need: the communicator
 * and staging memory on the device.
 *
 * A run is a chain of ordinary operations on the user's stream: work of this
 * rank alone (struct local_work: copies and sums), then a group of sends and
 * receives, for each round. So all devices and transports serve, and the order
 * is that of the stream.
 */
#ifndef DICOMM_REDISTRIBUTE_REDISTRIBUTE_H
#define DICOMM_REDISTRIBUTE_REDISTRIBUTE_H

#include "collectives/redistribute/plan.h"
#include "src/core/call.h"
#include "src/core/comm.h"

#define REDISTRIBUTE_MAGIC UINT64_C(0xd1c07ed1577b00f5)

struct redistribute_run;

struct dicomm_redistribute {
	uint64_t magic;
	struct dicomm_comm *comm;
	struct redist_plan *plan;
	uint8_t *staging; /* owned; dicomm_comm_mem_alloc() */
	/* Owned. One for each run that was ever under way at one time */
	struct redistribute_run *runs;
};

/* Copy n bytes of each rank to all, in rank order; a collective call that
 * waits. */
dicomm_result_t gather_bytes(struct dicomm_comm *comm, const void *mine,
			     void *all, size_t bytes);
/* The same, bytes[r] of rank r, one after the other. */
dicomm_result_t gather_blocks(struct dicomm_comm *comm, const void *mine,
			      void *all, const size_t *bytes);

/* Measures this machine, once, within about 20 ms. */
void memory_measure(struct memory_rates *out);

/* Can this rank's device do the sums of the plan? ERR_UNSUPPORTED. */
dicomm_result_t run_check(const struct dicomm_comm *comm,
			  const struct redist_plan *plan);
/* Arguments are checked. */
dicomm_result_t run_start(struct dicomm_redistribute *r,
			  const void *const *source, void *const *target,
			  dicomm_stream_t stream);
/* Is any run under way? */
bool run_pending(const struct dicomm_redistribute *r);
void run_free_all(struct dicomm_redistribute *r);

#endif
