/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of objects that the user refers to by a handle. A stale handle must be
 * refused, so the memory of a freed object must stay readable. It is kept, with
 * 0 in its first word (the object's magic number), and used again only when
 * many other objects have been freed after it. Any thread may call these
 * functions.
 */
#ifndef DICOMM_BASE_HANDLE_H
#define DICOMM_BASE_HANDLE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fork.h"

/* This many objects are freed before the memory of the first one is used
 * again. */
#define HANDLE_KEPT 64

struct handle_memory {
	uint64_t magic; /* 0 */
	struct handle_memory *next;
};

/* For objects of one size, which begin with their magic number. */
struct handle_pool {
	struct handle_memory *oldest, **newest;
	size_t n, size;
};

#define HANDLE_POOL(type)            \
	{                            \
		.size = sizeof(type) \
	}

/* Returns memory that is all zero, or NULL if there is no memory. */
static inline void *handle_alloc(struct handle_pool *pool)
{
	struct handle_memory *m = NULL;

	fork_lock(FORK_HANDLES);
	if (pool->n >= HANDLE_KEPT) {
		m = pool->oldest;
		pool->oldest = m->next;
		pool->n--;
	}
	fork_unlock(FORK_HANDLES);
	return m ? memset(m, 0, pool->size) : calloc(1, pool->size);
}

static inline void handle_free(struct handle_pool *pool, void *object)
{
	struct handle_memory *m = object;

	m->magic = 0;
	m->next = NULL;
	fork_lock(FORK_HANDLES);
	*(pool->oldest ? pool->newest : &pool->oldest) = m;
	pool->newest = &m->next;
	pool->n++;
	fork_unlock(FORK_HANDLES);
}

#endif
