/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What messages between devices of a fleet cost: collectives by the library's
 * own estimator on the links of those ranks, boundaries of stages by the links
 * they cross.
 *
 * Answers are remembered. Any thread.
 */
#ifndef DICOMM_PLANNER_COST_WIRE_H
#define DICOMM_PLANNER_COST_WIRE_H

#include <pthread.h>

#include "planner/input/fleet.h"

enum wire_op {
	WIRE_ALLREDUCE,
	WIRE_REDUCE_SCATTER,
	WIRE_ALLGATHER,
	WIRE_ALLTOALL
};
/* Added to one of them: by a ring, as other libraries do, whatever is fastest.
 */
#define WIRE_RING 8

struct wire_memo {
	uint64_t key;
	double seconds;
};

struct wire {
	const struct fleet *fleet;
	pthread_mutex_t lock;   /* of what follows */
	struct wire_memo *memo; /* [room]; key 0 is free */
	size_t room, used;
};

bool wire_open(struct wire *w, const struct fleet *f);
void wire_close(struct wire *w);

/*
 * Seconds of a collective of n ranks whose longer buffer has so many bytes; by
 * the algorithm that the library takes. A rank may stand for `width` ranks of
 * its node that do the same beside it with their parts, and share ways with
 * `others` alike (NULL: none): its links are so much wider, and its way to
 * other nodes is shared. NAN: out of memory.
 */
double wire_collective(struct wire *w, int op, const uint32_t *rank,
		       const int *width, const int *others, int n,
		       double bytes);

/* One transfer from stage to stage, each of which holds all of the tensor. */
struct wire_transfer {
	double seconds;
	/* Of these, for how long the ways of the nodes are taken for others,
	 * and those out of and into their islands: 0 within one. */
	double way, out, in;
	bool spread; /* over several ranks, not from leader to leader */
};
struct wire_transfer wire_boundary(const struct wire *w, const uint32_t *from,
				   int senders, const uint32_t *to,
				   int receivers, double bytes);
/* Bytes per second from one device to another, 0 latency. */
double wire_rate(const struct wire *w, uint32_t from, uint32_t to);

#endif
