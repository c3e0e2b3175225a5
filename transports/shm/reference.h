/* SPDX-License-Identifier: BSD-3-Clause */
/* References to memory of another rank, and what was mapped by them. */
#ifndef DICOMM_TRANSPORTS_SHM_REFERENCE_H
#define DICOMM_TRANSPORTS_SHM_REFERENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "transports/transport.h"

/* Bytes of a tp_ref that are used: with the head of a line, one cache line. */
#define SHM_REF_BYTES 40

struct shm_mappings; /* memory of one peer that this process has mapped */
struct shm_segment;

/* How the reader can reach memory of this rank. */
struct shm_offer {
	bool own;               /* the reader is in this process */
	bool cma;               /* the reader can use CMA */
	uint64_t map_threshold; /* map from that length on */
	uint64_t cma_threshold; /* CMA from that length on */
	pid_t pid;              /* of this process */
};
/* Make a reference to [addr, addr + len) of the kind that is cheapest for the
 * reader. False: none is cheaper than the ring. */
bool shm_ref_make(const struct shm_offer *how, const void *addr, uint64_t len,
		  struct tp_ref *ref);
dicomm_result_t shm_mappings_create(struct shm_mappings **out);
void shm_mappings_destroy(struct shm_mappings *mappings);
dicomm_result_t shm_ref_map(struct shm_mappings *mappings,
			    const struct shm_segment *seg,
			    const struct tp_ref *ref, uint64_t len,
			    const void **ptr);
dicomm_result_t shm_ref_read(struct shm_mappings *mappings,
			     const struct shm_segment *seg,
			     const struct tp_ref *ref, uint64_t offset,
			     void *dst, uint64_t len,
			     const _Atomic bool *aborted);
/* Write into the header which allocations this process has freed. */
void shm_freed_publish(struct shm_segment *seg);
/* Unmap what the owner has freed. It takes two steps, since there may be
 * messages that refer to it and are not read yet. The first marks it, and is
 * true if the owner has freed something since the last time. The second unmaps
 * it; call it when all messages that had arrived at the first are released. */
bool shm_mappings_mark_freed(struct shm_mappings *mappings,
			     const struct shm_segment *seg);
void shm_mappings_unmap_marked(struct shm_mappings *mappings,
			       const struct shm_segment *seg);

#endif
