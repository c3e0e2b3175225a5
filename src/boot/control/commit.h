/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomic commit without a coordinator: either all ranks go on or none does,
 * whoever dies in the middle and whatever it had told whom. Shrink needs it,
 * because its coordinator, the first survivor, may die too.
 */
#ifndef DICOMM_BOOT_COMMIT_H
#define DICOMM_BOOT_COMMIT_H

#include "src/boot/control/recovery.h"
#include "src/boot/net/auth.h"

struct commit_config {
	int rank, ranks;
	const struct recovery *recovery; /* of this rank */
	const char *const *addresses;    /* of the recovery sockets of all */
	uint8_t key[AUTH_KEY];           /* for this commit and no other */
	int timeout_ms;
};

/* Every rank that is ready calls it. A rank that is not closes its recovery
 * socket instead. SUCCESS: all ranks were ready. ERR_REMOTE names one that was
 * not. All ranks that live to the end get the same result, provided that no
 * living rank is silent for timeout_ms. */
dicomm_result_t commit_all(const struct commit_config *config);

#endif
