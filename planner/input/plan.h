/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plan: who computes what.
 *
 *   {"version": 1, "model": "opt-350m", "sequence": 2048, "global_batch": 256,
 *    "schedule": "1f1b", "overlap": "none", "zero": 0,
 *    "collectives": "auto", "ahead": 0, "expert_parallel": 1, "capacity": 0,
 *    "bucket_bytes": 0,
 *    "pipelines": [{"micro_batch": 2, "micro_batches": 64, "weight": 0.5,
 *       "stages": [{"ranks": [0, 1], "tp": 2, "layers": [0, 11],
 *                   "recompute": false}, ...]}, ...]}
 *
 * Layers are units of the model, first and last (planner/input/model.h). Each
 * pipeline holds all of them. weight, which may be missing, is its part of the
 * global batch, by which its gradients count; no other is allowed.
 *
 * expert_parallel (1 if it is missing): so many pipelines, one after the other
 * in the list, hold the experts of each block between them. They have the same
 * layers and micro-batches. capacity (0): an expert takes at most so many times
 * the mean, and drops the rest; 0: it takes all that come.
 *
 * bucket_bytes (0 if it is missing): a device copies so much of its gradients
 * into one buffer, and sums that, before it takes the next ones; 0: all of a
 * stage at once, from where they are, and layer by layer with overlap full.
 *
 * ahead (0 if it is missing): with 1F1B a stage holds so many micro-batches
 * more for each stage after it. Then messages hide behind passes.
 *
 * interleave of a pipeline (1 if it is missing): V of its stages are on the
 * same ranks, in the same order: stage s on those of s - P, where P = stages /
 * V. With "schedule": "interleaved" these P teams of devices take turns as in
 * Megatron's interleaved 1F1B (planner/cost/order.h); pipelines without run
 * 1F1B then.
 *
 * "schedule": "zb-h1": as 1F1B, but gradients of weights are found later than
 * those of inputs (planner/cost/schedule.h).
 */
#ifndef DICOMM_PLANNER_INPUT_PLAN_H
#define DICOMM_PLANNER_INPUT_PLAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum plan_schedule { PLAN_1F1B, PLAN_GPIPE, PLAN_INTERLEAVED, PLAN_ZB_H1 };
enum plan_overlap {
	PLAN_BLOCKING,
	PLAN_EAGER,
	PLAN_OVERLAP_P2P,
	PLAN_OVERLAP_FULL
};

struct plan_stage {
	uint32_t *rank; /* [tp]; owned */
	int tp, first, last;
	bool recompute;
};

struct plan_pipeline {
	struct plan_stage *stage; /* [stages]; owned */
	int stages, micro_batch, micro_batches;
	int interleave; /* plan_chunks() */
	double weight;  /* as a file says it, to be checked; below 0: nothing */
};

struct plan {
	char *file; /* that it was read from; owned; NULL: it was found */
	char model[64];
	int seq, global_batch; /* tokens; sequences */
	enum plan_schedule schedule;
	enum plan_overlap overlap;
	int zero;    /* 0 to 3 */
	int ahead;   /* 1F1B: micro-batches more for each stage that follows */
	int experts; /* expert_parallel: plan_experts() */
	double capacity;
	double bucket; /* bucket_bytes; 0: none */
	bool rings;    /* gradients meet in rings, as in other libraries */
	struct plan_pipeline *pipeline; /* [pipelines]; owned */
	int pipelines;
};

/* Pipelines that share experts: 1 where nobody says. */
static inline int plan_experts(const struct plan *p)
{
	return p->experts > 1 ? p->experts : 1;
}

#define PLAN_CHUNKS_MOST 64

/* Stages of each team of devices: 1 where nobody says. */
static inline int plan_chunks(const struct plan_pipeline *l)
{
	return l->interleave > 1 ? l->interleave : 1;
}

/* Teams of devices: stages s and s + plan_teams() are on the same ones. */
static inline int plan_teams(const struct plan_pipeline *l)
{
	return l->stages / plan_chunks(l);
}

/* Its form only; whether it makes sense is what planner/cost/check.h tells. */
bool plan_open(struct plan *p, const char *file);
void plan_close(struct plan *p);
/* Room for a pipeline, and for a stage of it with tp ranks; NULL: no memory. */
struct plan_pipeline *plan_add_pipeline(struct plan *p);
struct plan_stage *plan_add_stage(struct plan_pipeline *l, int tp);

json_t *plan_json(const struct plan *p);
const char *plan_schedule_name(enum plan_schedule s);
const char *plan_overlap_name(enum plan_overlap o);
/* False if it is no such name. */
bool plan_schedule_parse(const char *text, enum plan_schedule *out);
bool plan_overlap_parse(const char *text, enum plan_overlap *out);

#endif
