/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a collective takes by an algorithm: arithmetic on its work.
 *
 * Integers only, so that all ranks get the same answer whatever their CPUs:
 * picoseconds, bytes, bytes per second. Results saturate.
 */
#ifndef DICOMM_COLLECTIVES_SELECT_ESTIMATE_H
#define DICOMM_COLLECTIVES_SELECT_ESTIMATE_H

#include "collectives/plan/algorithm.h"
#include "collectives/select/estimate_params.h"

/* In place of a time: no memory to find it. */
#define ESTIMATE_FAILED UINT64_MAX

/* Picoseconds from the first post to the last completion, for buffers of
 * `bytes` (the longer one). */
uint64_t estimate_ps(const struct estimate_params *e, const struct algorithm *a,
		     const struct shape *s, uint64_t bytes);
/* Bytes of the longest message, before it is cut into slices. */
uint64_t estimate_message_bytes(const struct algorithm *a,
				const struct shape *s, uint64_t bytes);

#endif
