/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective calls of setup: split, grow, windows. Their ranks agree over the
 * control plane before any of them does something.
 *
 * A rank whose arguments are bad takes part all the same, and says what is
 * wrong with them. So all ranks refuse the call, and their next ones belong
 * together again.
 *
 * The caller is not in the data path. While it waits, others of its process
 * serve that: a thread that looks after windows, and the one that waits itself,
 * every now and then (cross_progress.h).
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

/* What a rank tells the others */
struct setup_part {
	uint32_t kind;
	int32_t status; /* of its arguments */
	uint64_t words[SETUP_WORDS];
};

/* What a rank finds wrong with its own arguments, if anything */
struct setup_refusal {
	dicomm_result_t status;
	char why[200];
};

/* Keeps the first status that is none of success, and the last error. */
void setup_refuse(struct setup_refusal *refusal, dicomm_result_t status);

/*
 * All ranks make calls of one kind. Returns this rank's refusal; else that of
 * the first rank that has one, which the error names. Ranks that make calls of
 * unlike kinds break the communicator.
 *
 * *parts is set to what each rank said, for the caller to free, as soon as the
 * ranks have heard each other; to NULL if they have not.
 */
dicomm_result_t setup_agree(struct dicomm_comm *comm, enum setup_kind kind,
			    const struct setup_refusal *refusal,
			    const uint64_t *words, struct setup_part **parts);

#endif
