/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross-memory attach (CMA): reads the memory of another process. */
#ifndef DICOMM_TRANSPORTS_SHM_CMA_H
#define DICOMM_TRANSPORTS_SHM_CMA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

struct shm_rates;
struct shm_segment;

/* What else happens between two ranks while one sends to the other */
enum shm_traffic {
	SHM_ONE_WAY,  /* nothing, so it sends in slots */
	SHM_IN_TURN,  /* the other one sends before and after */
	SHM_BOTH_WAYS /* the other one sends as much at the same time */
};

/* Find the range of lengths, up to `most` bytes, for which CMA is faster than
 * the ring. *first is UINT64_MAX if there is none. */
void shm_cma_pays(const struct shm_rates *rates, enum shm_traffic traffic,
		  uint64_t most, uint64_t *first, uint64_t *last);

/* Returns true if this process can read the memory of the segment's owner. */
bool shm_cma_works(const struct shm_segment *seg);
/* Reads memory of the segment's owner; *got becomes the number of bytes that
 * were read. IN_PROGRESS: the owner is alive, but the kernel refuses the rest,
 * for the reason in errno; nothing is logged. */
dicomm_result_t shm_cma_read(const struct shm_segment *seg, uint64_t addr,
			     void *dst, uint64_t len,
			     const _Atomic bool *aborted, uint64_t *got);

#endif
