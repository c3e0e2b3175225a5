/* SPDX-License-Identifier: BSD-3-Clause */
/* Monotonic time, and a pause for polling loops. */
#ifndef DICOMM_BASE_CLOCK_H
#define DICOMM_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns nanoseconds since some fixed point in the past, without a system call
 * (vDSO). */
static inline uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_ms(void)
{
	return clock_ns() / 1000000u;
}

/* Leaves the execution units to the sibling hyperthread for a moment. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
	__asm__ volatile("yield" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

#endif
