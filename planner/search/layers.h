/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many layers each stage of a pipeline gets: so that the slowest stage is
 * as fast as can be, within the memory of each. Exact, by bisection on the time
 * of the slowest stage; given that time, each stage takes all it can in turn.
 */
#ifndef DICOMM_PLANNER_SEARCH_LAYERS_H
#define DICOMM_PLANNER_SEARCH_LAYERS_H

#include "planner/cost/table.h"

struct layers_stage {
	const struct table *table;
	double extra;        /* seconds of each micro-batch beside its passes */
	double memory;       /* bytes for state and activations */
	double state;        /* bytes of a parameter */
	double expert_state; /* of one of experts */
	double route; /* seconds of each pass of a unit with experts, beside */
	int in_flight, again; /* micro-batches (planner/cost/memory.h) */
	/* Found: */
	int first, last;
	bool recompute;
	bool tight; /* with more memory it might have held more */
};

/* Seconds of the slowest stage, or INFINITY if nothing fits. Slack above 1
 * allows a stage so many times the least time: that may shorten the way through
 * all of them. With a limit above 0, INFINITY also if it takes longer. */
double layers_split(struct layers_stage *s, int stages, int units, double slack,
		    double limit);
/* The rule of FlashFlex, for comparisons: by the memory of the stages. INFINITY
 * if that does not fit. */
double layers_by_memory(struct layers_stage *s, int stages, int units,
			const double *memory);

/* Seconds of a micro-batch of a stage. */
double layers_seconds(const struct layers_stage *s);

#endif
