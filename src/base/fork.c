/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/fork.h"

#include <stdatomic.h>
#include <time.h>

#include "src/base/clock.h"

/* How long a fork waits for the first lock. */
#define FIRST_MS 1000

pthread_mutex_t fork_locks[FORK_LOCKS] = {[0 ... FORK_LOCKS - 1] =
						  PTHREAD_MUTEX_INITIALIZER};
static void (*_Atomic handlers[FORK_PLACES])(void);
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Guarded by all locks but the first: the first one that the thread which forks
 * has, 0 or 1. */
static int first_had;

static bool lock_in_time(pthread_mutex_t *lock)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	uint64_t end = clock_ms() + FIRST_MS;

	while (pthread_mutex_trylock(lock)) {
		if (clock_ms() >= end)
			return false;
		nanosleep(&nap, NULL);
	}
	return true;
}

static void prepare(void)
{
	int first = lock_in_time(&fork_locks[0]) ? 0 : 1;

	for (int i = 1; i < FORK_LOCKS; i++)
		pthread_mutex_lock(&fork_locks[i]);
	first_had = first;
}

static void unlock_had(void)
{
	int first = first_had;

	for (int i = FORK_LOCKS; i-- > first;)
		pthread_mutex_unlock(&fork_locks[i]);
}

static void child(void)
{
	void (*handler)(void);

	for (int i = FORK_PLACES; i--;)
		if ((handler = atomic_load(&handlers[i])))
			handler();
	/* If another thread of the parent had the first lock, nobody here can
	 * unlock it. */
	for (int i = 0; i < first_had; i++)
		pthread_mutex_init(&fork_locks[i], NULL);
	unlock_had();
}

static void setup(void)
{
	pthread_atfork(prepare, unlock_had, child);
}

void fork_lock(enum fork_place place)
{
	pthread_once(&once, setup);
	pthread_mutex_lock(&fork_locks[place]);
}

void fork_unlock(enum fork_place place)
{
	pthread_mutex_unlock(&fork_locks[place]);
}

/* The handler is in memory before the lock that its caller takes next: so the
 * child of a fork in between has both or not that lock. */
void fork_add(enum fork_place place, void (*handler)(void))
{
	pthread_once(&once, setup);
	if (atomic_load(&handlers[place]) != handler)
		atomic_store(&handlers[place], handler);
}

bool fork_had(enum fork_place place)
{
	return (int)place >= first_had;
}
