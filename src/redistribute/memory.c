/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures how fast one core copies what does not fit into its own cache.
 *
 * The table of costs has the rate of copies within the second-level cache,
 * where the slices of a collective stay. The tensors of a redistribution are
 * longer, so that they come from the last-level cache, or from memory.
 */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "src/base/clock.h"
#include "src/redistribute/redistribute.h"

#define REPEATS 2

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct memory_rates rates = {
	.bytes = {8 << 20, 32 << 20, 64 << 20},
};

static uint64_t rate(char *to, const char *from, uint64_t bytes)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < REPEATS; i++) {
		uint64_t begin = clock_ns(), took;

		memcpy(to, from, bytes);
		took = clock_ns() - begin;
		if (took < best)
			best = took;
	}
	return bytes * UINT64_C(1000000000) / (best ? best : 1);
}

/* Without memory, rates stay 0: not known. */
static void measure(void)
{
	size_t all = rates.bytes[MEMORY_SPANS - 1];
	char *at = mmap(NULL, all, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return;
	madvise(at, all, MADV_HUGEPAGE);
	memset(at, 1, all);
	for (int i = 0; i < MEMORY_SPANS; i++)
		rates.bytes_per_s[i] =
			rate(at, at + all / 2, rates.bytes[i] / 2);
	munmap(at, all);
}

void memory_measure(struct memory_rates *out)
{
	pthread_once(&once, measure);
	*out = rates;
}
