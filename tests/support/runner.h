/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DICOMM_TESTS_SUPPORT_RUNNER_H
#define DICOMM_TESTS_SUPPORT_RUNNER_H

#include <check.h>

/* Run all of a suite, each test in a process of its own unless the environment
 * says otherwise (CK_FORK); the status for main(). */
int runner_main(Suite *s);
/* The same in this process: for what cannot be used in a forked one. */
int runner_main_here(Suite *s);

#endif
