/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of one machine that reach each other's memory: a message between them
 * is a note of where its bytes are, and they stay there until it is released.
 *
 * Devices of one kind read stages in the memory of each other's device, or what
 * lies in allocations that the other offers (ipc.h). Of one process, they read
 * the memory of its users, too (lent.h): on one device all, on two such as
 * would be offered, if the driver lets them. A host rank reads stages in host
 * memory that a device writes. A device reads the operands of a host rank where
 * they are, if they are of dicomm_mem_alloc(): that memory is pinned for it
 * when the communicator begins, or, if it was allocated later, before a call
 * holds a stream. What is sent from elsewhere goes as on any wire, and is
 * staged.
 */
#ifndef DICOMM_ENGINE_MEMORY_REF_H
#define DICOMM_ENGINE_MEMORY_REF_H

#include "src/core/comm.h"
#include "src/memory/blocked_streams.h"

/* As many as there are slots in a ring at most */
#define MEMORY_REFS 64

/* Where the bytes of a message are. */
struct memory_ref {
	/* An allocation of a host, or in fd and id number and serial number of
	 * what a device offers; the id is 0: the sender's stages, or what it
	 * lends, of which the offset is the address. */
	struct accel_export where;
	uint64_t offset, bytes;
};

/* The memory of one neighbour, as far as this rank reaches it */
struct neighbour {
	struct deferred deferred; /* the end of it */
	/* Its stages, as this rank or its device sees them; NULL: none. */
	const uint8_t *stages;
	uint64_t stages_bytes;
	int lease;                 /* -1: none, else they stay for that */
	void *ipc;                 /* mapped for that by the device; or NULL */
	void *map;                 /* or by the host */
	struct accel_export where; /* of that */
	struct host_maps *maps;    /* its host memory; NULL: none */
	struct in_process *in_process; /* what it lends; NULL: nothing */
	bool apart;            /* on another device: not all that it sends */
	struct ipc_view *view; /* what it offers; NULL: nothing */
	/* Notes under way: they stay until they are released. */
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
/* The signature of a note that stands for a message */
uint32_t memory_ref_signature(uint32_t signature);

/* Has it given up an operation, and with it what it had sent? */
bool memory_ref_gave_up(const struct peer *peer);

#endif
