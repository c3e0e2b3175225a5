/* SPDX-License-Identifier: BSD-3-Clause */
/* How fast data gets from one core to another. */
#ifndef DICOMM_TRANSPORTS_SHM_MEASURE_H
#define DICOMM_TRANSPORTS_SHM_MEASURE_H

#include <stdint.h>

struct shm_rates {
	uint64_t line_ps; /* a cache line, one way; 0: not known */
	/* Copying into lines that another core has read. */
	uint64_t fill_bytes_per_s;
	/* Copying from lines that another core has written. */
	uint64_t load_bytes_per_s;
	uint64_t cma_bytes_per_s; /* from another process; 0: impossible */
	uint64_t cma_ps;          /* for each call, in addition */
};

/* Measure. All is 0 if another process of the machine is measuring. */
void shm_measure(struct shm_rates *rates);
/* Rates that a peer has measured; used if this process has measured none. */
void shm_rates_tell(const struct shm_rates *rates);
/* The rates that this process uses: measured, else the first that a peer told,
 * else a guess. Any thread. */
void shm_rates_get(struct shm_rates *rates);

#endif
