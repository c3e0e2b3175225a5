/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/sparse.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* A mapping takes whole pages, and system calls. */
#define LONG_BYTES ((size_t)64 << 10)

static bool is_long(size_t n, size_t bytes)
{
	return n > LONG_BYTES / bytes;
}

void *sparse_alloc(size_t n, size_t bytes)
{
	void *at;

	if (!is_long(n, bytes))
		return calloc(n, bytes);
	if (n > SIZE_MAX / bytes)
		return NULL;
	at = mmap(NULL, n * bytes, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	/* One entry would take 2 MiB. Kernels without them refuse that. */
	(void)madvise(at, n * bytes, MADV_NOHUGEPAGE);
	return at;
}

void sparse_free(void *at, size_t n, size_t bytes)
{
	if (!at)
		return;
	if (is_long(n, bytes))
		munmap(at, n * bytes);
	else
		free(at);
}
