/* SPDX-License-Identifier: BSD-3-Clause */
/* Cache lines of the processor. */
#ifndef DICOMM_BASE_CACHE_H
#define DICOMM_BASE_CACHE_H

#include <stddef.h>

/* Bytes of a cache line. If lines are longer, some are fetched twice. */
#define CACHE_LINE 64

/* Fetches the lines of [addr, addr + len) for writing, without waiting for
 * them. Otherwise a store to a line that another core has read would wait for
 * that core. */
static inline void cache_fetch_to_store(const void *addr, size_t len)
{
	const char *at = addr;

	for (size_t i = 0; i < len; i += CACHE_LINE)
#ifdef __x86_64__
		/* On old CPUs the compiler's built-in would be a fetch for
		 * reading. */
		__asm__ volatile("prefetchw %0" : : "m"(at[i]));
#else
		__builtin_prefetch(at + i, 1);
#endif
}

#endif
