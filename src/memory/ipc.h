/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory that a rank exports to devices of other processes on its
 * machine: buffers of users, and scratch. The others read there what the rank
 * sends, without a copy.
 *
 * Each rank has a page that its neighbours can read. It lists the allocations
 * that the rank offers, and which offers of each neighbour it has imported. The
 * owner offers an allocation. A neighbour imports it before one of its calls
 * blocks a stream, because an import could wait for a blocked stream. It then
 * marks the import on its own page. From then on the owner sends memory
 * references to that allocation. Until then, messages go through staging
 * buffers.
 *
 * A lease keeps offered memory alive while neighbours have it imported. A
 * thread of each process unmaps what is no longer offered, even if its ranks
 * make no calls. A rank that gives up an operation marks its page before the
 * buffers belong to the user again. A receiver looks at that mark after it has
 * read, and drops what it read if the mark is set.
 *
 * Threads: any.
 */
#ifndef DICOMM_MEMORY_IPC_H
#define DICOMM_MEMORY_IPC_H

#include "src/accel/accel.h"
#include "src/memory/lease.h"

/* Most allocations that a rank offers at a time. */
#define IPC_OFFERS 128

struct ipc;      /* what a rank offers */
struct ipc_view; /* what it has imported from one neighbour */

/* Create the page of a rank. `ranks` is the size of the communicator. */
dicomm_result_t ipc_create(const struct accel *accel, int index, int ranks,
			   struct ipc **out);
void ipc_free(struct ipc *ipc);
/* Store the export by which neighbours map the page. */
void ipc_tell(const struct ipc *ipc, struct accel_export *page);

/* Offer the allocation that contains `at`. `lease` keeps it alive; if it is
 * NULL, the offer begins a lease that does not own the memory. If the
 * allocation is already offered, that offer counts once more. Returns the
 * number of the offer, or -1 if the memory cannot be exported or all offers are
 * in use. */
int ipc_offer(struct ipc *ipc, const void *at, const struct lease *lease);
/* Withdraw an offer once. When it is withdrawn as often as it was made, it
 * ends; then this returns the lease that the offer began, which the caller
 * ends. Otherwise returns NULL. */
struct lease *ipc_withdraw(struct ipc *ipc, int offer);
/* Mark that this rank gives up: what neighbours read of its memory from now on
 * is invalid. */
void ipc_give_up(struct ipc *ipc);

/* Map the page of neighbour `rank`. `self` is this rank's number. */
dicomm_result_t ipc_view_open(struct ipc *ipc, const struct accel_export *page,
			      int rank, int self, struct ipc_view **out);
void ipc_view_close(struct ipc_view *view);
/* For all ranks of this process, import what their neighbours offer now, and
 * unmap what they do not offer any more. Skips a device while one of its
 * streams is blocked. */
void ipc_refresh(void);
/* Returns true if the neighbour has given up the operation that it sent for.
 * Call it after the bytes are read. */
bool ipc_gave_up(const struct ipc_view *view);

/* If that neighbour has imported the offer, returns the serial number by which
 * it finds the offer, and in *offset the distance of `at` from its start.
 * Otherwise returns 0. */
uint64_t ipc_reference(const struct ipc *ipc, const struct ipc_view *view,
		       int offer, const void *at, uint64_t *offset);
/* Find where this device sees a part of a neighbour's offer. Returns ERR_REMOTE
 * if the reference does not match what is imported. */
dicomm_result_t ipc_find(struct ipc_view *view, int offer, uint64_t serial,
			 uint64_t offset, uint64_t bytes, const void **at);

#endif
