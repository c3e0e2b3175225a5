/* SPDX-License-Identifier: BSD-3-Clause */
/* What one rank has to do, piece by piece, as the walk comes by it; make.c puts
 * it into rounds and messages. */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_COLLECT_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_COLLECT_H

#include "collectives/redistribute/plan.h"

#define COLLECT_NONE UINT32_MAX

enum collect_kind {
	COLLECT_SEND,
	COLLECT_RECEIVE,
	COLLECT_LOCAL,  /* from source to target of this rank */
	COLLECT_SPREAD, /* from one target box of this rank to another */
};

/* A piece of this rank. A send or receive has one side in the messages. */
struct collect_piece {
	uint32_t round;
	uint8_t kind;     /* enum collect_kind */
	uint8_t from, to; /* enum redist_place; REDIST_STAGED: the message, or
			   * where a sum reads it */
	bool is_run;
	int peer;
	uint32_t tensor, elem;
	uint64_t from_at, to_at; /* elements */
	uint64_t bytes;
	uint32_t shape;  /* of its copy */
	uint64_t staged; /* make.c: where it is in the staging memory */
};

struct collect_sum {
	uint32_t round, tensor, elem;
	uint32_t first, terms; /* in inputs: pieces, received or local */
	uint64_t n;
	bool is_run; /* of the target box */
	uint64_t to_at;
	uint32_t shape; /* from staging to the target */
};

/* An array that grows */
struct collect_list {
	void *at;
	size_t n, room;
};

struct collect {
	const struct redist_request *request;
	uint64_t staging;
	struct collect_list pieces, sums, inputs, axes;
};

dicomm_result_t collect_pieces(struct collect *c, const struct ways_input *in,
			       dicomm_way_t way);
void collect_free(struct collect *c);

#endif
