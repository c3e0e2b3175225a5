/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the buffers of a rank hold before a call, and whether they hold
 * afterwards what they must. A device compares its memory itself if it can, so
 * that what is checked is what its kernels see.
 */
#ifndef DICOMM_PERFTEST_RUN_DATA_H
#define DICOMM_PERFTEST_RUN_DATA_H

#include "perftest/operation/operation.h"
#include "perftest/run/session.h"
#include "perftest/operation/verify.h"

/* Bytes of the larger buffer of a call. */
size_t data_bytes(const struct call *c);

/* Fill both buffers for a call. The pattern is for its use alone. */
void data_fill(struct verify_pattern *p, struct session_rank *r,
	       const struct call *c, bool in_place, uint64_t seed);

/* After the call, of which nothing is under way any more: elements that are
 * not what they must be, received or sent; and bytes touched behind what was
 * received. */
size_t data_wrong(struct verify_pattern *p, struct session_rank *r,
		  const struct call *c, bool in_place, uint64_t seed);

#endif
