/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that runs no operation of a communicator may still be needed there. If
 * a NIC fails, its peers need this rank to quiesce the queue pair and to send
 * lost messages again. Peers may also lack credits that this rank had no room
 * to send. A thread that waits in another communicator has time for that.
 *
 * The thread borrows the data path. First it sets fault.status to
 * COMM_BORROWED. Then fence_all() makes sure that every other thread either
 * sees this or is seen inside. If no thread is inside, it polls a few times and
 * restores the status. A thread that enters meanwhile finds COMM_BORROWED where
 * it looks for a fault anyway, so the check costs calls nothing.
 */
#include "src/core/cross_progress.h"

#include <string.h>
#include <time.h>

#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/core/paths.h"
#include "src/core/share.h"

/* Polls of one communicator before the next one gets its turn. */
#define POLLS 8
/* Nanoseconds between two polls by the thread: the least while something moves,
 * then twice as long each time */
#define SERVE_LEAST_NS 20000
#define SERVE_MOST_NS 2000000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dicomm_comm *first; /* the communicators that are ready */
static _Thread_local bool polling;
/* The thread that serves; all guarded by the lock. */
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static unsigned served; /* communicators in the list */
static bool serving;    /* there is a thread */

/* Returns true if the communicator has a network transport. Shared memory makes
 * progress without this rank. */
static bool has_remote_transport(const struct dicomm_comm *comm)
{
	for (size_t i = 0; i < TP_TRANSPORTS; i++)
		if (comm->transports[i].device &&
		    !comm->transports[i].transport->intra_node)
			return true;
	return false;
}

/* Needs the lock. */
static void list(struct dicomm_comm *comm)
{
	if (comm->listed)
		return;
	comm->listed = true;
	comm->other = first;
	first = comm;
}

void cross_progress_add(struct dicomm_comm *comm)
{
	if (!has_remote_transport(comm))
		return;
	pthread_mutex_lock(&lock);
	list(comm);
	pthread_mutex_unlock(&lock);
}

void cross_progress_remove(struct dicomm_comm *comm)
{
	struct dicomm_comm **at = &first;

	pthread_mutex_lock(&lock);
	while (*at && *at != comm)
		at = &(*at)->other;
	if (*at) {
		*at = comm->other;
		served -= comm->served;
		comm->listed = comm->served = false;
	}
	pthread_mutex_unlock(&lock);
}

static bool is_used(const struct dicomm_comm *comm)
{
	return atomic_load(&comm->inside) || atomic_load(&comm->queued);
}

/* Returns true if this thread has the data path now. If other threads come
 * meanwhile, they wait. */
static bool borrow(struct dicomm_comm *comm)
{
	int was = DICOMM_SUCCESS;
	void *nobody = NULL;

	if (is_used(comm))
		return false;
	if (atomic_load(&comm->fault.status) == COMM_SHARED)
		return atomic_compare_exchange_strong(&comm->holder, &nobody,
						      SHARE_POLLER);
	if (!atomic_compare_exchange_strong(&comm->fault.status, &was,
					    COMM_BORROWED))
		return false;
	fence_all();
	return true;
}

/* Restores the status, unless the communicator has broken meanwhile. */
static void give_back(struct dicomm_comm *comm)
{
	int was = COMM_BORROWED;

	if (atomic_load(&comm->holder) == SHARE_POLLER) {
		atomic_store(&comm->holder, NULL);
		return;
	}
	atomic_compare_exchange_strong(&comm->fault.status, &was,
				       DICOMM_SUCCESS);
	/* fault_died() could not say so meanwhile. */
	was = DICOMM_SUCCESS;
	if (atomic_load(&comm->fault.pending.since_ns))
		atomic_compare_exchange_strong(&comm->fault.status, &was,
					       COMM_PENDING);
}

/* Returns true if its service has moved something. */
static bool poll_one(struct dicomm_comm *comm)
{
	uint64_t moves;
	bool moved;

	if (!borrow(comm))
		return false;
	if (is_used(comm)) {
		give_back(comm);
		return false;
	}
	moves = comm->service_moves;
	for (int i = 0; i < POLLS && !is_used(comm) && !fault_is(comm); i++)
		comm_poll(comm);
	moved = comm->service_moves != moves;
	give_back(comm);
	return moved;
}

void cross_progress_poll(void)
{
	/* Another thread is polling already. */
	if (pthread_mutex_trylock(&lock))
		return;
	polling = true;
	for (struct dicomm_comm *c = first; c; c = c->other)
		poll_one(c);
	polling = false;
	pthread_mutex_unlock(&lock);
}

void cross_progress_poll_one(struct dicomm_comm *comm)
{
	if (pthread_mutex_trylock(&lock))
		return;
	polling = true;
	poll_one(comm);
	polling = false;
	pthread_mutex_unlock(&lock);
}

static void *serve(void *arg)
{
	struct timespec nap = {0, SERVE_LEAST_NS};

	(void)arg;
	for (;;) {
		bool moved = false;

		pthread_mutex_lock(&lock);
		while (!served)
			pthread_cond_wait(&wanted, &lock);
		polling = true;
		for (struct dicomm_comm *c = first; c; c = c->other)
			moved |= c->served && poll_one(c);
		polling = false;
		pthread_mutex_unlock(&lock);
		nap.tv_nsec = moved ? SERVE_LEAST_NS : 2 * nap.tv_nsec;
		if (nap.tv_nsec > SERVE_MOST_NS)
			nap.tv_nsec = SERVE_MOST_NS;
		nanosleep(&nap, NULL);
	}
	return NULL;
}

dicomm_result_t cross_progress_serve(struct dicomm_comm *comm)
{
	int error = 0;

	pthread_mutex_lock(&lock);
	if (!serving)
		error = thread_start(NULL, "dicomm-windows", serve, NULL);
	serving = !error;
	if (!error && !comm->served) {
		list(comm);
		comm->served = true;
		served++;
		pthread_cond_signal(&wanted);
	}
	pthread_mutex_unlock(&lock);
	if (error)
		return FAIL(DICOMM_ERR_SYSTEM, "windows: create a thread: %s",
			    strerror(error));
	return DICOMM_SUCCESS;
}

void cross_progress_wait(void)
{
	/* A signal handler has interrupted this thread there. */
	if (polling)
		return;
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

void cross_progress_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&wanted, NULL);
	first = NULL;
	served = 0;
	serving = false;
}
