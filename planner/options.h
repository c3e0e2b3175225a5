/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of dicomm-plan. */
#ifndef DICOMM_PLANNER_OPTIONS_H
#define DICOMM_PLANNER_OPTIONS_H

#include <stdbool.h>

#include "planner/input/plan.h"

#define OPTIONS_PLANS 8
#define OPTIONS_ZERO_ANY (-1)
#define OPTIONS_INTERLEAVE_ANY (-1)

struct options {
	const char *command; /* of argv */
	char *cluster, *model, *profile, *out, *trace, *svg,
		*export;           /* owned */
	char *cost;                /* owned; NULL or "flashflex" */
	char *plan[OPTIONS_PLANS]; /* [plans]; owned */
	int plans;
	char **argument; /* [arguments]: what is left; owned */
	int arguments;
	char *device, *python; /* owned */
	int global_batch, seq, micro_batch;
	char *space;     /* owned; "type", "device", "auto", "every" */
	double budget_s; /* 0: as many rounds as `rounds` says */
	int rounds, seed, jobs;
	int keep;        /* plans that search writes */
	char *lost;      /* owned; of replan */
	char *objective; /* owned; NULL: time */
	int max_devices; /* limits; 0: none */
	double max_price, max_power, max_step;
	bool has_schedule, has_overlap, has_zero;
	int json, symmetric, by_memory; /* not 0: so */
	enum plan_schedule schedule;
	enum plan_overlap overlap;
	int zero;       /* or OPTIONS_ZERO_ANY: search */
	int ahead;      /* of a plan; below 0: what it says */
	int interleave; /* of search; or OPTIONS_INTERLEAVE_ANY; 0: none */
	int experts;    /* expert_parallel of a plan; 0: what it says, any */
	double imbalance, capacity; /* of experts: planner/cost/table.h */
};

/* False after a message, or after help: *status is then what to end with. */
bool options_read(struct options *o, int argc, char **argv, int *status);
void options_free(struct options *o);

#endif
