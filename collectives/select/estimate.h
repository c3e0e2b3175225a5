/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Predicts how long a collective takes with an algorithm.
 *
 * All numbers are integers (picoseconds, bytes, bytes per second), so that all
 * ranks get the same result on any CPU. Results saturate.
 */
#ifndef DICOMM_COLLECTIVES_SELECT_ESTIMATE_H
#define DICOMM_COLLECTIVES_SELECT_ESTIMATE_H

#include "collectives/plan/algorithm.h"
#include "collectives/select/estimate_params.h"

/* Returned instead of a time if there was no memory to compute it. */
#define ESTIMATE_FAILED UINT64_MAX

/* Returns the predicted time in picoseconds, from the first post to the last
 * completion. `bytes` is the length of the longer buffer. */
uint64_t estimate_ps(const struct estimate_params *e, const struct algorithm *a,
		     const struct shape *s, uint64_t bytes);
/* Returns the bytes of the longest message, before it is cut into slices. */
uint64_t estimate_message_bytes(const struct algorithm *a,
				const struct shape *s, uint64_t bytes);

#endif
