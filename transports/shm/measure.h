/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures how fast data gets from one core to another. */
#ifndef DICOMM_TRANSPORTS_SHM_MEASURE_H
#define DICOMM_TRANSPORTS_SHM_MEASURE_H

#include <stdint.h>

struct shm_rates {
	/* picoseconds of a cache line, one way; 0: not known */
	uint64_t line_ps;
	/* Copying into lines that another core has read. */
	uint64_t fill_bytes_per_s;
	/* Copying from lines that another core has written. */
	uint64_t load_bytes_per_s;
	/* from another process; 0: CMA is not possible */
	uint64_t cma_bytes_per_s;
	uint64_t cma_ps; /* picoseconds for each call, in addition */
	/* Copying into lines that this core has, as those of an exchange
	 * buffer. */
	uint64_t own_bytes_per_s;
};

/* Measure once, and return the rates. All are 0 if this process did not get its
 * turn to measure, if the other core was busy, or if another process measures
 * for the communicator with the same key of SHM_MEASURE_KEY bytes (NULL: other
 * processes do not matter). Any thread. */
#define SHM_MEASURE_KEY 32
void shm_measure(const uint8_t *key, struct shm_rates *rates);
/* Called when all ranks of that communicator have called shm_measure(). Until
 * then, late ranks find that another one measures, and do not measure
 * themselves. */
void shm_measure_end(void);
/* Give this process the rates that a peer has measured. They are used if this
 * process has measured none. */
void shm_rates_tell(const struct shm_rates *rates);
/* Returns the rates that this process uses: its own; otherwise the first that a
 * peer has sent; otherwise a guess. Any thread. */
void shm_rates_get(struct shm_rates *rates);

#endif
