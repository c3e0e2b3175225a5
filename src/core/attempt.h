/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether wires reach the memory of two devices of this machine, found out by
 * doing what two ranks on them do when they meet, but without these.
 */
#ifndef DICOMM_CORE_ATTEMPT_H
#define DICOMM_CORE_ATTEMPT_H

#include "src/core/direct.h"

struct attempt {
	bool wired; /* some wire takes the memory of both */
	/* How, or why none takes that of the first, or of the second. */
	bool second;
	char how[DIRECT_HOW];
};

/* What cannot be tried is a reason, too. */
dicomm_result_t attempt_wires(const char *first, const char *second,
			      struct attempt *out);

#endif
