/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether endings came when they were due, over all jobs of a program. Each
 * alone may have lacked its core for a while, on a machine that runs other
 * things; most jobs of a kind may not.
 */
#ifndef DICOMM_TESTS_SUPPORT_PROMPT_H
#define DICOMM_TESTS_SUPPORT_PROMPT_H

#include <check.h>

/* From when something is due */
#define PROMPT_S 1.0
/* What a single one may take longer */
#define PROMPT_SLACK_S 3.0

/* For main(), behind all other cases: one that prints the times of each kind,
 * and fails unless most were below PROMPT_S. */
void prompt_add(Suite *suite);

/* For ranks: what was due due_s after it began has ended after took_s. The time
 * in which this process lacked cores does not count. Ends the job if the rest
 * is beyond the slack. A kind has up to 31 letters. */
void prompt_check(const char *kind, double took_s, double due_s);

#endif
