/* SPDX-License-Identifier: BSD-3-Clause */
/* The sweep: warm-up, timed loops and checks, in the order of nccl-tests. */
#ifndef DICOMM_PERFTEST_RUN_RUN_H
#define DICOMM_PERFTEST_RUN_RUN_H

#include "perftest/run/session.h"

/* Runs all that the options ask for, on all threads of this process, and passes
 * each row to the reports. Fills in the totals on every process. */
void run_all(struct session *s, struct report_end *end);

#endif
