/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collects what this process writes to stderr. For tests that run in a process
 * of their own (Check's default): stderr is not given back.
 */
#ifndef DICOMM_TESTS_SUPPORT_CAPTURE_H
#define DICOMM_TESTS_SUPPORT_CAPTURE_H

void capture_start(void);
/* All of it so far; valid until the next call. */
const char *capture_text(void);
/* How often word occurs in it. */
int capture_count(const char *word);
/* What the library logs goes nowhere. */
void capture_nothing(void);
/* How many lines of a file have the word. */
int capture_lines(const char *path, const char *word);

#endif
