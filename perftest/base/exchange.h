/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Barriers and exchange of results between the measuring threads of all
 * processes. Processes use a separate communicator for this, with one rank per
 * process, so that the communicators under test carry nothing else. All calls
 * are collective: every thread of every process makes them.
 */
#ifndef DICOMM_PERFTEST_BASE_EXCHANGE_H
#define DICOMM_PERFTEST_BASE_EXCHANGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "dicomm.h"

struct exchange {
	dicomm_comm_t comm; /* NULL: a single process without a launcher */
	int procs, proc;
	int threads;
	pthread_barrier_t barrier; /* of the threads of this process */
	double *slots;             /* owned; one per thread */
	double *shared;            /* owned; the largest time of all threads */
	size_t shared_room;
	double result;
};

/* One thread calls these, before the other threads start and after they end. */
void exchange_open(struct exchange *c, int threads);
void exchange_close(struct exchange *c);
/* Gathers `len` bytes from each process, in the order of processes. */
void exchange_gather(struct exchange *c, const void *mine, size_t len,
		     void *all);

void exchange_barrier(struct exchange *c, int thread);

/* These numbers are the values of option -a. */
enum exchange_how {
	EXCHANGE_FIRST,
	EXCHANGE_AVERAGE,
	EXCHANGE_MIN,
	EXCHANGE_MAX,
	EXCHANGE_SUM,
};

/* Combines one value from each thread. All threads get the result. */
double exchange_combine(struct exchange *c, int thread, double value,
			enum exchange_how how);

/* Combines n times from each thread. Thread 0 of each process gets the largest
 * of each process in `all`, n for each process; other threads may pass NULL. */
void exchange_times(struct exchange *c, int thread, const double *times,
		    size_t n, double *all);

#endif
