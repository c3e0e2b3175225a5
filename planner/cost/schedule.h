/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Event simulation of pipelines: 1F1B and GPipe with stages of any length.
 *
 * Blocking: a stage sends and receives in turn, one message at a time, and
 * both sides are held until it is through. Eager: only who sends is held, as
 * what receives has room for it. Else messages start when the forward or
 * backward pass has ended and hold nobody who does not wait for them. Messages
 * queue for the way out of a node and for the way into one, also those of other
 * pipelines.
 */
#ifndef DICOMM_PLANNER_COST_SCHEDULE_H
#define DICOMM_PLANNER_COST_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/input/plan.h"

struct schedule_stage {
	double forward, backward; /* seconds of one micro-batch */
	uint32_t node;
	/* To the next stage and back: seconds, and how long that takes the ways
	 * of the nodes. */
	double send, send_way, back, back_way;
	/* Set by the simulation: */
	double end;          /* of its last backward pass */
	double busy, moving; /* in passes; in messages that hold it */
};

struct schedule_pipeline {
	struct schedule_stage *stage;
	int stages, micro_batches;
	int ahead; /* as in planner/input/plan.h; where messages hold nobody */
};

/* Of what there is to see: 'F', 'B', 's' an activation, 'g' a gradient, which
 * stage sends. */
struct schedule_event {
	int pipeline, stage, micro_batch;
	char what;
	double begin, end;
};
typedef void schedule_tell(const struct schedule_event *e, void *ctx);

/* Seconds until all is done; NAN: out of memory. `tell` may be NULL. */
double schedule_run(struct schedule_pipeline *pipeline, int pipelines,
		    uint32_t nodes, enum plan_schedule schedule,
		    enum plan_overlap overlap, schedule_tell *tell, void *ctx);

#endif
