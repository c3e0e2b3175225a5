/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomic commit without a coordinator: either all ranks go on or none does,
 * whichever rank dies meanwhile and whatever it has told others before.
 * Shrinking needs this, because its coordinator, the first survivor, may die
 * too.
 */
#ifndef DICOMM_BOOT_COMMIT_H
#define DICOMM_BOOT_COMMIT_H

#include "src/boot/control/recovery.h"
#include "src/base/auth.h"

struct commit_config {
	int rank, ranks;
	const struct recovery *recovery; /* of this rank; the caller owns it */
	/* [rank]: the address of its recovery socket */
	const char *const *addresses;
	uint8_t key[AUTH_KEY]; /* for this commit only */
	int timeout_ms;
};

/* Every rank that is ready calls this function. A rank that is not ready closes
 * its recovery socket instead. Returns DICOMM_SUCCESS if all ranks were ready.
 * Otherwise returns DICOMM_ERR_REMOTE and logs a rank that was not. All ranks
 * that live to the end get the same result, provided that no living rank is
 * silent for timeout_ms. */
dicomm_result_t commit_all(const struct commit_config *config);

#endif
