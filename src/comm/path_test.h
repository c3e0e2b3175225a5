/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds out whether a transport reaches the memory of two devices of this
 * machine. It does what two ranks on these devices would do during setup,
 * without having such ranks.
 */
#ifndef DICOMM_COMM_PATH_TEST_H
#define DICOMM_COMM_PATH_TEST_H

#include "src/device/transport_access.h"

struct path_test {
	bool wired; /* a transport reaches the memory of both */
	/* how: the name of the transport, or the reason why none reaches both:
	 * it cannot reach the memory of the second device if `second`,
	 * otherwise that of the first one. */
	bool second;
	char how[TRANSPORT_ACCESS_TEXT];
};

/* Runs the test. If that is impossible, `how` gets the reason. */
dicomm_result_t path_test_run(const char *first, const char *second,
			      struct path_test *out);

#endif
