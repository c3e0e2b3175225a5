/* SPDX-License-Identifier: BSD-3-Clause */
/* What a stage keeps in the memory of each of its devices, in closed form. */
#ifndef DICOMM_PLANNER_COST_MEMORY_H
#define DICOMM_PLANNER_COST_MEMORY_H

#include "planner/cost/table.h"

struct memory {
	double weights, gradients, optimizer, activations, reserved; /* bytes */
	double work;   /* of a backward pass, beside activations */
	double bucket; /* of gradients; they fill it when activations are gone,
			* with the overlap full beside them */
	double total, limit;
	int in_flight; /* micro-batches that wait for their backward pass */
};

/* Of the units first to last, as stage `at` of `stages`. The state is spread
 * over the plan's pipelines, that of experts over those that have the same
 * ones, as ZeRO says: from 1 on the optimizer, from 2 on
 * the gradients, from 3 on the weights. */
void memory_of(const struct job *j, const struct table *t, int first, int last,
	       bool recompute, int at, int stages, int micro_batches,
	       const struct plan *p, struct memory *out);
/* Of team `at` of `teams` that holds several chunks, each of which is
 * in[chunk], from memory_of(): all of them together, with what is most in
 * flight at once. in[chunk].in_flight becomes that of the chunk. */
void memory_join(struct memory *in, int chunks, int at, int teams,
		 int micro_batches, const struct plan *p, struct memory *out);
/* Micro-batches in flight: 1F1B holds as many as stages come after it, and its
 * own, and `ahead` more for each of those; ZB-H1 as the first one in each;
 * GPipe all. */
int memory_in_flight(int at, int stages, int micro_batches,
		     enum plan_schedule schedule, int ahead);
/* Of these, with recomputation: those that are computed again and stay whole
 * until the gradients of weights, which ZB-H1 puts off by `at` backward passes;
 * else none. */
int memory_again(int at, int in_flight, enum plan_schedule schedule);

#endif
