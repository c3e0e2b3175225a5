/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers and exchange of results between threads and processes. */
#include <stdlib.h>
#include <string.h>

#include "perftest/base/exchange.h"
#include "perftest/base/failure.h"

/* Returns true if a variable is set by which the library recognizes a launcher.
 * If none is set, this process is alone, and the library need not be called,
 * which would log an error. */
static bool has_launcher(void)
{
	static const char *const marks[] = {
		"DICOMM_RANK",    "DICOMM_SIZE",  "PMIX_RANK",
		"PMIX_NAMESPACE", "PMI_RANK",     "PMI_FD",
		"WORLD_SIZE",     "SLURM_PROCID", "OMPI_COMM_WORLD_RANK",
	};

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (getenv(marks[i]))
			return true;
	return false;
}

void exchange_open(struct exchange *c, int threads)
{
	*c = (struct exchange){.procs = 1, .threads = threads};
	c->slots = calloc((size_t)threads, sizeof(*c->slots));
	if (!c->slots ||
	    pthread_barrier_init(&c->barrier, NULL, (unsigned)threads) != 0)
		failure_end(FAILURE_INTERNAL, "out of memory");
	/* The data that processes exchange is in host memory. */
	setenv("DICOMM_DEVICE", "host", 1);
	if (!has_launcher())
		return;
	CHECK_DICOMM(NULL, dicomm_comm_init_env(&c->comm));
	CHECK_DICOMM(c->comm, dicomm_comm_count(c->comm, &c->procs));
	CHECK_DICOMM(c->comm, dicomm_comm_user_rank(c->comm, &c->proc));
}

void exchange_close(struct exchange *c)
{
	if (c->comm) {
		CHECK_DICOMM(c->comm, dicomm_comm_finalize(c->comm));
		CHECK_DICOMM(NULL, dicomm_comm_destroy(c->comm));
	}
	pthread_barrier_destroy(&c->barrier);
	free(c->slots);
	free(c->shared);
}

void exchange_gather(struct exchange *c, const void *mine, size_t len,
		     void *all)
{
	if (!c->comm)
		memcpy(all, mine, len);
	else
		CHECK_DICOMM(c->comm,
			     dicomm_allgather(mine, all, len, DICOMM_UINT8,
					      c->comm, NULL));
}

void exchange_barrier(struct exchange *c, int thread)
{
	pthread_barrier_wait(&c->barrier);
	if (thread == 0 && c->comm)
		CHECK_DICOMM(c->comm, dicomm_barrier(c->comm, NULL));
	pthread_barrier_wait(&c->barrier);
}

static double fold(const double *values, int n, enum exchange_how how)
{
	double v = values[0];

	for (int i = 1; i < n; i++) {
		if (how == EXCHANGE_AVERAGE || how == EXCHANGE_SUM)
			v += values[i];
		else if (how == EXCHANGE_MIN)
			v = values[i] < v ? values[i] : v;
		else if (how == EXCHANGE_MAX)
			v = values[i] > v ? values[i] : v;
	}
	return v;
}

static void combine_processes(struct exchange *c, enum exchange_how how)
{
	double *all = failure_alloc((size_t)c->procs, sizeof(*all));
	double mine = fold(c->slots, c->threads, how);

	exchange_gather(c, &mine, sizeof(mine), all);
	c->result = fold(all, c->procs, how);
	if (how == EXCHANGE_AVERAGE)
		c->result /= (double)c->procs * c->threads;
	free(all);
}

double exchange_combine(struct exchange *c, int thread, double value,
			enum exchange_how how)
{
	double result;

	c->slots[thread] = value;
	pthread_barrier_wait(&c->barrier);
	if (thread == 0)
		combine_processes(c, how);
	pthread_barrier_wait(&c->barrier);
	result = c->result;
	/* No thread may start the next exchange before all have read this
	 * result. */
	pthread_barrier_wait(&c->barrier);
	return result;
}

void exchange_times(struct exchange *c, int thread, const double *times,
		    size_t n, double *all)
{
	if (thread == 0 && c->shared_room < n) {
		free(c->shared);
		c->shared = failure_alloc(n, sizeof(*c->shared));
		c->shared_room = n;
	}
	for (int t = 0; t < c->threads; t++) {
		for (size_t i = 0; t == thread && i < n; i++)
			if (t == 0 || times[i] > c->shared[i])
				c->shared[i] = times[i];
		pthread_barrier_wait(&c->barrier);
	}
	if (thread == 0)
		exchange_gather(c, c->shared, n * sizeof(*c->shared), all);
	pthread_barrier_wait(&c->barrier);
}
