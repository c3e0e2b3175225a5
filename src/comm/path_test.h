/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether wires reach the memory of two devices of this machine, found out by
 * doing what two ranks on them do when they meet, but without these.
 */
#ifndef DICOMM_COMM_PATH_TEST_H
#define DICOMM_COMM_PATH_TEST_H

#include "src/device/wire_access.h"

struct path_test {
	bool wired; /* some wire takes the memory of both */
	/* How, or why none takes that of the first, or of the second. */
	bool second;
	char how[WIRE_ACCESS_TEXT];
};

/* What cannot be tried is a reason, too. */
dicomm_result_t path_test_wires(const char *first, const char *second,
				struct path_test *out);

#endif
