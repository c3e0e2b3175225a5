/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan of one rank for a redistribution, as data: rounds, each of copies
 * into staging memory, messages, and copies and sums out of it.
 *
 * A round has a number that is the same on all ranks, and a rank takes part in
 * those in which it has something to do, in order. A piece goes to its owner in
 * one round and from there on in the next one. Which round follows from the
 * description alone: the earliest in which no rank that has to do with the
 * piece exceeds its staging memory, counted over the pieces so far. So ranks
 * that wait for each other are in the same round, and the lowest round that is
 * not done can always go on.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_PLAN_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_PLAN_H

#include "collectives/redistribute/cost.h"
#include "collectives/redistribute/strided.h"

/* A piece of at least this size is a message of its own, which needs no
 * staging where it is without gaps in the tensor. */
#define REDIST_LARGE (UINT64_C(256) << 10)
#define REDIST_STAGING (UINT64_C(64) << 20)
#define REDIST_LEAST_STAGING 4096

enum redist_place { REDIST_STAGED, REDIST_SOURCE, REDIST_TARGET };

/* Where something is: `at` is in bytes in the staging memory, or in elements
 * from the pointer of a tensor. */
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

/* Copies of a round. `shape` has the strides, and its first elements are
 * counted from both places. */
struct redist_copy {
	struct redist_at from, to;
	uint32_t elem; /* bytes */
	uint32_t shape;
};

/* dst = weight[0] * term[0] + weight[1] * term[1] ... of n elements without
 * gaps each */
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
	/* In this order; messages at the same time */
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
	/* Axes of copies: of shape i those at axis[i], see redist_shape() */
	int64_t *axes;
	uint64_t staging;          /* bytes that a round needs, at most */
	uint64_t *sent, *received; /* [rank]: bytes */
	uint64_t messages_sent, messages_received;
	uint64_t bytes; /* of the plan itself */
	dicomm_way_t way;
	struct cost cost[WAYS]; /* ps: COST_UNKNOWN where it was not asked */
	/* Bit i: this rank has a part of the source, or target, of tensor i */
	uint8_t *reads, *writes;
	/* Copies of what runs need: [tensor] */
	dicomm_datatype_t *types;
	double *weights; /* of all tensors in a row */
	uint32_t *weights_at;
	size_t ntensors;
};

struct redist_request {
	const dicomm_tensor_t *tensors;
	size_t n;
	int rank, ranks;
	const struct links *links; /* NULL: one node */
	struct estimate_params params;
	dicomm_way_t way;
	uint64_t staging; /* 0: REDIST_STAGING */
	bool unwanted;
};

/* Check the whole request, choose the way, and make the plan of one rank.
 * ERR_INVALID_ARGUMENT, ERR_NO_MEMORY. */
dicomm_result_t redist_plan_make(const struct redist_request *r,
				 struct redist_plan **out);
void redist_plan_free(struct redist_plan *p);

/* The strides of a copy. */
void redist_shape(const struct redist_plan *p, const struct redist_copy *c,
		  struct strided *s);
bool redist_plan_reads(const struct redist_plan *p, size_t tensor);
bool redist_plan_writes(const struct redist_plan *p, size_t tensor);
/* Weight of a term of a tensor, and whether any is not 1 */
double redist_weight(const struct redist_plan *p, size_t tensor, uint32_t term);
bool redist_weighted(const struct redist_plan *p, size_t tensor);

const char *redist_way_name(dicomm_way_t way);
/* A table of the ways, cut to fit. */
void redist_plan_explain(const struct redist_plan *p, char *text, size_t len);

#endif
