/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a plan costs: seconds of a step and where they go, memory of each
 * stage. A pure function of job and plan; any thread.
 */
#ifndef DICOMM_PLANNER_COST_COST_H
#define DICOMM_PLANNER_COST_COST_H

#include "planner/cost/memory.h"
#include "planner/cost/schedule.h"

struct cost_stage {
	double forward, backward; /* seconds of one micro-batch */
	double weight;            /* ZB-H1: of `backward`, put off */
	/* Of its devices, with whatever else they hold: seconds of the step
	 * before the gradients meet. */
	double busy, moving, idle;
	double sync;       /* gradients, and weights of ZeRO */
	double sync_bytes; /* of the stage that are summed */
	double update;
	double route;              /* of one pass: tokens to experts and back */
	int routes;                /* such passes of a micro-batch */
	double send_bytes, send_s; /* to the next stage, one micro-batch */
	struct memory memory;      /* of its devices, likewise, but in_flight */
};

struct cost_pipeline {
	struct cost_stage *stage; /* [stages] of the plan; owned */
	double seconds;           /* until its last backward pass */
	double bubble; /* part of its devices' time without a pass or message */
};

struct cost {
	struct cost_pipeline *pipeline; /* [pipelines] of the plan; owned */
	int pipelines;
	double step;               /* seconds */
	double pipe, sync, update; /* which it is the sum of; sync: exposed */
	double mfu, hfu;
	double tokens_per_s;
	double error; /* relative, up and down */
	bool fits;    /* into memory, everywhere */
};

/* False after a message. `tell` may be NULL. */
bool cost_of(struct job *j, const struct plan *p, schedule_tell *tell,
	     void *ctx, struct cost *out);
void cost_free(struct cost *c);

/* The stages that sum the gradients of units first to last: one of each
 * pipeline. */
struct cost_group {
	int first, last;
};
/* Fills in group[0 ... model_units()) at most; how many. */
int cost_groups(const struct plan *p, const struct model *m,
		struct cost_group *group);
/* Which stage of a pipeline holds a unit. */
int cost_stage_of(const struct plan_pipeline *l, int unit);

#endif
