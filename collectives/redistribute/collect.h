/* SPDX-License-Identifier: BSD-3-Clause */
/* What one rank has to do, as a list of pieces. make.c puts these into rounds
 * and messages. */
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

/* A piece that this rank moves. For a send or receive, the message is one of
 * its two sides. */
struct collect_piece {
	uint32_t round;
	uint8_t kind; /* enum collect_kind */
	/* enum redist_place. REDIST_STAGED: in the message, or in the input of
	 * a sum. */
	uint8_t from, to;
	bool is_run;
	int peer;
	uint32_t tensor, elem;
	/* In elements. For a send from staging memory, from_at is the index in
	 * sums of the sum whose result it sends. */
	uint64_t from_at, to_at;
	uint64_t bytes;
	uint32_t shape; /* shape of its copy; see redist_plan.axes */
	/* Set by make.c: its place in staging memory, in bytes. */
	uint64_t staged;
};

struct collect_sum {
	uint32_t round, tensor, elem;
	/* Range in inputs: pieces that were received, or are local. */
	uint32_t first, terms;
	uint64_t n;
	bool is_run; /* the target box is contiguous */
	/* This rank does not want the result, but sends it in the next round;
	 * until then it is kept in staging memory. */
	bool kept;
	uint64_t to_at;
	uint32_t shape; /* of the copy from staging memory to the target */
};

/* An array that grows. */
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
