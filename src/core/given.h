/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of users in the memory of a device that wires reach: what is sent
 * from there, or received to there, needs no copy on the device.
 *
 * They are those of dicomm_comm_register(), and whole allocations of
 * dicomm_mem_alloc() that long messages come from or go to: for of what the
 * user alone frees, nobody would tell. A wire is asked when no stream is held,
 * since that could wait for one. An address says nothing of what lies there:
 * each entry has the number of its allocation, and is of use only while that is
 * what the driver says of the buffer of a call.
 *
 * Threads: any; as for the communicator itself, one at a time for each.
 */
#ifndef DICOMM_CORE_GIVEN_H
#define DICOMM_CORE_GIVEN_H

#include "src/core/comm.h"

struct given;
struct givens;

/* When the ranks have met: of use only where a wire leads to a peer that both
 * reach by it. */
dicomm_result_t given_open(struct dicomm_comm *comm);
void given_close(struct dicomm_comm *comm);

/* A buffer that the user announces; NULL in *out where no wire would use it. */
dicomm_result_t given_add(struct dicomm_comm *comm, const void *at,
			  size_t bytes, struct given **out);
void given_remove(struct dicomm_comm *comm, struct given *g);

/* Memory that the library allocates for the user, on any device; and before it
 * is freed. */
dicomm_result_t given_allocated(const void *at, size_t bytes);
void given_freed(const void *at);

/* Before a call holds a stream: which wires reach its buffers? */
void given_find(struct dicomm_comm *comm, struct call *call);

/* One line of how much there is. */
void given_explain(const struct dicomm_comm *comm, char *text, size_t len);

#endif
