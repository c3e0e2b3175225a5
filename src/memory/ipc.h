/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a device that devices of other processes map, to read what is sent
 * from there where it is: the buffers of users, and scratch.
 *
 * Each rank has a page that its neighbours can read. It lists the allocations
 * that the rank offers, and those of each neighbour that it has mapped. To map
 * could wait for a stream that is held, so neighbours look at the list before a
 * call holds one; and a message is a note of what lies in an offer only once
 * its receiver says that it has mapped that. What is new goes by way of stages
 * until then.
 *
 * Memory that is offered stays while neighbours have it mapped, by a lease. A
 * thread of theirs lets go of what is not offered any more, for they may be
 * elsewhere for a long time. A rank that gives up an operation says so on its
 * page before its buffers are the user's again; who has read them looks there
 * before it takes what it read for the message.
 *
 * Threads: any.
 */
#ifndef DICOMM_MEMORY_IPC_H
#define DICOMM_MEMORY_IPC_H

#include "src/accel/accel.h"
#include "src/memory/lease.h"

/* Allocations that a rank offers at a time */
#define IPC_OFFERS 128

struct ipc;      /* what a rank offers */
struct ipc_view; /* what it has mapped of a neighbour's */

/* The page of a rank of so many. */
dicomm_result_t ipc_create(const struct accel *accel, int index, int ranks,
			   struct ipc **out);
void ipc_free(struct ipc *ipc);
/* For neighbours, to map the page. */
void ipc_tell(const struct ipc *ipc, struct accel_export *page);

/* Offer the allocation that lies at `at`, which that lease keeps; NULL: one
 * that the offer begins, without memory of its own. Of what is offered already
 * it is the same offer once more. The number of the offer; -1: it cannot be
 * mapped by others, or there are too many. */
int ipc_offer(struct ipc *ipc, const void *at, const struct lease *lease);
/* The lease that the offer began, if it is withdrawn as often as it was made;
 * else NULL. */
struct lease *ipc_withdraw(struct ipc *ipc, int offer);
/* Nothing that was read counts from now on. */
void ipc_give_up(struct ipc *ipc);

/* Map the page of a neighbour; its rank, and one's own. */
dicomm_result_t ipc_view_open(struct ipc *ipc, const struct accel_export *page,
			      int rank, int self, struct ipc_view **out);
void ipc_view_close(struct ipc_view *view);
/* Map what the neighbours of all ranks of this process offer now, and let go of
 * the rest; nothing of a device while a stream of it is held. */
void ipc_refresh(void);
/* Has the neighbour given up what it sent? */
bool ipc_gave_up(const struct ipc_view *view);

/* Does that neighbour have this rank's offer? Then the serial number, by which
 * it finds it, and how far `at` lies in it; else 0. */
uint64_t ipc_reference(const struct ipc *ipc, const struct ipc_view *view,
		       int offer, const void *at, uint64_t *offset);
/* Where the device sees that part of a neighbour's. */
dicomm_result_t ipc_find(struct ipc_view *view, int offer, uint64_t serial,
			 uint64_t offset, uint64_t bytes, const void **at);

#endif
