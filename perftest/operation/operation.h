/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations that are measured: how many elements each rank sends and
 * receives for a size, the bandwidth formulas, which data must arrive where,
 * and the call itself. The conventions are those of nccl-tests.
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
	OPERATION_GATHERV, /* of equal counts */
	OPERATION_SCATTERV,
	OPERATION_SENDRECV,
	OPERATION_PUT,
	OPERATION_GET,
	OPERATION_BARRIER,
	OPERATIONS
};

struct operation {
	enum operation_id id;
	const char *name;    /* "allreduce" */
	const char *program; /* "all_reduce_perf" */
	bool reduces, rooted;
	/* in_place: the operation exists in place. checked_in_place: its result
	 * in place is defined. */
	bool in_place, checked_in_place;
	/* Peers write or read the buffers outside the calls of a rank. */
	bool one_sided;
};

extern const struct operation operations[OPERATIONS];
/* Does the call take counts for each rank? */
bool operation_has_counts(const struct operation *op);
/* Finds an operation by its name or the name of its program, with or without a
 * directory. Returns NULL if there is none. */
const struct operation *operation_find(const char *name);

/* Numbers of elements, the same on all ranks. */
struct geometry {
	size_t send, recv; /* the most that any rank sends and receives */
	size_t param;      /* the count argument of the call */
	/* In place, rank r sends from element r * send_shift of the receive
	 * buffer, and receives at element r * recv_shift. */
	size_t send_shift, recv_shift;
};

/* Returns the elements of the larger buffer. */
static inline size_t operation_larger(const struct geometry *g)
{
	return g->send > g->recv ? g->send : g->recv;
}

/* Computes the geometry for `count` elements of `bytes` bytes in the larger
 * buffer. `traffic` is for alltoallv; NULL for other operations. */
struct geometry operation_geometry(const struct operation *op, size_t count,
				   size_t bytes, int ranks,
				   const struct traffic *traffic);

/* Computes the bandwidths in GB/s (10^9) of one operation that takes
 * `seconds`. */
void operation_bandwidth(const struct operation *op, const struct geometry *g,
			 size_t bytes, int ranks, double seconds,
			 double *algorithm, double *bus);

/* One call, as one rank makes it. */
struct call {
	const struct operation *op;
	const struct type *type;
	enum reduction reduction;
	dicomm_redop_t redop;
	int root, rank, ranks;
	struct geometry geometry;
	const struct traffic *traffic;
	const struct traffic_part *part; /* if it has counts */
	/* If it is one-sided: the window, of the receive buffer for puts and of
	 * the send buffer for gets, and where it begins here. */
	dicomm_window_t window;
	const char *window_base;
};

dicomm_result_t operation_run(const struct call *c, const void *send,
			      void *recv, dicomm_comm_t comm,
			      dicomm_stream_t stream);

/* A part of a buffer: `count` elements of a pattern, from element `base` on. */
struct piece {
	size_t at, count; /* in elements, `at` from the start of the buffer */
	enum { PIECE_ZERO, PIECE_DATA, PIECE_INPUT, PIECE_OUTPUT } kind;
	uint64_t seed;
	size_t base;
};

/* Return piece k of what a rank sends, and of what its receive buffer must
 * contain afterwards. Before the call, that buffer has zeros or, in place, what
 * the rank sends. They return false if there is no piece k. */
bool operation_sent(const struct call *c, uint64_t seed, int k,
		    struct piece *piece);
bool operation_received(const struct call *c, uint64_t seed, bool in_place,
			int k, struct piece *piece);

#endif
