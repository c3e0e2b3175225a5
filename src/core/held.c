/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/core/held.h"

#include <pthread.h>

/* Shared by who makes a stream held: that may wait for other streams. */
static pthread_rwlock_t streams = PTHREAD_RWLOCK_INITIALIZER;
/* Of who wants none held: they wait for each other, but not for a stream. */
static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A fork's child has none of the threads that are in there. */
static void forget(void)
{
	pthread_rwlock_init(&streams, NULL);
	pthread_mutex_init(&alone, NULL);
}

static void setup(void)
{
	pthread_atfork(NULL, NULL, forget);
}

void held_begin(void)
{
	pthread_once(&once, setup);
	pthread_rwlock_rdlock(&streams);
}

void held_end(void)
{
	pthread_rwlock_unlock(&streams);
}

bool held_by_none(const struct accel_work *work, int index)
{
	pthread_once(&once, setup);
	pthread_mutex_lock(&alone);
	if (!pthread_rwlock_trywrlock(&streams)) {
		if (!work->held(index))
			return true;
		pthread_rwlock_unlock(&streams);
	}
	pthread_mutex_unlock(&alone);
	return false;
}

void held_release(void)
{
	pthread_rwlock_unlock(&streams);
	pthread_mutex_unlock(&alone);
}
