/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds out whether transports reach the memory of two devices of this machine.
 * It does what two ranks on them would do when they meet, without such ranks.
 */
#ifndef DICOMM_COMM_PATH_TEST_H
#define DICOMM_COMM_PATH_TEST_H

#include "src/device/transport_access.h"

struct path_test {
	bool wired; /* some transport reaches the memory of both */
	/* Which one; or why none reaches the memory of the first, or second */
	bool second;
	char how[TRANSPORT_ACCESS_TEXT];
};

/* If the test cannot be made, `how` gets the reason. */
dicomm_result_t path_test_run(const char *first, const char *second,
			      struct path_test *out);

#endif
