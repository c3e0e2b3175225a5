/* SPDX-License-Identifier: BSD-3-Clause */
/* Interleaved 1F1B, pass by pass. */
#include "planner/cost/order.h"

/* Passes forward before the first one back. */
static int warm_up(int at, int teams, int chunks, int micro_batches)
{
	int all = chunks * micro_batches;
	int most = 2 * (teams - at - 1) + (chunks - 1) * teams;

	return micro_batches == teams || most > all ? all : most;
}

struct order_pass order_interleaved(int at, int teams, int chunks,
				    int micro_batches, int k)
{
	int all = chunks * micro_batches;
	int warm = warm_up(at, teams, chunks, micro_batches);
	int turn = k - warm; /* one forward, one back */
	struct order_pass out = {.forward = true};

	if (turn >= 0 && turn < 2 * (all - warm)) {
		out.forward = turn % 2 == 0;
		k = out.forward ? warm + turn / 2 : turn / 2;
	} else if (turn >= 0) {
		out.forward = false;
		k -= all;
	}
	out.chunk = k / teams % chunks;
	if (!out.forward)
		out.chunk = chunks - 1 - out.chunk;
	out.micro_batch = k / (teams * chunks) * teams + k % teams;
	return out;
}
