/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups: operations that have to progress together.
 *
 * First a ring exchange: every rank sends to the next and receives from the
 * one before. Then two all-reduces at once, over the rows and over the columns
 * of a grid of ranks, each on a communicator made by a split.
 *
 *     cc -o groups groups.c $(pkg-config --cflags --libs dicomm)
 *     mpirun -n 4 ./groups
 */
#include <stdio.h>
#include <stdlib.h>

#include <dicomm.h>

#define WIDTH 2 /* of the grid */

static void check(dicomm_result_t result, const char *what, dicomm_comm_t comm)
{
	if (result == DICOMM_SUCCESS)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, dicomm_get_error_string(result),
		dicomm_get_last_error(comm));
	exit(1);
}

#define CHECK(call) check(call, #call, comm)

static int shift(dicomm_comm_t comm, int rank, int ranks)
{
	int from_before = -1;

	/* Without the group, all could wait in their send. */
	CHECK(dicomm_group_start());
	CHECK(dicomm_send(&rank, 1, DICOMM_INT32, (rank + 1) % ranks, comm,
			  NULL));
	CHECK(dicomm_recv(&from_before, 1, DICOMM_INT32,
			  (rank + ranks - 1) % ranks, comm, NULL));
	CHECK(dicomm_group_end());
	return from_before;
}

int main(void)
{
	dicomm_comm_t comm = NULL, row = NULL, column = NULL;
	double row_sum, column_sum;
	int rank, ranks;

	CHECK(dicomm_comm_init_env(&comm));
	CHECK(dicomm_comm_user_rank(comm, &rank));
	CHECK(dicomm_comm_count(comm, &ranks));
	printf("rank %d: got %d from the one before\n", rank,
	       shift(comm, rank, ranks));

	CHECK(dicomm_comm_split(comm, rank / WIDTH, rank, &row, NULL));
	CHECK(dicomm_comm_split(comm, rank % WIDTH, rank, &column, NULL));
	row_sum = column_sum = rank;
	CHECK(dicomm_group_start());
	CHECK(dicomm_allreduce(&row_sum, &row_sum, 1, DICOMM_FLOAT64,
			       DICOMM_SUM, row, NULL));
	CHECK(dicomm_allreduce(&column_sum, &column_sum, 1, DICOMM_FLOAT64,
			       DICOMM_SUM, column, NULL));
	CHECK(dicomm_group_end());
	printf("rank %d: sum of row %g, of column %g\n", rank, row_sum,
	       column_sum);

	CHECK(dicomm_comm_destroy(row));
	CHECK(dicomm_comm_destroy(column));
	CHECK(dicomm_comm_destroy(comm));
	return 0;
}
