/* SPDX-License-Identifier: BSD-3-Clause */
/* A memory fence in all threads of this process, by membarrier(2). */
#include "src/core/fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic bool fence_needed = true;

void fence_init(void)
{
	if (syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
		    0, 0) == 0)
		atomic_store(&fence_needed, false);
}

void fence_all(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load(&fence_needed))
		syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0,
			0);
}
