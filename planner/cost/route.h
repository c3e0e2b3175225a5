/* SPDX-License-Identifier: BSD-3-Clause */
/* What it takes tokens to get to experts on other devices, and back. */
#ifndef DICOMM_PLANNER_COST_ROUTE_H
#define DICOMM_PLANNER_COST_ROUTE_H

#include "planner/cost/table.h"

struct route_team {
	const uint32_t *rank; /* [tp] */
	int tp;
};

/*
 * Seconds of one pass, forward or backward, of one block of a micro-batch whose
 * experts are spread over n teams: an all-to-all there and one back by the
 * library's estimator, each device of a team with its part of the tokens. The
 * devices of a team, which split each expert's matrices, gather what came and
 * sum what goes. others[i]: stages of that node that do the same, and share its
 * way; 0 as 1. NAN: out of memory.
 */
double route_seconds(struct job *j, const struct route_team *team,
		     const int *others, int n, int micro_batch);

#endif
