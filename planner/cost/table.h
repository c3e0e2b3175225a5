/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each unit of a model costs on a tensor-parallel group of one kind of
 * node: from the profile if there is one, else from operations and rates.
 */
#ifndef DICOMM_PLANNER_COST_TABLE_H
#define DICOMM_PLANNER_COST_TABLE_H

#include "planner/input/model.h"
#include "planner/input/plan.h"
#include "planner/input/profile.h"
#include "planner/cost/wire.h"

/* Sums over units: entry i is of the units before i. */
struct table {
	int kind, tp, micro_batch;
	int experts; /* devices of other groups that hold some of them, and
		      * this one: expert_parallel of a plan */
	int units;
	bool missing; /* the profile does not tell; why is in words */
	char why[160];
	double forward[MODEL_UNITS_MOST + 1], backward[MODEL_UNITS_MOST + 1];
	/* Of the backward pass, gradients of weights: by operations. */
	double weight[MODEL_UNITS_MOST + 1];
	double update[MODEL_UNITS_MOST + 1]; /* seconds */
	double params[MODEL_UNITS_MOST + 1]; /* of one device */
	/* Of these, those of experts; and units that have experts. */
	double expert[MODEL_UNITS_MOST + 1];
	int mixed[MODEL_UNITS_MOST + 1];
	/* Parameters of the group, each once: what is to be summed. */
	double whole[MODEL_UNITS_MOST + 1], expert_whole[MODEL_UNITS_MOST + 1];
	/* Bytes of one device for one micro-batch in flight; and what is kept
	 * of it where the rest is computed again. */
	double active[MODEL_UNITS_MOST + 1], kept[MODEL_UNITS_MOST + 1];
	/* Of a unit, not of those before it: bytes that its backward pass has
	 * beside its activations. From unit run[u] to unit u, this and the
	 * activations are the same. */
	double work[MODEL_UNITS_MOST];
	int16_t run[MODEL_UNITS_MOST];
	/* Of a matrix that embedding and head share: parameters of one device,
	 * of the group, seconds of its update. 0: they share none. */
	double shared, shared_whole, shared_update;
};

/* Does who holds units first to last hold both sides of a shared matrix? */
bool table_is_whole(const struct table *t, int first, int last);
/* Of units first to last, a shared matrix once. */
double table_params(const struct table *t, int first, int last);
double table_whole(const struct table *t, int first, int last);
/* Of these, those of experts. */
double table_experts(const struct table *t, int first, int last);
double table_experts_whole(const struct table *t, int first, int last);
/* Of one device, if its state is spread over so many pipelines, that of
 * experts over those that have the same ones. */
double table_spread(const struct table *t, int first, int last, int pipelines);
/* As a part of all that a device has. */
double table_part(const struct table *t, int first, int last, int pipelines);
/* Bytes that a backward pass through them has beside their activations, of one
 * unit at a time; with those of that unit, if they are computed again. */
double table_work(const struct table *t, int first, int last, bool recompute);
/* Units of them that have experts. */
int table_mixed(const struct table *t, int first, int last);
double table_update(const struct table *t, int first, int last);

/* All that a plan is costed by. */
struct job {
	struct fleet fleet;
	struct model model;
	struct profile profile;
	bool measured; /* is there a profile? */
	struct wire wire;
	/* Of the devices that share experts, the one with most to do has so
	 * many times the mean; an expert takes so many times its part at most,
	 * 0: all that come. Set before tables are asked for. */
	double imbalance, capacity;
	int seq, global_batch;
	pthread_mutex_t lock; /* of what follows */
	struct table **table; /* [table_room]: by hash */
	size_t table_room;
	int tables;
};

/* profile may be NULL. False after a message. */
bool job_open(struct job *j, const char *cluster, const char *model,
	      const char *profile, int seq, int global_batch);
void job_close(struct job *j);

/* Lives as long as the job; NULL: out of memory. Any thread. */
const struct table *table_of(struct job *j, int kind, int tp, int micro_batch,
			     int experts);
/* What the busiest of devices that share experts has to do, times the mean. */
double table_load(const struct job *j, int experts);

/* Of the bytes that hold a parameter, those of weight, gradient, and optimizer.
 */
void table_state_bytes(const struct job *j, double out[3]);
/* An activation between stages, for one micro-batch. */
double table_boundary_bytes(const struct job *j, int micro_batch);
/* Of it the part, 0 to 1, that those who send have room for: each sends its
 * own, as many as there are on the side of fewer. */
double table_send_room(const struct job *j, int micro_batch, int senders,
		       int receivers);

#endif
