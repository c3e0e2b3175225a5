/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pipeline: rank r works on what rank r - 1 sends and passes it on to rank
 * r + 1, as the stages of a model do with micro-batches.
 *
 * A host stream lets a stage compute batch b + 1 while batch b is on its way;
 * two buffers take turns.
 *
 *     cc -o pipeline pipeline_sendrecv.c $(pkg-config --cflags --libs dicomm)
 *     mpirun -n 4 ./pipeline
 */
#include <stdio.h>
#include <stdlib.h>

#include <dicomm.h>

#define BATCHES 8
#define COUNT 100000 /* floats of one batch */

static void check(dicomm_result_t result, const char *what, dicomm_comm_t comm)
{
	if (result == DICOMM_SUCCESS)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, dicomm_get_error_string(result),
		dicomm_get_last_error(comm));
	exit(1);
}

#define CHECK(call) check(call, #call, comm)

/* The work of a stage: here, add one. */
static void compute(float *batch)
{
	for (int i = 0; i < COUNT; i++)
		batch[i] += 1;
}

int main(void)
{
	dicomm_comm_t comm = NULL;
	dicomm_stream_t sends[2];
	float *batch[2];
	int rank, ranks, wrong = 0;

	CHECK(dicomm_comm_init_env(&comm));
	CHECK(dicomm_comm_user_rank(comm, &rank));
	CHECK(dicomm_comm_count(comm, &ranks));
	for (int i = 0; i < 2; i++) {
		/* Neighbours read such memory in place. */
		CHECK(dicomm_mem_alloc((void **)&batch[i],
				       COUNT * sizeof(float)));
		CHECK(dicomm_host_stream_create(&sends[i]));
	}

	for (int b = 0; b < BATCHES; b++) {
		float *now = batch[b % 2];

		/* The send of two batches ago has read this buffer. */
		CHECK(dicomm_host_stream_synchronize(sends[b % 2]));
		if (rank > 0)
			CHECK(dicomm_recv(now, COUNT, DICOMM_FLOAT32, rank - 1,
					  comm, NULL));
		else
			for (int i = 0; i < COUNT; i++)
				now[i] = (float)b;
		compute(now);
		if (rank < ranks - 1)
			CHECK(dicomm_send(now, COUNT, DICOMM_FLOAT32, rank + 1,
					  comm, sends[b % 2]));
		else
			wrong += now[COUNT - 1] != (float)(b + ranks);
	}
	if (rank == ranks - 1)
		printf("%d batches through %d stages, %d wrong\n", BATCHES,
		       ranks, wrong);

	for (int i = 0; i < 2; i++) {
		CHECK(dicomm_host_stream_synchronize(sends[i]));
		CHECK(dicomm_host_stream_destroy(sends[i]));
	}
	CHECK(dicomm_comm_destroy(comm));
	for (int i = 0; i < 2; i++)
		dicomm_mem_free(batch[i]);
	return wrong != 0;
}
