/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cache of keys and values moves from the rank that has computed it (prefill,
 * rank 0) to the one that goes on with it (decode, rank 1).
 *
 * The decode rank has room for a few blocks, as a window. The prefill rank puts
 * block after block into it, each with a signal that it is there. The decode
 * rank consumes them in order, and signals back that their room is free again;
 * the prefill rank waits for that before it overwrites a block.
 *
 *     cc -o kv_put kv_put.c $(pkg-config --cflags --libs dicomm)
 *     mpirun -n 2 ./kv_put
 */
#include <stdio.h>
#include <stdlib.h>

#include <dicomm.h>

#define PREFILL 0
#define DECODE 1
#define BLOCKS 64
#define ROOM 4 /* blocks in the window */
/* A block: the keys and values of some tokens in one layer */
#define TOKENS 16
#define WIDTH 1024
#define FLOATS ((size_t)2 * TOKENS * WIDTH)

enum signals { READY, FREE };

static void check(dicomm_result_t result, const char *what, dicomm_comm_t comm)
{
	if (result == DICOMM_SUCCESS)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, dicomm_get_error_string(result),
		dicomm_get_last_error(comm));
	exit(1);
}

#define CHECK(call) check(call, #call, comm)

/* Stands for what a model computes. */
static float value(int block, size_t i)
{
	return (float)(block * 1000 + (int)(i % 997));
}

static void wait_for(dicomm_comm_t comm, int peer, int signal)
{
	dicomm_wait_signal_desc_t one = {
		.count = 1, .peer = peer, .signal = signal};

	CHECK(dicomm_wait_signal(1, &one, comm, NULL));
}

static void prefill(dicomm_comm_t comm, dicomm_window_t win)
{
	static float block[FLOATS];

	for (int b = 0; b < BLOCKS; b++) {
		size_t place = (size_t)(b % ROOM) * sizeof(block);

		/* The put before has returned, so the block is ours again. */
		for (size_t i = 0; i < FLOATS; i++)
			block[i] = value(b, i);
		if (b >= ROOM)
			wait_for(comm, DECODE, FREE);
		CHECK(dicomm_put_signal(block, FLOATS, DICOMM_FLOAT32, DECODE,
					win, place, READY, 0, 0, comm, NULL));
	}
	printf("prefill: %d blocks of %zu bytes put\n", BLOCKS, sizeof(block));
}

static int decode(dicomm_comm_t comm, const float *cache)
{
	int wrong = 0;

	for (int b = 0; b < BLOCKS; b++) {
		const float *block = cache + (size_t)(b % ROOM) * FLOATS;

		wait_for(comm, PREFILL, READY);
		for (size_t i = 0; i < FLOATS; i++)
			wrong += block[i] != value(b, i);
		CHECK(dicomm_signal(PREFILL, FREE, 0, 0, comm, NULL));
	}
	printf("decode: %d blocks in order, %d values wrong\n", BLOCKS, wrong);
	return wrong;
}

int main(void)
{
	static float cache[ROOM * FLOATS];
	dicomm_comm_t comm = NULL;
	dicomm_window_t win;
	int rank, ranks, wrong = 0;

	CHECK(dicomm_comm_init_env(&comm));
	CHECK(dicomm_comm_user_rank(comm, &rank));
	CHECK(dicomm_comm_count(comm, &ranks));
	if (ranks != 2) {
		fprintf(stderr, "2 ranks are needed, not %d\n", ranks);
		return 1;
	}
	/* Nobody puts into the prefill rank: its part of the window is empty.
	 */
	CHECK(dicomm_comm_window_register(comm, rank == DECODE ? cache : NULL,
					  rank == DECODE ? sizeof(cache) : 0,
					  &win, DICOMM_WINDOW_DEFAULT));
	if (rank == PREFILL)
		prefill(comm, win);
	else
		wrong = decode(comm, cache);
	CHECK(dicomm_comm_window_deregister(comm, win));
	CHECK(dicomm_comm_destroy(comm));
	return wrong != 0;
}
