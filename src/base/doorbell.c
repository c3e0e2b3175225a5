/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/doorbell.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Linux 5.16; older headers lack it. */
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

/* As struct futex_waitv of the kernel */
struct wait_entry {
	uint64_t value, address;
	uint32_t flags, reserved;
};
#define WAIT_32_BITS 2 /* not private to the process */

doorbell_word doorbell_own;

void doorbell_ring_word(doorbell_word *word)
{
	if (atomic_exchange(word, 0))
		syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void doorbell_ring(struct doorbell *bell)
{
	doorbell_ring_word(&bell->waiter);
	doorbell_ring_word(&bell->server);
}

static void sleep_on(doorbell_word *word, unsigned us)
{
	const struct timespec t = {.tv_sec = us / 1000000,
				   .tv_nsec = (long)(us % 1000000) * 1000};

	syscall(SYS_futex, word, FUTEX_WAIT, 1, &t, NULL, 0);
}

void doorbell_wait(struct doorbell *bell, unsigned us)
{
	if (atomic_exchange(&bell->waiter, 1))
		sleep_on(&bell->waiter, us);
}

static bool has_waitv(void)
{
	static _Atomic int known; /* 1: yes, -1: no */
	int has = atomic_load_explicit(&known, memory_order_relaxed);

	if (!has) {
		/* Without words it is refused, where it exists. */
		has = syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) < 0 &&
				      errno == EINVAL
			      ? 1
			      : -1;
		atomic_store_explicit(&known, has, memory_order_relaxed);
	}
	return has > 0;
}

bool doorbell_can_sleep(unsigned n)
{
	return n == 1 || (n && n <= DOORBELL_WORDS && has_waitv());
}

void doorbell_sleep(doorbell_word *const words[], unsigned n, unsigned us)
{
	struct wait_entry entries[DOORBELL_WORDS];
	struct timespec end;

	if (n == 1) {
		sleep_on(words[0], us);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		entries[i] = (struct wait_entry){.value = 1,
						 .address = (uintptr_t)words[i],
						 .flags = WAIT_32_BITS};
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += (long)(us % 1000000) * 1000;
	end.tv_sec += us / 1000000 + end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	syscall(SYS_futex_waitv, entries, n, 0, &end, CLOCK_MONOTONIC);
}
