/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of users in the memory of a device that wires reach, or devices of
 * other processes (ipc.h): what is sent from there, or received to there, needs
 * no copy on the device.
 *
 * They are those of dicomm_comm_register(), and whole allocations of
 * dicomm_mem_alloc() that long messages come from or go to: for of what the
 * user alone frees, nobody would tell. A wire is asked, and an offer made, when
 * no stream is held, since that could wait for one. An address says nothing of
 * what lies there: each entry has the number of its allocation, and is of use
 * only while that is what the driver says of the buffer of a call.
 *
 * Threads: any; as for the communicator itself, one at a time for each.
 */
#ifndef DICOMM_DEVICE_USER_BUFFER_H
#define DICOMM_DEVICE_USER_BUFFER_H

#include "src/core/comm.h"

struct user_buffer;
struct user_buffers;

/* When the ranks have met: of use only where a wire leads to a peer that both
 * reach by it, or a peer maps what is offered. */
dicomm_result_t user_buffer_open(struct dicomm_comm *comm);
void user_buffer_close(struct dicomm_comm *comm);

/* A buffer that the user announces; NULL in *out where nobody would use it. */
dicomm_result_t user_buffer_add(struct dicomm_comm *comm, const void *at,
				size_t bytes, struct user_buffer **out);
/* Waits for neighbours that still have it mapped, but not for long. */
void user_buffer_remove(struct dicomm_comm *comm, struct user_buffer *g);

/* Memory that the library allocates for the user, on any device. */
dicomm_result_t user_buffer_allocated(const struct accel *accel, int index,
				      const void *at, size_t bytes);
/* Free it, when neighbours have let go of it too. INVALID_ARGUMENT, not logged:
 * it is none. */
dicomm_result_t user_buffer_free(void *at);

/* Before a call holds a stream: who reaches its buffers? */
void user_buffer_find(struct dicomm_comm *comm, struct call *call);

/* One line of how much there is. */
void user_buffer_explain(const struct dicomm_comm *comm, char *text,
			 size_t len);

#endif
