/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the plans of all ranks of a redistribution in one process. */
#ifndef DICOMM_TESTS_PLANS_REDIST_H
#define DICOMM_TESTS_PLANS_REDIST_H

#include "collectives/redistribute/plan.h"

/* What all ranks send */
struct redist_traffic {
	uint64_t messages, bytes;
};

/* Make the plan of each rank, run them round by round, and check what arrives:
 * messages fit each other, staging memory is as small as was asked, and every
 * element is right. Fails the calling test. */
struct redist_traffic redist_run(const struct redist_request *request,
				 const char *what);

#endif
