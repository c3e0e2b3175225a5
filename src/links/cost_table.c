/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/links/cost_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/reduce/reduce.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/topo/node.h"

/* Bytes that are copied or reduced at a time. All pieces of both sides fit into
 * a second-level cache of 512 KiB. Each page of them costs about 1 us the first
 * time, which is most of what this takes. */
#define PIECE_BYTES 32768
#define PIECES 6
#define REPEATS 5

/* Time of a message of a few bytes between two cores of one machine: two
 * cache-line transfers and the calls on both sides. One process alone cannot
 * measure it. An error only affects the choice between algorithms that take
 * about equally long. */
#define LATENCY_PS 250000
#define PER_MESSAGE_PS 40000

/* Rough numbers for GPUs; only their ratios affect the choice. They are: bytes
 * per second read and written in the memory of one GPU; time from an event in a
 * stream to the kernel of another stream that waits for it; time to start a
 * copy or kernel. */
#define GPU_BYTES_PER_S UINT64_C(2000000000000)
#define GPU_HOP_PS 10000000
#define GPU_START_PS 3000000

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
	uint64_t copy, reduce; /* bytes per second */
	uint64_t yield_ps;
} measured;

static uint64_t rate(uint64_t bytes, uint64_t ns)
{
	return bytes * UINT64_C(1000000000) / (ns ? ns : 1);
}

static void measure(void)
{
	reduce_fn sum = reduce_kernel(DICOMM_FLOAT32, DICOMM_SUM, false);
	size_t all = (size_t)PIECE_BYTES * PIECES;
	char *a = aligned_alloc(4096, all), *b = aligned_alloc(4096, all);
	uint64_t best_copy = UINT64_MAX, best_sum = UINT64_MAX;
	uint64_t begin;

	measured.copy = measured.reduce = UINT64_C(10000000000);
	measured.yield_ps = 1000000;
	if (!a || !b)
		goto out;
	memset(a, 0, all);
	memset(b, 0, all);
	for (int r = 0; r < REPEATS; r++) {
		begin = clock_ns();
		for (size_t i = 0; i < all; i += PIECE_BYTES)
			memcpy(a + i, b + i, PIECE_BYTES);
		if (clock_ns() - begin < best_copy)
			best_copy = clock_ns() - begin;
		begin = clock_ns();
		for (size_t i = 0; i < all; i += PIECE_BYTES)
			sum(a + i, a + i, b + i, PIECE_BYTES / 4);
		if (clock_ns() - begin < best_sum)
			best_sum = clock_ns() - begin;
	}
	measured.copy = rate(all, best_copy);
	measured.reduce = rate(all, best_sum);
out:
	free(a);
	free(b);
}

dicomm_result_t cost_table_make(int node_ranks, uint32_t slot_bytes,
				bool deterministic, struct select_table *table)
{
	struct estimate_params *p = &table->params;

	pthread_once(&once, measure);
	memset(table, 0, sizeof(*table));
	p->latency_ps = LATENCY_PS;
	p->per_message_ps = PER_MESSAGE_PS;
	p->yield_ps = measured.yield_ps;
	/* Two ranks copy at the same time: one into slots, one out of them. */
	p->bytes_per_s = measured.copy;
	p->reduce_bytes_per_s = measured.reduce;
	p->copy_bytes_per_s = measured.copy;
	p->slot_bytes = slot_bytes;
	p->node_ranks = (uint32_t)node_ranks;
	p->node_cores = (uint32_t)node_cores();
	table->deterministic = deterministic;
	return select_override(table, config_string(CONFIG_ALGO));
}

dicomm_result_t cost_table_check(void)
{
	struct select_table table = {.deterministic = false};

	return select_override(&table, config_string(CONFIG_ALGO));
}

void cost_table_in_process(struct select_table *table, int ranks,
			   uint32_t slice_bytes)
{
	struct estimate_params *p = &table->params;
	uint64_t rate = GPU_BYTES_PER_S / (uint64_t)ranks;

	p->latency_ps = GPU_HOP_PS;
	/* One thread starts all copies and kernels, one for each message. */
	p->per_message_ps = GPU_START_PS * (uint64_t)ranks / 2;
	/* A send moves nothing; the receiver reads the bytes when it reduces or
	 * copies them. */
	p->bytes_per_s = UINT64_MAX;
	p->reduce_bytes_per_s = rate / 3;
	p->copy_bytes_per_s = rate / 2;
	p->slice_bytes = slice_bytes;
	p->node_cores = 0;
}
