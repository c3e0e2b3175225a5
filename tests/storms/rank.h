/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DICOMM_TESTS_STORMS_RANK_H
#define DICOMM_TESTS_STORMS_RANK_H

#include "tests/support/job.h"

/* What each rank of a round does: calls without an end, and after each failure
 * a shrink, until the supervisor says that it is over. Its argument is a struct
 * round. */
void rank_run(struct job_rank *me);

#endif
