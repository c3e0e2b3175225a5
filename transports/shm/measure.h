/* SPDX-License-Identifier: BSD-3-Clause */
/* How far away other cores are. */
#ifndef DICOMM_TRANSPORTS_SHM_MEASURE_H
#define DICOMM_TRANSPORTS_SHM_MEASURE_H

#include <stdint.h>

struct shm_rates {
	uint64_t line_ps;          /* a cache line, one way; 0: not known */
	uint64_t fill_bytes_per_s; /* copying to where another core has read */
	uint64_t load_bytes_per_s; /* copying what another core has written */
	uint64_t cma_bytes_per_s;  /* from another process; 0: impossible */
	uint64_t cma_ps;           /* for the call, in addition */
};

/* Measure, unless another process of the machine does: then all is 0. */
void shm_measure(struct shm_rates *rates);
/* What a peer has measured, for a process that has not. */
void shm_rates_tell(const struct shm_rates *rates);
/* What this process uses: what it has measured, else the first that a peer has
 * told, else a guess. Any thread. */
void shm_rates_get(struct shm_rates *rates);

#endif
