/* SPDX-License-Identifier: BSD-3-Clause */
/* The order in which a team of devices takes the passes of interleaved 1F1B. */
#ifndef DICOMM_PLANNER_COST_ORDER_H
#define DICOMM_PLANNER_COST_ORDER_H

#include <stdbool.h>

struct order_pass {
	bool forward;
	int chunk, micro_batch;
};

/*
 * Pass k of 2 * chunks * micro_batches, of team `at` of `teams` that hold so
 * many chunks each: as Megatron-LM has it (arXiv 2104.04473, 2.2).
 * Micro-batches go through a chunk in rows of as many as there are teams, of
 * which there has to be a whole number.
 */
struct order_pass order_interleaved(int at, int teams, int chunks,
				    int micro_batches, int k);

#endif
