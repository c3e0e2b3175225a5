/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of a storm beside those of tests/support/storm.h: one-sided operations,
 * tagged messages, redistribution, several threads on a communicator. What they
 * bring is compared with what was sent, byte for byte.
 */
#ifndef DICOMM_TESTS_STORMS_CALLS_H
#define DICOMM_TESTS_STORMS_CALLS_H

#include "tests/support/job.h"

/* The next of these calls, which all ranks draw from the seed; returns when it
 * is done, with the status of the first part that failed. */
dicomm_result_t calls_next(const struct job_rank *me, unsigned seed,
			   dicomm_stream_t stream);

#endif
