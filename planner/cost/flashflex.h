/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost model of FlashFlex (HexiScale) as its released scheduler has it, to
 * compare with: peak rates, no latency, one micro-batch in flight, GPipe's
 * columns, and two fitted factors. Written from its formulas, after
 * arXiv 2409.01143. Its units are kept: a TFLOPS is 1024^4, a GB/s 1024^3.
 */
#ifndef DICOMM_PLANNER_COST_FLASHFLEX_H
#define DICOMM_PLANNER_COST_FLASHFLEX_H

#include "planner/cost/table.h"

struct flashflex {
	double seconds;     /* 1.8 pipe + 1.1 sync */
	double pipe;        /* of the slowest pipeline */
	double sync;        /* of all layers, with the factor of ZeRO-3 */
	double hfu;         /* what it calls MFU: counts what is recomputed */
	double most_memory; /* GiB, of the fullest device */
};

/* Layers are the transformer blocks. A stage's first device stands for all. */
void flashflex_cost(const struct job *j, const struct plan *p,
		    struct flashflex *out);

#endif
