/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective calls of setup: split, grow, windows. Before any rank acts, all of
 * them agree over the control plane.
 *
 * A rank with bad arguments takes part all the same, and sends its status. So
 * all ranks refuse the call, and their next calls match again.
 *
 * The caller is not in the data path. While it waits, the data path is polled:
 * by the thread that polls communicators with windows, and now and then by the
 * waiting thread itself (cross_progress.h).
 */
#ifndef DICOMM_CORE_SETUP_CALL_H
#define DICOMM_CORE_SETUP_CALL_H

#include "src/core/comm.h"

enum setup_kind {
	SETUP_GROW,
	SETUP_SPLIT,
	SETUP_WINDOW_DEREGISTER,
	SETUP_WINDOW_REGISTER
};

#define SETUP_WORDS 3

/* What a rank sends to the others */
struct setup_part {
	uint32_t kind;
	int32_t status; /* of its arguments */
	uint64_t words[SETUP_WORDS];
};

/* The error in this rank's own arguments, if there is one */
struct setup_refusal {
	dicomm_result_t status;
	char why[200];
};

/* Keeps the first status that is not DICOMM_SUCCESS, with the last error. */
void setup_refuse(struct setup_refusal *refusal, dicomm_result_t status);

/*
 * Exchanges the parts of all ranks. Returns this rank's refusal, otherwise that
 * of the first rank that has one; the error names that rank. If the ranks make
 * calls of different kinds, the communicator breaks.
 *
 * *parts becomes an array with the part of each rank, which the caller frees;
 * NULL if the exchange failed.
 */
dicomm_result_t setup_agree(struct dicomm_comm *comm, enum setup_kind kind,
			    const struct setup_refusal *refusal,
			    const uint64_t *words, struct setup_part **parts);

#endif
