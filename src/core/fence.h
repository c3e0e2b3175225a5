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

/* True while membarrier(2) cannot be used: the kernel lacks it, or has not
 * registered the process yet. Then each thread that enters the data path needs
 * a fence of its own. It becomes false once and stays false. A thread loads it
 * (acquire) before it loads the flag. So if it finds false and does not see the
 * flag, the thread that set the flag finds false in fence_all(), too. */
extern _Atomic bool fence_needed;

/* Called once per process, before the first communicator. */
void fence_init(void);
/* Registers the process with the kernel. In a child of fork(), which has one
 * thread, this is quick. */
void fence_announce(void);
/* May be called by any thread. */
void fence_all(void);

#endif
