/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the plans of all ranks of a redistribution in one process. */
#ifndef DICOMM_TESTS_PLANS_REDIST_H
#define DICOMM_TESTS_PLANS_REDIST_H

#include "collectives/redistribute/plan.h"

/* Make the plan of each rank, run them round by round, and check what arrives:
 * messages fit each other, staging memory is as small as was asked, and every
 * element is right. Fails the calling test. Returns messages of all ranks. */
uint64_t redist_run(const struct redist_request *request, const char *what);

#endif
