/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes the n-th call that asks the system for something fail, once, in
 * whatever thread: memory, mappings, descriptors, threads, connections. The
 * program is linked with --wrap for each of them, so that its calls, and those
 * of the library in it, come by here; the library knows nothing of it.
 */
#ifndef DICOMM_TESTS_SUPPORT_FAULT_H
#define DICOMM_TESTS_SUPPORT_FAULT_H

#include <stdbool.h>

/* The n-th from now on, from 1. */
void fault_arm(int n);
/* None any more. The name of the call that failed, NULL if none did. */
const char *fault_disarm(void);

#endif
