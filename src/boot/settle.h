/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The last word of a meeting when no rank may have the last word: all ranks go
 * on, or none does, whoever dies meanwhile and whomever it had told what.
 */
#ifndef DICOMM_BOOT_SETTLE_H
#define DICOMM_BOOT_SETTLE_H

#include "src/boot/auth.h"
#include "src/boot/refuge.h"

struct settle_config {
	int rank, ranks;
	const struct refuge *refuge;  /* of this rank */
	const char *const *addresses; /* of the refuges of all */
	uint8_t key[AUTH_KEY];        /* of this meeting and no other */
	int timeout_ms;
};

/* Called by every rank that is ready; one that is not closes its refuge.
 * SUCCESS: all were. ERR_REMOTE, naming one: some were not. All that live to
 * see the end see the same, as long as nobody is silent for timeout_ms and
 * alive nevertheless. */
dicomm_result_t settle(const struct settle_config *config);

#endif
