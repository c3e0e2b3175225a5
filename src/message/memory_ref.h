/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A memory reference is a message between two ranks of one machine that can
 * access each other's memory. It says where the bytes are. The sender keeps
 * them there until the receiver releases the message.
 *
 * What a receiver can access:
 *
 *  - Two devices of one kind: staging buffers in the other's device memory, and
 *    allocations that the other rank offers (ipc.h).
 *  - Two ranks of one process: also the user's buffers and scratch
 *    (in_process.h). On one device that is all memory. On two devices it is
 *    the memory that could be offered, if the driver gives peer access.
 *  - A host rank: staging buffers in host memory, which the device writes.
 *  - A device: operands of a host rank in memory of dicomm_mem_alloc(). That
 *    memory is registered with the device when the communicator begins. If it
 *    is allocated later, it is registered before a call blocks a stream.
 *
 * Everything else goes through the slots of a transport and is staged.
 */
#ifndef DICOMM_MESSAGE_MEMORY_REF_H
#define DICOMM_MESSAGE_MEMORY_REF_H

#include "src/core/comm.h"
#include "src/memory/blocked_streams.h"

/* As many as an inbox can have slots. */
#define MEMORY_REFS 64

/* Where the bytes of a message are. */
struct memory_ref {
	/* If id is not 0: an allocation of a host rank; or, for devices, an
	 * offer, with its number in fd and its serial number in id. If id is 0:
	 * the sender's staging buffers; or, for ranks of one process, `offset`
	 * is an address. */
	struct accel_export where;
	uint64_t offset, bytes;
};

/* The memory of one neighbour, as far as this rank can access it. */
struct neighbour {
	struct deferred deferred; /* unmaps all of it */
	/* Its staging buffers, as this rank or its device addresses them. NULL
	 * if there are none. */
	const uint8_t *stages;
	uint64_t stages_bytes;
	/* Keeps the staging buffers alive; -1: none. */
	int lease;
	void *ipc;                 /* mapping of them by the device, or NULL */
	void *map;                 /* mapping of them by the host, or NULL */
	struct accel_export where; /* what the host has mapped */
	struct host_maps *maps;    /* its host memory; NULL: none */
	/* The memory of a rank of this process. NULL if it is in another
	 * process. */
	struct in_process *in_process;
	/* It is on another device, so not everything that it sends is
	 * accessible. */
	bool apart;
	struct ipc_view *view; /* its offers; NULL: none */
	/* References in flight. Each stays until the receiver releases it. */
	struct memory_ref mem_refs[TP_CLASSES][MEMORY_REFS];
};

/* Where this rank finds the bytes of a memory reference. */
struct memory_place {
	const void *at;
	bool mapped; /* they are in memory of the sender */
	bool seen;   /* the rank's device loads from there */
};

/* Makes the reference to bytes in host memory that a neighbour's device reads
 * in place. Returns false if the bytes are not in memory of dicomm_mem_alloc(),
 * so that the device cannot read them. */
bool memory_ref_make(const void *at, size_t bytes, struct memory_ref *mem_ref);
/* Finds the bytes of a peer's reference. Returns DICOMM_ERR_REMOTE if they are
 * outside the memory that the peer shares, and DICOMM_ERR_NO_PATH if the device
 * cannot access them and must not stage them. */
dicomm_result_t memory_ref_locate(const struct dicomm_comm *comm,
				  const struct peer *peer,
				  const struct memory_ref *mem_ref,
				  struct memory_place *place);
/* Returns the signature of a message that is a reference. */
uint32_t memory_ref_signature(uint32_t signature);

/* Returns true if the peer has given up an operation, so that what it has sent
 * is invalid. */
bool memory_ref_gave_up(const struct peer *peer);

#endif
