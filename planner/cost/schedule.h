/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Event simulation of pipelines: 1F1B, GPipe, interleaved 1F1B and ZB-H1 with
 * stages of any length.
 *
 * ZB-H1 (Qi et al., arXiv 2401.10241): a backward pass is over, and its
 * gradient goes on, once gradients of inputs are found. Those of weights
 * follow: in stage s after s further backward passes, so that each stage has as
 * many micro-batches to keep as the first one of 1F1B.
 *
 * Blocking: a stage sends and receives in turn, one message at a time, and
 * both sides are held until it is through. Eager: only who sends is held, as
 * what receives has room for it, and by no more than its own side has no room
 * for. Else messages start when the forward or
 * backward pass has ended and hold nobody who does not wait for them. Messages
 * queue for the ways out of a node and its island, and for those into the other
 * ones, also those of other pipelines.
 */
#ifndef DICOMM_PLANNER_COST_SCHEDULE_H
#define DICOMM_PLANNER_COST_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/input/plan.h"

struct schedule_stage {
	double forward, backward; /* seconds of one micro-batch */
	double weight; /* ZB-H1: of `backward`, gradients of weights */
	uint32_t node, island;
	/* To the next stage and back: seconds, and how long that takes the ways
	 * of the nodes, the way out of the one island, and that into the other.
	 */
	double send, send_way, send_out, send_in;
	double back, back_way, back_out, back_in;
	/* Blocking and eager: what each message costs the stage beside that, as
	 * giver and as taker; eager: the part of a message, to the next stage
	 * and from it, for which who sends has room. */
	double side, send_room, back_room;
	/* Set by the simulation: */
	double end;          /* of its last backward pass */
	double busy, moving; /* in passes; in messages that hold it */
};

struct schedule_pipeline {
	struct schedule_stage *stage;
	int stages, micro_batches;
	int ahead; /* as in planner/input/plan.h; where messages hold nobody */
	int interleave; /* stages of each team of devices: with
			 * PLAN_INTERLEAVED, and messages that do not hold
			 * both sides; 0 and 1: one */
};

/* Of what there is to see: 'F', 'B', 'W' gradients of weights that were put
 * off, 's' an activation, 'g' a gradient, which stage sends. */
struct schedule_event {
	int pipeline, stage, micro_batch;
	char what;
	double begin, end;
};
typedef void schedule_tell(const struct schedule_event *e, void *ctx);

/* Seconds until all is done; NAN: out of memory. Nodes and islands are numbered
 * below `places`. `tell` may be NULL. */
double schedule_run(struct schedule_pipeline *pipeline, int pipelines,
		    uint32_t places, enum plan_schedule schedule,
		    enum plan_overlap overlap, schedule_tell *tell, void *ctx);

#endif
