/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DICOMM_TESTS_STORMS_SUPERVISOR_H
#define DICOMM_TESTS_STORMS_SUPERVISOR_H

/* What runs beside the ranks of a round: disturbs, waits, judges, and leaves no
 * rank behind. Its argument is a struct round. */
void supervisor_run(const void *arg);

#endif
