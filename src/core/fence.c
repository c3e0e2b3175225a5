/* SPDX-License-Identifier: BSD-3-Clause */
/* A memory fence in all threads of this process, by membarrier(2). */
#include "src/core/fence.h"

#include <linux/membarrier.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/thread.h"

_Atomic bool fence_needed = true;

static sem_t begun;

void fence_announce(void)
{
	if (syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
		    0, 0) == 0)
		atomic_store(&fence_needed, false);
}

static void *announcer(void *arg)
{
	(void)arg;
	sem_post(&begun);
	fence_announce();
	return NULL;
}

/* In a process with several threads the kernel takes as long as all cores need
 * to pass a point of rest, 5 to 30 ms. Nobody has to wait for that: until then,
 * threads fence for themselves. But do not return, and let the caller fork,
 * before the thread runs: a child could inherit locks of the C library that
 * nobody opens. */
void fence_init(void)
{
	sem_init(&begun, 0, 0);
	if (thread_start(NULL, "dicomm-fence", announcer, NULL))
		return;
	while (sem_wait(&begun))
		;
}

void fence_all(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load(&fence_needed))
		syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0,
			0);
}
