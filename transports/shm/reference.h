/* SPDX-License-Identifier: BSD-3-Clause */
/* References to memory of another rank, and the memory that is mapped for
 * them. */
#ifndef DICOMM_TRANSPORTS_SHM_REFERENCE_H
#define DICOMM_TRANSPORTS_SHM_REFERENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "transports/transport.h"

/* Bytes of a tp_ref that are used. Together with the head of a line, they fill
 * one cache line. */
#define SHM_REF_BYTES 40
/* With SHM_MAP, for long messages only */
#define SHM_MAP_REF_BYTES 48

enum shm_how { SHM_POINTER = 1, SHM_MAP, SHM_CMA };
/* Returns how the reader is to reach the memory */
enum shm_how shm_ref_how(const struct tp_ref *ref);
/* Returns the address in the sender */
uint64_t shm_ref_address(const struct tp_ref *ref);

struct shm_mappings; /* memory of one peer that this process has mapped */
struct shm_segment;

/* How the reader can access memory of this rank. */
struct shm_offer {
	bool own;               /* the reader is in this process */
	bool cma;               /* the reader can use CMA */
	bool maps;              /* the reader can map allocations */
	uint64_t map_threshold; /* map messages of at least this many bytes */
	/* CMA for messages of at least this many bytes */
	uint64_t cma_threshold;
	pid_t pid; /* of this process */
};
/* Make a reference to [addr, addr + len) of the kind that is cheapest for the
 * reader. Returns false if none is cheaper than the ring. */
bool shm_ref_make(const struct shm_offer *how, const void *addr, uint64_t len,
		  struct tp_ref *ref);
dicomm_result_t shm_mappings_create(struct shm_mappings **out);
void shm_mappings_destroy(struct shm_mappings *mappings);
/* Map the memory of a reference. ERR_UNSUPPORTED: it has to be read instead.
 * IN_PROGRESS: the kernel refuses to map it, for the reason in errno; nothing
 * is logged. */
dicomm_result_t shm_ref_map(struct shm_mappings *mappings,
			    const struct shm_segment *seg,
			    const struct tp_ref *ref, uint64_t len,
			    const void **ptr);
/* Read the memory of a reference. IN_PROGRESS: the kernel refuses to read from
 * byte *got on, for the reason in errno; nothing is logged. */
dicomm_result_t shm_ref_read(struct shm_mappings *mappings,
			     const struct shm_segment *seg,
			     const struct tp_ref *ref, uint64_t offset,
			     void *dst, uint64_t len,
			     const _Atomic bool *aborted, uint64_t *got);
/* Add the allocations that this process has freed to the segment's header. */
void shm_freed_publish(struct shm_segment *seg);
/* Unmap what the owner has freed. This takes two steps, since messages that
 * refer to the memory may not be read yet. shm_mappings_mark_freed() marks it,
 * and returns true if the owner has freed something since the last time.
 * shm_mappings_unmap_marked() unmaps it. Call that when all messages are
 * released that had arrived at the first call. */
bool shm_mappings_mark_freed(struct shm_mappings *mappings,
			     const struct shm_segment *seg);
void shm_mappings_unmap_marked(struct shm_mappings *mappings,
			       const struct shm_segment *seg);

#endif
