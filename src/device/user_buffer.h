/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The user's buffers in device memory that transports access, or devices of
 * other processes (ipc.h). Messages from or to them need no copy on the device.
 *
 * These are buffers of dicomm_comm_register(), and whole allocations of
 * dicomm_mem_alloc() that long messages use. Other memory is not registered,
 * because the library would not notice when the user frees it. Transports
 * register a buffer, and it is offered to other processes, only while no stream
 * is blocked, since either could wait for one. Memory at an address may be
 * freed and allocated again. So each entry has the number of its allocation,
 * and counts only while the driver gives that number for the buffer of a call.
 *
 * Threads: any; one at a time for each communicator.
 */
#ifndef DICOMM_DEVICE_USER_BUFFER_H
#define DICOMM_DEVICE_USER_BUFFER_H

#include "src/core/comm.h"

struct user_buffer;
struct user_buffers;

/* Who reaches a buffer of this rank without a copy. All zero: nobody. */
struct buffer_reach {
	uint8_t transports; /* bit i: transport i */
	uint8_t offer;      /* the offer to other processes, counted from 1 */
};

/* Begin, when the ranks have met. Does nothing unless a transport with device
 * access leads to a peer, or a peer imports what is offered. */
dicomm_result_t user_buffer_open(struct dicomm_comm *comm);
void user_buffer_close(struct dicomm_comm *comm);

/* Add a buffer that the user registers. *out is NULL if no peer would use it.
 */
dicomm_result_t user_buffer_add(struct dicomm_comm *comm, const void *at,
				size_t bytes, struct user_buffer **out);
/* Waits a short time for neighbours that still have it mapped. */
void user_buffer_remove(struct dicomm_comm *comm, struct user_buffer *g);

/* Record memory that the library has allocated for the user, on any device. */
dicomm_result_t user_buffer_allocated(const struct accel *accel, int index,
				      const void *at, size_t bytes);
/* Free it when neighbours have unmapped it. Returns ERR_INVALID_ARGUMENT,
 * without a log line, if the library has not allocated it. */
dicomm_result_t user_buffer_free(void *at);

/* Set call->transports and call->offers, which say how the buffers of the call
 * are reached. Called before the call blocks a stream. */
void user_buffer_find(struct dicomm_comm *comm, struct call *call);

/* The same of one buffer; it may be NULL. */
struct buffer_reach user_buffer_reach(struct dicomm_comm *comm,
				      struct user_buffer *g);

/* Write one line with the number of buffers and their bytes. */
void user_buffer_explain(const struct dicomm_comm *comm, char *text,
			 size_t len);

#endif
