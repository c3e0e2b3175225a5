/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the library does when its process forks. The child has one thread. A
 * lock that another thread held would stay locked there, and the data under it
 * half changed. So a fork waits until the locks below are free, and the child
 * gets them unlocked. Modules with other locks begin anew in the child.
 */
#ifndef DICOMM_BASE_FORK_H
#define DICOMM_BASE_FORK_H

#include <pthread.h>
#include <stdbool.h>

/*
 * A lock comes before those that its owner takes: fork() takes them from the
 * first to the last. Handlers run in the child from the last to the first.
 */
enum fork_place {
	/* Its owner writes log lines. A log callback may want a lock that the
	 * thread which forks holds, so a fork waits for a bounded time only,
	 * and first, when it holds nothing that this owner may want. */
	FORK_VERBS,
	/* Owners of locks before FORK_CONTROL write log lines, too, and the
	 * callback may want any lock from here on. */
	FORK_SEGMENTS,
	FORK_REFERENCES,
	FORK_HOST_MEMORY,
	/* Its owner learns the interface and reads parameters. Its log lines
	 * wait until it has released the lock. */
	FORK_CONTROL,
	/* Its owner looks at communicators, or at the list of them. */
	FORK_JOB_INFO,
	/* The same; it writes to a file. */
	FORK_METRICS,
	/* Their owners take no other, only copy or search a list. */
	FORK_INTERFACE,
	FORK_ID_NAMES,
	FORK_KEPT_RATES,
	FORK_HANDLES,
	FORK_ISLAND_HOLDS,
	FORK_CONFIG,
	/* Its owner writes to a file. */
	FORK_TRACE,
	FORK_LOCKS,

	/* These only have a handler, which resets their own locks: the owners
	 * keep those for long, or call the user. Their order does not matter,
	 * since no handler takes a lock or needs what another one resets. */
	FORK_COMMS = FORK_LOCKS,
	FORK_STREAMS,
	FORK_CALLBACKS,
	FORK_GRAPHS,
	FORK_USER_BUFFERS,
	FORK_IPC,
	FORK_IN_PROCESS,
	FORK_BLOCKED_STREAMS,
	FORK_PROGRESS_THREAD,
	FORK_NICS,
	FORK_OPENCL,
	FORK_UCX,
	FORK_PLACES
};

/* For condition variables; otherwise fork_lock() and fork_unlock() */
extern pthread_mutex_t fork_locks[FORK_LOCKS];
void fork_lock(enum fork_place place);
void fork_unlock(enum fork_place place);

/*
 * From now on, the child of a fork calls the handler of that place, while it
 * has the locks. Called before each time that its thread takes a lock which the
 * handler resets, by any thread, at any time, also while another one forks. The
 * handlers stay, because the library is never unloaded.
 */
void fork_add(enum fork_place place, void (*handler)(void));
/* For a handler: returns false if the process forked without that lock. Then
 * what it guards may be half changed. Only FORK_VERBS can be missing. */
bool fork_had(enum fork_place place);

#endif
