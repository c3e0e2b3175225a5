/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory and the time of ranks that do nothing: so many threads' worth of
 * ranks in this process, by dicomm_comm_init_all(). From two numbers of ranks
 * follow the bytes that a rank has for each other one:
 *
 *     rank_memory 256; rank_memory 512
 *     (anonymous kB of the second - of the first) * 1024 / (512^2 - 256^2)
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dicomm.h"
#include "src/base/clock.h"

/* Returns a line of /proc/self/status, in kB. */
static long status_of(const char *name)
{
	FILE *f = fopen("/proc/self/status", "r");
	size_t len = strlen(name);
	char line[256];
	long kb = 0;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len))
			kb = strtol(line + len, NULL, 10);
	if (f)
		fclose(f);
	return kb;
}

int main(int argc, char **argv)
{
	int ranks = argc == 2 ? atoi(argv[1]) : 0;
	long before = status_of("RssAnon:");
	dicomm_comm_t *comms;
	uint64_t begin;

	if (ranks < 1) {
		fprintf(stderr, "usage: %s RANKS\n", argv[0]);
		return 2;
	}
	comms = calloc((size_t)ranks, sizeof(dicomm_comm_t));
	begin = clock_ns();
	if (!comms ||
	    dicomm_comm_init_all(comms, ranks, NULL) != DICOMM_SUCCESS) {
		fprintf(stderr, "%d ranks: %s\n", ranks,
			dicomm_get_last_error(NULL));
		return 1;
	}
	begin = clock_ns() - begin;
	malloc_trim(0);
	printf("%d ranks: %.2f s, %ld kB anonymous, %ld kB shared, at most "
	       "%ld kB\n",
	       ranks, (double)begin / 1e9, status_of("RssAnon:") - before,
	       status_of("RssShmem:"), status_of("VmHWM:"));
	for (int r = 0; r < ranks; r++)
		dicomm_comm_destroy(comms[r]);
	free(comms);
	return 0;
}
