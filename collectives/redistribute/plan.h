/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan of one rank for a redistribution, as data. It consists of rounds.
 * Each round copies into staging memory, exchanges messages, and copies and
 * sums out of staging memory.
 *
 * A round has the same number on all ranks. A rank takes part, in order, in the
 * rounds in which it has something to do. A piece goes to its owner in one
 * round, and from the owner to other ranks in the next round.
 *
 * The round of a piece follows from the description alone. It is the earliest
 * round in which no rank that handles the piece exceeds its staging memory,
 * counting the pieces so far. So ranks that wait for each other are in the same
 * round, and the lowest round that is not finished can always go on.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_PLAN_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_PLAN_H

#include "collectives/redistribute/cost.h"
#include "collectives/redistribute/strided.h"

#define REDIST_STAGING (UINT64_C(64) << 20)
#define REDIST_LEAST_STAGING 4096

enum redist_place {
	REDIST_STAGED,
	REDIST_SOURCE,
	REDIST_TARGET,
	/* Bytes before the end of staging memory; only while a plan is made. */
	REDIST_STAGED_END
};

/* A place: `at` is in bytes in the staging memory, or in elements from the
 * pointer of a tensor. */
struct redist_at {
	uint8_t place; /* enum redist_place */
	uint32_t tensor;
	uint64_t at;
};

struct redist_message {
	int peer;
	struct redist_at at;
	uint64_t bytes;
};

/* A copy of a round. `shape` has the strides; see redist_shape(). */
struct redist_copy {
	struct redist_at from, to;
	uint32_t elem; /* bytes per element */
	uint32_t shape;
};

/* dst = weight[0] * term[0] + weight[1] * term[1] + ..., over n elements that
 * are contiguous in each of them. */
struct redist_sum {
	struct redist_at to;
	uint32_t tensor;
	uint32_t first, terms; /* in plan->terms */
	uint64_t n;
};

struct redist_range {
	uint32_t first, n;
};

struct redist_round {
	uint32_t number;
	/* The parts of a round run in this order. All messages run at the same
	 * time. */
	struct redist_range pack, sends, receives, unpack, sums, spread;
};

struct redist_plan {
	int rank, ranks;
	struct redist_round *rounds;
	uint32_t nrounds;
	struct redist_message *messages;
	struct redist_copy *copies;
	struct redist_sum *sums;
	struct redist_at *terms;
	/* The axes of copies. Those of shape i begin at axes[i]; see
	 * redist_shape(). */
	int64_t *axes;
	uint64_t staging; /* most bytes that a round needs */
	/* [rank]: bytes that this rank exchanges with it. */
	uint64_t *sent, *received;
	uint64_t messages_sent, messages_received;
	uint64_t bytes; /* memory of the plan itself */
	dicomm_way_t way;
	struct cost cost[WAYS]; /* ps is COST_UNKNOWN if it was not computed */
	/* Bit i: this rank has a part of the source, or of the target, of
	 * tensor i. */
	uint8_t *reads, *writes;
	/* [tensor]: copies of what a run needs. */
	dicomm_datatype_t *types;
	double *weights; /* of all tensors, one after the other */
	uint32_t *weights_at;
	size_t ntensors;
};

struct redist_request {
	const dicomm_tensor_t *tensors;
	size_t n;
	int rank, ranks;
	const struct links *links; /* NULL: all ranks are on one node */
	struct estimate_params params;
	struct memory_rates memory;
	dicomm_way_t way;
	uint64_t staging; /* in bytes; 0: REDIST_STAGING */
	bool unwanted;
};

/* Checks the whole request, chooses the way, and makes the plan of one rank.
 * Returns DICOMM_ERR_INVALID_ARGUMENT or DICOMM_ERR_NO_MEMORY on failure. */
dicomm_result_t redist_plan_make(const struct redist_request *r,
				 struct redist_plan **out);
void redist_plan_free(struct redist_plan *p);

/* Fills in the strides of a copy. */
void redist_shape(const struct redist_plan *p, const struct redist_copy *c,
		  struct strided *s);
bool redist_plan_reads(const struct redist_plan *p, size_t tensor);
bool redist_plan_writes(const struct redist_plan *p, size_t tensor);
/* redist_weight() returns the weight of a term of a tensor. redist_weighted()
 * returns true if a weight of the tensor is not 1. */
double redist_weight(const struct redist_plan *p, size_t tensor, uint32_t term);
bool redist_weighted(const struct redist_plan *p, size_t tensor);

const char *redist_way_name(dicomm_way_t way);
/* Writes a table of the ways; text beyond len is cut off. */
void redist_plan_explain(const struct redist_plan *p, char *text, size_t len);

#endif
