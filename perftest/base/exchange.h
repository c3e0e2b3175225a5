/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the measuring threads of all processes tell each other: barriers, and
 * the exchange of results. Between processes it goes over a communicator of
 * its own, with one rank for each process, so that the communicators under test
 * carry nothing else. All calls are collective: every thread of every process.
 */
#ifndef DICOMM_PERFTEST_BASE_EXCHANGE_H
#define DICOMM_PERFTEST_BASE_EXCHANGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "dicomm.h"

struct exchange {
	dicomm_comm_t comm; /* NULL: a single process, without a launcher */
	int procs, proc;
	int threads;
	pthread_barrier_t barrier; /* of the threads of this process */
	double *slots;             /* one for each thread, owned */
	double *shared;            /* times, largest of the threads, owned */
	size_t shared_room;
	double result;
};

/* One thread calls these, before the others start and after they ended. */
void exchange_open(struct exchange *c, int threads);
void exchange_close(struct exchange *c);
/* From every process `len` bytes, in the order of processes. */
void exchange_gather(struct exchange *c, const void *mine, size_t len,
		     void *all);

void exchange_barrier(struct exchange *c, int thread);

/* The numbers are those of -a. */
enum exchange_how {
	EXCHANGE_FIRST,
	EXCHANGE_AVERAGE,
	EXCHANGE_MIN,
	EXCHANGE_MAX,
	EXCHANGE_SUM,
};

/* One value from each thread; all get the result. */
double exchange_combine(struct exchange *c, int thread, double value,
			enum exchange_how how);

/* n times from each thread. Thread 0 of each process gets the largest of each
 * process, in `all` (n for each process); others may pass NULL. */
void exchange_times(struct exchange *c, int thread, const double *times,
		    size_t n, double *all);

#endif
