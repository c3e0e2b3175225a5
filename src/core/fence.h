/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A memory fence in all threads of this process. A thread that stores a flag
 * calls fence_all(). Then every other thread either sees the flag when it
 * enters the data path, or is seen there. Entering costs nothing extra.
 */
#ifndef DICOMM_CORE_FENCE_H
#define DICOMM_CORE_FENCE_H

#include <stdatomic.h>
#include <stdbool.h>

/* True if the kernel has no membarrier(2), or has not got ready for it yet, so
 * that each thread that enters the data path needs its own fence. Once false,
 * it stays so. A thread loads it (acquire) before the flag: if it finds false,
 * fence_all() of a thread whose flag it does not see will find false, too. */
extern _Atomic bool fence_needed;

/* Called once per process, before the first communicator. */
void fence_init(void);
/* In a child of fork(), which has one thread, so that the kernel is ready at
 * once. */
void fence_announce(void);
/* May be called by any thread. */
void fence_all(void);

#endif
