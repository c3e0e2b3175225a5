/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A memory reference is a message between two ranks of one machine that reach
 * each other's memory. It says where the bytes are. The sender keeps them there
 * until the receiver releases the message.
 *
 * What a receiver can reach:
 *
 * - Two devices of one kind: staging buffers in the other's device memory, and
 * allocations that the other rank offers (ipc.h).
 *
 * - Two ranks of one process: also the user's buffers and scratch
 * (in_process.h). On one device that is all memory, on two devices the memory
 * that could be offered, if the driver gives peer access.
 *
 * - A host rank: staging buffers in host memory, which the device writes.
 *
 * - A device: operands of a host rank in memory of dicomm_mem_alloc(). That
 * memory is registered with the device when the communicator begins, or, if it
 * is allocated later, before a call blocks a stream.
 *
 * Everything else goes through the slots of a transport and is staged.
 */
#ifndef DICOMM_ENGINE_MEMORY_REF_H
#define DICOMM_ENGINE_MEMORY_REF_H

#include "src/core/comm.h"
#include "src/memory/blocked_streams.h"

/* As many as an inbox can have slots */
#define MEMORY_REFS 64

/* Where the bytes of a message are */
struct memory_ref {
	/* id not 0: an allocation of a host rank; or, for devices, the offer:
	 * its number is in fd, its serial number in id. id 0: the sender's
	 * staging buffers; or for in_process, `offset` is an address. */
	struct accel_export where;
	uint64_t offset, bytes;
};

/* The memory of one neighbour, as far as this rank reaches it */
struct neighbour {
	struct deferred deferred; /* unmaps all of it */
	/* Its staging buffers as this rank, or its device, sees them. NULL:
	 * none. */
	const uint8_t *stages;
	uint64_t stages_bytes;
	int lease;                 /* keeps them alive; -1: none */
	void *ipc;                 /* the device's mapping of them, or NULL */
	void *map;                 /* or the host's mapping */
	struct accel_export where; /* of that */
	struct host_maps *maps;    /* its host memory; NULL: none */
	/* The memory of a rank in this process; NULL: it is in another */
	struct in_process *in_process;
	bool apart; /* on another device, so not all it sends is reachable */
	struct ipc_view *view; /* its offers; NULL: none */
	/* References under way. Each stays until it is released. */
	struct memory_ref mem_refs[TP_CLASSES][MEMORY_REFS];
};

/* Where this rank finds the bytes of a memory reference */
struct memory_place {
	const void *at;
	bool mapped; /* they are in memory of the sender */
	bool seen;   /* the rank's device loads from there */
};

/* Make the reference to bytes in host memory that a neighbour's device reads in
 * place. False: they are in no memory of dicomm_mem_alloc(), so it does not. */
bool memory_ref_make(const void *at, size_t bytes, struct memory_ref *mem_ref);
/* Find the bytes that a reference of this peer names. ERR_REMOTE for one that
 * leads outside of what the peer shares, ERR_NO_PATH where the device does not
 * reach them and must not stage. */
dicomm_result_t memory_ref_locate(const struct dicomm_comm *comm,
				  const struct peer *peer,
				  const struct memory_ref *mem_ref,
				  struct memory_place *place);
/* The signature of a message that is a reference */
uint32_t memory_ref_signature(uint32_t signature);

/* Has the peer given up an operation, so that what it had sent is invalid? */
bool memory_ref_gave_up(const struct peer *peer);

#endif
