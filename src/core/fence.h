/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A memory fence in all threads of this process. A thread that stores a flag
 * calls fence_all(); then every thread either sees the flag when it enters the
 * data path, or is seen there. Threads that enter pay nothing for it.
 */
#ifndef DICOMM_CORE_FENCE_H
#define DICOMM_CORE_FENCE_H

#include <stdatomic.h>
#include <stdbool.h>

/* The kernel offers no membarrier(2), so each thread that enters the data path
 * needs a fence of its own. */
extern _Atomic bool fence_needed;

/* Once for each process, before the first communicator. */
void fence_init(void);
/* Any thread. */
void fence_all(void);

#endif
