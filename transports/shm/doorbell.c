/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/shm/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void shm_doorbell_ring(shm_doorbell *bell)
{
	if (atomic_exchange(bell, 0))
		syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void shm_doorbell_wait(shm_doorbell *bell, unsigned us)
{
	const struct timespec t = {.tv_sec = us / 1000000,
				   .tv_nsec = (long)(us % 1000000) * 1000};

	if (atomic_exchange(bell, 1))
		syscall(SYS_futex, bell, FUTEX_WAIT, 1, &t, NULL, 0);
}
