/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What MPI takes for an all-reduce of floats, by the columns of dicomm-perf
 * that tests/bench/verbs.sh reads: the bytes, and in column 6 the microseconds
 * of one, mean over iterations and ranks. That script compiles it.
 *
 * mpi_allreduce FIRST-BYTES LAST-BYTES FACTOR ITERATIONS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define WARM_UP 2

static int rank, ranks;

static void measure(const float *send, float *recv, int count, int iterations)
{
	double begin, mine, all;

	for (int i = 0; i < WARM_UP; i++)
		MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM,
			      MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	for (int i = 0; i < iterations; i++)
		MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM,
			      MPI_COMM_WORLD);
	mine = (MPI_Wtime() - begin) / iterations;
	MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		if (recv[i] != (float)ranks)
			MPI_Abort(MPI_COMM_WORLD, 1);
	if (rank == 0)
		printf("%zu %d float sum -1 %.2f\n",
		       (size_t)count * sizeof(float), count, all / ranks * 1e6);
}

int main(int argc, char **argv)
{
	size_t bytes, last;
	int factor, iterations;
	float *send, *recv;

	MPI_Init(&argc, &argv);
	if (argc != 5 || atoi(argv[3]) < 2 || atoi(argv[4]) < 1) {
		fprintf(stderr, "usage: %s FIRST LAST FACTOR ITERATIONS\n",
			argv[0]);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	bytes = strtoul(argv[1], NULL, 10);
	last = strtoul(argv[2], NULL, 10);
	factor = atoi(argv[3]);
	iterations = atoi(argv[4]);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	send = malloc(last);
	recv = malloc(last);
	if (!send || !recv)
		MPI_Abort(MPI_COMM_WORLD, 3);
	for (size_t i = 0; i < last / sizeof(float); i++)
		send[i] = 1;
	for (; bytes <= last; bytes *= (size_t)factor)
		measure(send, recv, (int)(bytes / sizeof(float)), iterations);
	free(send);
	free(recv);
	MPI_Finalize();
	return 0;
}
