/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One loop for every library that peers.sh compares: with WITH_MPI it is
 * compiled by an MPI's own mpicc, else it uses libdicomm.
 *
 * peers OPERATION,... BYTES,... SECONDS
 *
 * Prints a row for each operation and size: both, and the microseconds of one,
 * median and least of REPEATS repeats. A repeat takes SECONDS or three calls;
 * its time is that of the slowest rank. Calls run back to back. Bytes are those
 * of the buffer of an all-reduce or broadcast, whose root moves on with each
 * call; of the whole result of an all-gather, the whole input of a
 * reduce-scatter or all-to-all; and of one message of sendrecv, which takes
 * half a round trip between ranks 0 and 1.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REPEATS 5
#define ITERATIONS 20000

static int rank, ranks;

#ifdef WITH_MPI
#include <mpi.h>

#define W MPI_COMM_WORLD
#define MUST(call) ((call) == MPI_SUCCESS ? (void)0 : (void)MPI_Abort(W, 1))

static void begin(void)
{
	MUST(MPI_Init(NULL, NULL));
	MUST(MPI_Comm_rank(W, &rank));
	MUST(MPI_Comm_size(W, &ranks));
}

static void end(void)
{
	MUST(MPI_Finalize());
}

static double greatest(double mine)
{
	double all;

	MUST(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, W));
	return all;
}

static void allreduce(const float *in, float *out, size_t n, int root)
{
	(void)root;
	MUST(MPI_Allreduce(in, out, (int)n, MPI_FLOAT, MPI_SUM, W));
}

static void allgather(const float *in, float *out, size_t n, int root)
{
	int each = (int)n / ranks;

	(void)root;
	MUST(MPI_Allgather(in, each, MPI_FLOAT, out, each, MPI_FLOAT, W));
}

static void reduce_scatter(const float *in, float *out, size_t n, int root)
{
	(void)root;
	MUST(MPI_Reduce_scatter_block(in, out, (int)n / ranks, MPI_FLOAT,
				      MPI_SUM, W));
}

static void broadcast(const float *in, float *out, size_t n, int root)
{
	(void)in;
	MUST(MPI_Bcast(out, (int)n, MPI_FLOAT, root, W));
}

static void alltoall(const float *in, float *out, size_t n, int root)
{
	int each = (int)n / ranks;

	(void)root;
	MUST(MPI_Alltoall(in, each, MPI_FLOAT, out, each, MPI_FLOAT, W));
}

static void send(const float *in, size_t n, int to)
{
	MUST(MPI_Send(in, (int)n, MPI_FLOAT, to, 0, W));
}

static void receive(float *out, size_t n, int from)
{
	MUST(MPI_Recv(out, (int)n, MPI_FLOAT, from, 0, W, MPI_STATUS_IGNORE));
}

#else
#include <dicomm.h>

static dicomm_comm_t comm;

/* The library has said why. */
#define MUST(call) ((call) == DICOMM_SUCCESS ? (void)0 : exit(1))

static void begin(void)
{
	MUST(dicomm_comm_init_env(&comm));
	MUST(dicomm_comm_user_rank(comm, &rank));
	MUST(dicomm_comm_count(comm, &ranks));
}

static void end(void)
{
	MUST(dicomm_comm_destroy(comm));
}

static double greatest(double mine)
{
	double all;

	MUST(dicomm_allreduce(&mine, &all, 1, DICOMM_FLOAT64, DICOMM_MAX, comm,
			      NULL));
	return all;
}

static void allreduce(const float *in, float *out, size_t n, int root)
{
	(void)root;
	MUST(dicomm_allreduce(in, out, n, DICOMM_FLOAT32, DICOMM_SUM, comm,
			      NULL));
}

static void allgather(const float *in, float *out, size_t n, int root)
{
	(void)root;
	MUST(dicomm_allgather(in, out, n / (size_t)ranks, DICOMM_FLOAT32, comm,
			      NULL));
}

static void reduce_scatter(const float *in, float *out, size_t n, int root)
{
	(void)root;
	MUST(dicomm_reduce_scatter(in, out, n / (size_t)ranks, DICOMM_FLOAT32,
				   DICOMM_SUM, comm, NULL));
}

static void broadcast(const float *in, float *out, size_t n, int root)
{
	(void)in;
	MUST(dicomm_broadcast(out, out, n, DICOMM_FLOAT32, root, comm, NULL));
}

static void alltoall(const float *in, float *out, size_t n, int root)
{
	(void)root;
	MUST(dicomm_alltoall(in, out, n / (size_t)ranks, DICOMM_FLOAT32, comm,
			     NULL));
}

static void send(const float *in, size_t n, int to)
{
	MUST(dicomm_send(in, n, DICOMM_FLOAT32, to, comm, NULL));
}

static void receive(float *out, size_t n, int from)
{
	MUST(dicomm_recv(out, n, DICOMM_FLOAT32, from, comm, NULL));
}
#endif

static void sendrecv(const float *in, float *out, size_t n, int root)
{
	(void)root;
	if (rank == 0) {
		send(in, n, 1);
		receive(out, n, 1);
	} else if (rank == 1) {
		receive(out, n, 0);
		send(in, n, 0);
	}
}

static const struct operation {
	const char *name;
	void (*run)(const float *in, float *out, size_t n, int root);
	int one_of_ranks; /* a block has n / ranks elements */
	int calls;        /* times in one run of it */
} operations[] = {
	{"allreduce", allreduce, 0, 1},
	{"allgather", allgather, 1, 1},
	{"reduce_scatter", reduce_scatter, 1, 1},
	{"broadcast", broadcast, 0, 1},
	{"alltoall", alltoall, 1, 1},
	{"sendrecv", sendrecv, 0, 2},
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Where ranks have a core each, they keep to it. */
static void pin(void)
{
	cpu_set_t all, one;
	int at = rank;

	if (sched_getaffinity(0, sizeof(all), &all) || CPU_COUNT(&all) < ranks)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all) || at-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		(void)sched_setaffinity(0, sizeof(one), &one);
		return;
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double time_of(const struct operation *o, const float *in, float *out,
		      size_t n, long iterations)
{
	double start;

	(void)greatest(0); /* a barrier */
	start = now();
	for (long i = 0; i < iterations; i++)
		o->run(in, out, n, (int)(i % ranks));
	return greatest(now() - start) / (double)(iterations * o->calls);
}

/* Each input is all ones, so a result is all ones, or all numbers of ranks. */
static void check(const struct operation *o, const float *out, size_t n)
{
	int sums = o->run == allreduce || o->run == reduce_scatter;
	size_t len = o->run == reduce_scatter ? n / (size_t)ranks : n;

	for (size_t i = 0; i < len && (o->run != sendrecv || rank < 2); i++)
		if (out[i] != (sums ? (float)ranks : 1)) {
			fprintf(stderr, "%s: element %zu is %g\n", o->name, i,
				(double)out[i]);
			exit(1);
		}
}

static void measure(const struct operation *o, size_t bytes, double seconds)
{
	size_t n = bytes / sizeof(float);
	double once, all[REPEATS];
	float *in, *out;
	long iterations;

	if (o->one_of_ranks)
		n -= n % (size_t)ranks;
	in = aligned_alloc(4096, bytes / 4096 * 4096 + 4096);
	out = aligned_alloc(4096, bytes / 4096 * 4096 + 4096);
	if (!in || !out)
		exit(1);
	for (size_t i = 0; i < n; i++)
		in[i] = out[i] = 1;
	(void)time_of(o, in, out, n, 2);
	once = time_of(o, in, out, n, 3) * o->calls;
	iterations = (long)greatest(seconds / once);
	if (iterations > ITERATIONS)
		iterations = ITERATIONS;
	/* Roots take turns, all as often. */
	iterations = (iterations / ranks + 1) * ranks;
	for (int i = 0; i < REPEATS; i++)
		all[i] = time_of(o, in, out, n, iterations);
	check(o, out, n);
	qsort(all, REPEATS, sizeof(*all), compare);
	if (rank == 0)
		printf("%s %zu %.3f %.3f\n", o->name, bytes,
		       all[REPEATS / 2] * 1e6, all[0] * 1e6);
	free(in);
	free(out);
}

static const struct operation *find(const char *name)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
		if (!strcmp(operations[i].name, name))
			return &operations[i];
	fprintf(stderr, "%s: no such operation\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	char *rest, *name, *size;

	if (argc != 4 || atof(argv[3]) <= 0) {
		fprintf(stderr, "usage: %s OPERATION,... BYTES,... SECONDS\n",
			argv[0]);
		return 2;
	}
	begin();
	pin();
	for (name = strtok_r(argv[1], ",", &rest); name;
	     name = strtok_r(NULL, ",", &rest)) {
		const struct operation *o = find(name);
		char *sizes = strdup(argv[2]), *more;

		for (size = strtok_r(sizes, ",", &more); size;
		     size = strtok_r(NULL, ",", &more))
			measure(o, strtoul(size, NULL, 10), atof(argv[3]));
		free(sizes);
	}
	end();
	return 0;
}
