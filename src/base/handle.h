/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of objects that the user knows by a handle. A stale handle is to be
 * refused, so what was freed has to stay readable: it is kept, with its first
 * word (the object's magic number) 0, and used again only when many others have
 * been freed after it. Any thread.
 */
#ifndef DICOMM_BASE_HANDLE_H
#define DICOMM_BASE_HANDLE_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* So many are freed before the first of them is used again. */
#define HANDLE_KEPT 64

struct handle_memory {
	uint64_t magic; /* 0 */
	struct handle_memory *next;
};

/* For objects of one size, which begin with their magic number */
struct handle_pool {
	pthread_mutex_t lock;
	struct handle_memory *oldest, **newest;
	size_t n, size;
};

#define HANDLE_POOL(type)                                               \
	{                                                               \
		.lock = PTHREAD_MUTEX_INITIALIZER, .size = sizeof(type) \
	}

/* All zero; NULL: out of memory. */
static inline void *handle_alloc(struct handle_pool *pool)
{
	struct handle_memory *m = NULL;

	pthread_mutex_lock(&pool->lock);
	if (pool->n >= HANDLE_KEPT) {
		m = pool->oldest;
		pool->oldest = m->next;
		pool->n--;
	}
	pthread_mutex_unlock(&pool->lock);
	return m ? memset(m, 0, pool->size) : calloc(1, pool->size);
}

static inline void handle_free(struct handle_pool *pool, void *object)
{
	struct handle_memory *m = object;

	m->magic = 0;
	m->next = NULL;
	pthread_mutex_lock(&pool->lock);
	*(pool->oldest ? pool->newest : &pool->oldest) = m;
	pool->newest = &m->next;
	pool->n++;
	pthread_mutex_unlock(&pool->lock);
}

/* In the child of a fork: another thread may have held the lock. */
static inline void handle_pool_forget(struct handle_pool *pool)
{
	pthread_mutex_init(&pool->lock, NULL);
	pool->oldest = NULL;
	pool->n = 0;
}

#endif
