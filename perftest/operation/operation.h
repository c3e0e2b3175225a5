/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations that are measured: how many elements each rank sends and
 * receives for a size, what the bandwidth formulas are, which data must arrive
 * where, and the call itself. The conventions are those of nccl-tests.
 */
#ifndef DICOMM_PERFTEST_OPERATION_OPERATION_H
#define DICOMM_PERFTEST_OPERATION_OPERATION_H

#include "perftest/operation/traffic.h"
#include "perftest/operation/type.h"

enum operation_id {
	OPERATION_ALLREDUCE,
	OPERATION_ALLGATHER,
	OPERATION_REDUCE_SCATTER,
	OPERATION_BROADCAST,
	OPERATION_REDUCE,
	OPERATION_ALLTOALL,
	OPERATION_ALLTOALLV,
	OPERATION_GATHER,
	OPERATION_SCATTER,
	OPERATION_SENDRECV,
	OPERATION_BARRIER,
	OPERATIONS
};

struct operation {
	enum operation_id id;
	const char *name;    /* "allreduce" */
	const char *program; /* "all_reduce_perf" */
	bool reduces, rooted;
	/* Does it exist in place, and is what arrives then defined? */
	bool in_place, checked_in_place;
};

extern const struct operation operations[OPERATIONS];
/* By name of operation or program, with or without a directory; NULL if
 * neither. */
const struct operation *operation_find(const char *name);

/* Elements; the same on all ranks. */
struct geometry {
	size_t send, recv; /* the most that a rank sends and receives */
	size_t param;      /* the count argument of the call */
	/* In place, rank r sends from r * this in the receive buffer, and
	 * receives at r * this in it. */
	size_t send_shift, recv_shift;
};

/* Elements of the larger buffer. */
static inline size_t operation_larger(const struct geometry *g)
{
	return g->send > g->recv ? g->send : g->recv;
}

/* For `count` elements of `bytes` each in the larger buffer. The traffic is
 * alltoallv's, NULL for others. */
struct geometry operation_geometry(const struct operation *op, size_t count,
				   size_t bytes, int ranks,
				   const struct traffic *traffic);

/* GB/s (10^9) of one operation that takes this long. */
void operation_bandwidth(const struct operation *op, const struct geometry *g,
			 size_t bytes, int ranks, double seconds,
			 double *algorithm, double *bus);

/* One call, as one rank sees it. */
struct call {
	const struct operation *op;
	const struct type *type;
	enum reduction reduction;
	dicomm_redop_t redop;
	int root, rank, ranks;
	struct geometry geometry;
	const struct traffic *traffic;
	const struct traffic_part *part; /* alltoallv only */
};

dicomm_result_t operation_run(const struct call *c, const void *send,
			      void *recv, dicomm_comm_t comm,
			      dicomm_stream_t stream);

/*
 * What is in a buffer, piece by piece: elements `base` and on of a pattern.
 */
struct piece {
	size_t at, count; /* elements from the start of the buffer */
	enum { PIECE_ZERO, PIECE_DATA, PIECE_INPUT, PIECE_OUTPUT } kind;
	uint64_t seed;
	size_t base;
};

/* Piece k of what a rank sends, then of what it must have afterwards in its
 * receive buffer, of which it held zeros or (in place) what it sent. False
 * when there are no more. */
bool operation_sent(const struct call *c, uint64_t seed, int k,
		    struct piece *piece);
bool operation_received(const struct call *c, uint64_t seed, bool in_place,
			int k, struct piece *piece);

#endif
