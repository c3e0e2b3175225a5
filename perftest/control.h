/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the measuring threads of all processes tell each other: barriers, and
 * the exchange of results. Between processes it goes over a communicator of
 * its own, with one rank for each process, so that the communicators under test
 * carry nothing else. All calls are collective: every thread of every process.
 */
#ifndef DICOMM_PERFTEST_CONTROL_H
#define DICOMM_PERFTEST_CONTROL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "dicomm.h"

struct control {
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
void control_open(struct control *c, int threads);
void control_close(struct control *c);
/* From every process `len` bytes, in the order of processes. */
void control_gather(struct control *c, const void *mine, size_t len, void *all);

void control_barrier(struct control *c, int thread);

/* The numbers are those of -a. */
enum control_how {
	CONTROL_FIRST,
	CONTROL_AVERAGE,
	CONTROL_MIN,
	CONTROL_MAX,
	CONTROL_SUM,
};

/* One value from each thread; all get the result. */
double control_combine(struct control *c, int thread, double value,
		       enum control_how how);

/* n times from each thread. Thread 0 of each process gets the largest of each
 * process, in `all` (n for each process); others may pass NULL. */
void control_times(struct control *c, int thread, const double *times, size_t n,
		   double *all);

/* Thread 0 of process 0 decides; all get its answer. */
bool control_agree(struct control *c, int thread, bool value);

#endif
