/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fills the buffers of a rank before a call and checks them afterwards. A
 * device that can compare its memory does so itself, so that the check sees
 * what its kernels see.
 */
#ifndef DICOMM_PERFTEST_RUN_DATA_H
#define DICOMM_PERFTEST_RUN_DATA_H

#include "perftest/operation/operation.h"
#include "perftest/run/session.h"
#include "perftest/operation/verify.h"

/* Returns the bytes of the larger buffer of a call. */
size_t data_bytes(const struct call *c);

/* Fills both buffers for a call. p is memory for temporary use. */
void data_fill(struct verify_pattern *p, struct session_rank *r,
	       const struct call *c, bool in_place, uint64_t seed);

/* Checks the buffers after a call that has completed. Returns the number of
 * received or sent elements with wrong values, plus the number of bytes that
 * were changed behind the received data. */
size_t data_wrong(struct verify_pattern *p, struct session_rank *r,
		  const struct call *c, bool in_place, uint64_t seed);

#endif
