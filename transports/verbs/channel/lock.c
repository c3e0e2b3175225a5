/* SPDX-License-Identifier: BSD-3-Clause */
/* The lock of devices and channels. */
#include "transports/verbs/channel/lock.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void verbs_lock(void)
{
	pthread_mutex_lock(&lock);
}

bool verbs_try_lock(void)
{
	return !pthread_mutex_trylock(&lock);
}

void verbs_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void verbs_lock_reset(void)
{
	pthread_mutex_init(&lock, NULL);
}
