/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank is not a process: one thread holds all ranks of a communicator, as a
 * program does that drives all devices of a machine.
 *
 *     cc -o several several_ranks_one_process.c \
 *             $(pkg-config --cflags --libs dicomm)
 *     ./several
 */
#include <stdio.h>
#include <stdlib.h>

#include <dicomm.h>

#define RANKS 4
#define COUNT 1000

static void check(dicomm_result_t result, const char *what)
{
	if (result == DICOMM_SUCCESS)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, dicomm_get_error_string(result),
		dicomm_get_last_error(NULL));
	exit(1);
}

#define CHECK(call) check(call, #call)

int main(void)
{
	static const char *const devices[RANKS] = {"host", "host", "host",
						   "host"};
	static int64_t buffer[RANKS][COUNT];
	dicomm_comm_t comms[RANKS];
	int wrong = 0;

	CHECK(dicomm_comm_init_all(comms, RANKS, devices));
	for (int r = 0; r < RANKS; r++)
		for (int i = 0; i < COUNT; i++)
			buffer[r][i] = (int64_t)r * COUNT + i;

	/* One call after the other would wait for a rank that this very thread
	 * has yet to call for; the group starts all of them together. */
	CHECK(dicomm_group_start());
	for (int r = 0; r < RANKS; r++)
		CHECK(dicomm_allreduce(buffer[r], buffer[r], COUNT,
				       DICOMM_INT64, DICOMM_MAX, comms[r],
				       NULL));
	CHECK(dicomm_group_end());

	for (int r = 0; r < RANKS; r++)
		for (int i = 0; i < COUNT; i++)
			wrong += buffer[r][i] !=
				 (int64_t)(RANKS - 1) * COUNT + i;
	printf("%d ranks in one thread, %d wrong\n", RANKS, wrong);

	/* Leaving is done together, too. */
	CHECK(dicomm_group_start());
	for (int r = 0; r < RANKS; r++)
		CHECK(dicomm_comm_destroy(comms[r]));
	CHECK(dicomm_group_end());
	return wrong != 0;
}
