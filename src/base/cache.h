/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of the processor's caches. */
#ifndef DICOMM_BASE_CACHE_H
#define DICOMM_BASE_CACHE_H

#include <stddef.h>

#define CACHE_LINE 64 /* bytes; where they are longer, some are named twice */

/* Make the lines of [addr, addr + len) this core's own, without waiting for it:
 * a store to one that another core has read takes a trip there. */
static inline void cache_fetch_to_store(const void *addr, size_t len)
{
	const char *at = addr;

	for (size_t i = 0; i < len; i += CACHE_LINE)
#ifdef __x86_64__
		/* The compiler's own is a plain load where old CPUs count. */
		__asm__ volatile("prefetchw %0" : : "m"(at[i]));
#else
		__builtin_prefetch(at + i, 1);
#endif
}

#endif
