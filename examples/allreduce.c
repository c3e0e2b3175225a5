/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first program: every rank contributes its number, every rank gets the
 * sum.
 *
 *     cc -o allreduce allreduce.c $(pkg-config --cflags --libs dicomm)
 *     mpirun -n 4 ./allreduce
 *
 * or without a launcher, once for each rank R from 0 to 3:
 *
 *     DICOMM_RANK=R DICOMM_SIZE=4 DICOMM_COMM_ID=127.0.0.1:5000 \
 *             DICOMM_COMM_KEY=SECRET ./allreduce &
 */
#include <stdio.h>

#include <dicomm.h>

int main(void)
{
	dicomm_comm_t comm = NULL;
	float value[2] = {0, 1};
	int rank;

	if (dicomm_comm_init_env(&comm) != DICOMM_SUCCESS)
		return 1; /* the library has said why */
	dicomm_comm_user_rank(comm, &rank);
	value[0] = (float)rank;
	if (dicomm_allreduce(value, value, 2, DICOMM_FLOAT32, DICOMM_SUM, comm,
			     NULL) != DICOMM_SUCCESS)
		return 1;
	printf("rank %d: sum of ranks %g, ranks %g\n", rank, value[0],
	       value[1]);
	return dicomm_comm_destroy(comm) != DICOMM_SUCCESS;
}
