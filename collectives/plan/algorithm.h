/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An algorithm: one way to do one collective, as a pure function from a shape
 * to the plan of one rank. No I/O, no error path, no state.
 *
 * Adding one: a file <collective>_<algorithm>.c, its line in registry.c, its
 * line in Makefile.am. The simulator then tests it for 1 to 17 ranks.
 */
#ifndef DICOMM_COLLECTIVES_PLAN_ALGORITHM_H
#define DICOMM_COLLECTIVES_PLAN_ALGORITHM_H

#include "collectives/plan/plan.h"
#include "src/base/links.h"

enum coll {
	COLL_ALLREDUCE,
	COLL_REDUCE,
	COLL_BROADCAST,
	COLL_REDUCE_SCATTER,
	COLL_ALLGATHER,
	COLL_ALLTOALL,
	COLL_GATHER,
	COLL_SCATTER,
	COLL_ALLTOALLV,
	COLL_ALLGATHERV,
	COLL_REDUCE_SCATTERV,
	COLL_BARRIER,
	COLL_SEND, /* no algorithm, one step, from here on: point to point */
	COLL_RECV,
	COLL_REDUCE_LOCAL, /* of one rank */
	COLL_KINDS
};

const char *coll_name(enum coll coll); /* "allreduce" */
/* COLL_KINDS if unknown. Also takes nccl-tests' spelling: "all_reduce". */
enum coll coll_from_name(const char *name);
bool coll_reduces(enum coll coll);
bool coll_rooted(enum coll coll);
/* Each rank its own. */
bool coll_has_counts(enum coll coll);

/* Blocks of the send and receive buffer of a rank: 0, 1 or ranks. A buffer of
 * `ranks` blocks holds block r for (or of) rank r; only the root has the
 * blocks of gather's receive and scatter's send buffer. */
void coll_layout(enum coll coll, int rank, int ranks, int root,
		 uint32_t *send_blocks, uint32_t *recv_blocks);

/*
 * What an algorithm may know about a call: nothing that can differ between
 * ranks, but the rank itself and whether it is in place.
 *
 * Reductions: an operator may scale the inputs first (prescale: avg of floats,
 * premulsum) or divide the result (postdivide: avg of integers). Algorithms do
 * not care: they read their input through shape_input() and announce final
 * results with shape_result().
 */
struct shape {
	enum coll coll;
	int rank, ranks;
	int root; /* -1: there is none */
	bool in_place;
	bool prescale, postdivide;
	const struct links *links; /* NULL: one node, all links alike */
};

/*
 * Work on the longest path, for the estimator; S is the bytes of the longest
 * of the two buffers (as the size column of nccl-tests), on the busiest rank.
 */
struct work {
	uint32_t hops;          /* messages one after the other, first slice */
	uint32_t near_hops;     /* of these, within a node for sure */
	uint32_t messages;      /* messages that one rank sends and receives */
	uint64_t message_bytes; /* of the longest, all its slices together */
	uint64_t wire_bytes;    /* sent or received, whichever is more, by the
				 * busiest rank */
	/* Written by it locally; copied also what it receives as it is. */
	uint64_t reduce_bytes, copy_bytes;
	uint64_t total_bytes; /* wire + reduce + copy over ALL ranks: what the
			       * cores of a node share */
	bool pipelined;       /* hops overlap over slices */
	bool returns;         /* a slice comes down a way once it went up */
};

struct algorithm {
	enum coll coll;
	const char *name;   /* "ring"; also the value in DICOMM_ALGO */
	bool deterministic; /* rank-ordered reduction, float32 for narrow */
	bool whole;       /* single slice only: its messages must fit a slot */
	bool scratchless; /* no rank's plan has scratch, in place or not */
	/* Can it serve this shape? */
	bool (*serves)(const struct shape *s);
	/* Append this rank's steps to an empty plan, in-place already set. */
	void (*build)(struct plan *p, const struct shape *s);
	/* Work for buffers of `bytes` (the longer one). */
	void (*work)(const struct shape *s, uint64_t bytes, struct work *w);
};

/* All algorithms of this build, NULL ends the list. */
extern const struct algorithm *const algorithms[];
const struct algorithm *algorithm_find(enum coll coll, const char *name);

/* Build and finish the plan of s->rank; handles in-place aliasing, and a
 * communicator of one rank: serves() and build() see two at least. */
dicomm_result_t algorithm_plan(const struct algorithm *a, const struct shape *s,
			       struct plan *p);

/* The steps of s->rank one by one, as `tell` of a plan: without a plan. */
dicomm_result_t algorithm_tell(const struct algorithm *a, const struct shape *s,
			       plan_tell *tell, void *ctx);

/* For algorithms that serve every shape. */
bool shape_any(const struct shape *s);
/* Rank i round the circle: -1 is the last one, ranks is 0 again. That is seldom
 * further, and a division takes longer than all else that a step needs. */
int shape_rank_far(const struct shape *s, int i);
static inline int shape_rank(const struct shape *s, int i)
{
	if (i < 0)
		i += s->ranks;
	else if (i >= s->ranks)
		i -= s->ranks;
	return i >= 0 && i < s->ranks ? i : shape_rank_far(s, i);
}

/* Rank i counted from the root; and back. */
int shape_from_root(const struct shape *s, int rank);
int shape_to_rank(const struct shape *s, int from_root);
/* The rank i places on from s->rank, where neighbours share a node, and nodes
 * an island; without links, by rank. `i` from -ranks on. */
int shape_on_path(const struct shape *s, int i);
/* Where s->rank is on that path, from its start. */
int shape_place(const struct shape *s);
/* How far it is from s->rank: 0 on its node, 1 in its island, 2 in another one;
 * and the farthest that any two are. */
int shape_distance(const struct shape *s, int rank);
int shape_farthest(const struct shape *s);
/* A chain of all ranks from the root on: its node, the rest of its island, fast
 * nodes first, then the other islands. Where s->rank is in it; the rank at a
 * place. */
int shape_chain_place(const struct shape *s);
int shape_chain_rank(const struct shape *s, int place);
/* Of the hops from one end of that chain to the other, and of a ring from any
 * rank to the one before it: those within a node, at least. */
uint32_t shape_near_of_chain(const struct shape *s);
uint32_t shape_near_of_ring(const struct shape *s);
/* The largest power of two up to the number of ranks; are there so many? */
int shape_power_of_two(const struct shape *s);
bool shape_is_power_of_two(const struct shape *s);
/* The logarithm of the number of ranks, and of any, rounded up. */
uint32_t shape_log2(const struct shape *s);
uint32_t shape_log2_of(uint32_t n);

/*
 * The span to read an input from: `span` itself (of PLAN_SEND), or a scaled
 * copy of it when the operator scales its inputs. Appends the STEP_SCALE; call
 * it once for each span, before the span's first use. `to` is where a scaled
 * copy may go: a span of equal length in PLAN_RECV or scratch.
 */
struct span shape_input(struct plan *p, const struct shape *s, struct span span,
			struct span to);
/* The span holds the complete reduction; appends a STEP_DIVIDE if asked. */
void shape_result(struct plan *p, const struct shape *s, struct span span);

#endif
