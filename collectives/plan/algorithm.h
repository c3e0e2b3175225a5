/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An algorithm is one way to do one collective: a pure function from a shape to
 * the plan of one rank. It does no I/O and keeps no state. Only lack of memory
 * makes it fail.
 *
 * collectives/README.md says how to add one. The simulator of tests/plans tests
 * every algorithm of the registry for 1 to 17 ranks.
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
	COLL_GATHERV,
	COLL_SCATTERV,
	COLL_BARRIER,
	COLL_KINDS
};

const char *coll_name(enum coll coll); /* Returns the name of a collective, such
					* as "allreduce". */
/* Finds a collective by its name, with or without underscores and in upper or
 * lower case: "allreduce", "all_reduce", "AllReduce". Returns COLL_KINDS if
 * there is none of that name. */
enum coll coll_from_name(const char *name);
bool coll_reduces(enum coll coll);
bool coll_rooted(enum coll coll);
/* Returns true if the send or the receive buffer has one block for each
 * rank. */
bool coll_has_blocks(enum coll coll);
/* Returns true if each rank's block has its own length, as in alltoallv. */
bool coll_has_counts(enum coll coll);
/* Returns true if only the two ranks of a pair know the length of the blocks
 * between them. Otherwise, all ranks know all lengths. */
static inline bool coll_counts_in_pairs(enum coll coll)
{
	return coll == COLL_ALLTOALLV || coll == COLL_GATHERV ||
	       coll == COLL_SCATTERV;
}

/* Tells how many blocks the send buffer and the receive buffer of a rank have:
 * 0, 1 or `ranks`. In a buffer of `ranks` blocks, block r goes to rank r or
 * comes from it. In a gather, only the root has a receive buffer; in a scatter,
 * only the root has a send buffer. */
void coll_layout(enum coll coll, int rank, int ranks, int root,
		 uint32_t *send_blocks, uint32_t *recv_blocks);

/*
 * What an algorithm may know about a call. All ranks have the same values,
 * except for the rank itself and whether its call is in place.
 *
 * The reduction operator may need more than a reduction. Its inputs may have to
 * be scaled (prescale: avg of floats, premulsum), or its result to be divided
 * (postdivide: avg of integers). An algorithm handles both by reading its input
 * through shape_input() and by calling shape_result() for each final result.
 */
struct shape {
	enum coll coll;
	int rank, ranks;
	int root; /* -1 for a collective without a root */
	bool in_place;
	bool prescale, postdivide;
	const struct links *links; /* NULL: all ranks are on one node */
};

/*
 * What a call costs, as far as it depends on the algorithm; the input of the
 * estimator. S is the length of the longer of the two buffers in bytes (the
 * size column of nccl-tests). Unless said otherwise, the numbers are those of
 * the busiest rank.
 */
struct work {
	uint32_t hops;          /* messages on the longest path of one slice,
				 * each sent after the one before it has
				 * arrived */
	uint32_t near_hops;     /* hops that surely stay within a node */
	uint32_t messages;      /* per slice, sent and received by one rank */
	uint64_t message_bytes; /* bytes of the longest message over all
				 * slices */
	uint64_t wire_bytes;    /* bytes sent or bytes received, whichever is
				 * more */
	/* Bytes that the rank writes by reducing and by copying. Received data
	 * that no reduction consumes counts as copied. */
	uint64_t reduce_bytes, copy_bytes;
	uint64_t total_bytes; /* wire, reduced and copied bytes of ALL ranks;
			       * the cores of a node share that work */
	/* a slice goes up a link and later comes down the same link */
	bool returns;
};

struct algorithm {
	enum coll coll;
	const char *name;   /* "ring"; also the value in DICOMM_ALGO */
	bool deterministic; /* reduces in rank order, and narrow floats in
			     * float32 */
	bool whole;         /* the message is not sliced and must fit a slot */
	bool scratchless;   /* no rank uses scratch, in place or not */
	/* Returns true if the algorithm can serve this shape. */
	bool (*serves)(const struct shape *s);
	/* Appends the steps of rank s->rank to an empty plan. The caller has
	 * already called plan_set_in_place() if the call is in place. */
	void (*build)(struct plan *p, const struct shape *s);
	/* Fills in *w, which is all zero, for buffers of `bytes` bytes (the
	 * length of the longer one). */
	void (*work)(const struct shape *s, uint64_t bytes, struct work *w);
};

/* Defines an algorithm and its v-variant, which has the same steps; only its
 * blocks differ in length. The rest initializes the other members of both. */
#define ALGORITHM_AND_V(name, collective, v_name, v_collective, ...)     \
	const struct algorithm name = {.coll = collective, __VA_ARGS__}; \
	const struct algorithm v_name = {.coll = v_collective, __VA_ARGS__}

/* All algorithms of this build. NULL ends the list. */
extern const struct algorithm *const algorithms[];
const struct algorithm *algorithm_find(enum coll coll, const char *name);

/* Builds and finishes the plan of rank s->rank. This function handles aliasing
 * of in-place buffers and communicators of one rank, so that serves() and
 * build() only see two ranks or more. */
dicomm_result_t algorithm_plan(const struct algorithm *a, const struct shape *s,
			       struct plan *p);

/* Calls `tell` for each step of rank s->rank, without keeping a plan. */
dicomm_result_t algorithm_tell(const struct algorithm *a, const struct shape *s,
			       plan_tell *tell, void *ctx);

/*
 * A work() for algorithms that send each block straight from the rank that has
 * it to the one that needs it. An all-reduce does so twice: each rank reduces a
 * part, and sends the result to all others. The work() of most other algorithms
 * begins with this one and says what differs.
 */
void work_direct(const struct shape *s, uint64_t bytes, struct work *w);
/* The same, for algorithms that gather all inputs in scratch before they reduce
 * them: plan_fold(). */
void work_ordered(const struct shape *s, uint64_t bytes, struct work *w);
/* The same, for algorithms that pass all of it round the ring of all ranks. */
void work_ring(const struct shape *s, uint64_t bytes, struct work *w);
/* The same, for pairs of ranks that exchange blocks; from round to round, the
 * blocks are those of twice, or of half, as many ranks. */
void work_doubling(const struct shape *s, uint64_t bytes, struct work *w);
/* The same, for a binomial tree with the blocks of a subtree in one message, or
 * in two if they wrap. */
void work_subtrees(const struct shape *s, uint64_t bytes, struct work *w);

/* A serves() for algorithms that serve every shape. */
bool shape_any(const struct shape *s);
/* Wraps i into [0, ranks): -1 is the last rank, `ranks` is rank 0. shape_rank()
 * avoids the division where i is at most one round off, because the division
 * would take longer than everything else that a step needs. */
int shape_rank_far(const struct shape *s, int i);
static inline int shape_rank(const struct shape *s, int i)
{
	if (i < 0)
		i += s->ranks;
	else if (i >= s->ranks)
		i -= s->ranks;
	return i >= 0 && i < s->ranks ? i : shape_rank_far(s, i);
}

/* Convert a rank to its number counted from the root (the root is 0), and
 * back. */
int shape_from_root(const struct shape *s, int rank);
int shape_to_rank(const struct shape *s, int from_root);
/* Returns how many ranks there are from number `first` on, at most `most`. */
static inline int shape_count(const struct shape *s, int first, int most)
{
	return most < s->ranks - first ? most : s->ranks - first;
}

/* Returns part i of a span that has a part for each rank; i wraps. */
static inline struct span shape_part(const struct shape *s, struct span whole,
				     int i)
{
	uint32_t lo = (uint32_t)shape_rank(s, i);

	return plan_cut(whole, lo, lo + 1, (uint32_t)s->ranks);
}

/* Finds the spans of the blocks of ranks [first, first + n). If these wrap
 * round the end of the buffer, there are two spans, and so two messages on both
 * sides. Returns the number of spans. */
int shape_blocks(const struct shape *s, enum plan_buffer buffer, int first,
		 int n, struct span out[2]);
/* The same for the subtree of number `first`, counted from the root, and at
 * most d ranks of it. The root uses its own buffer; elsewhere, scratch block 0
 * is the rank's own block. */
int shape_subtree(const struct shape *s, enum plan_buffer buffer, int first,
		  int d, struct span out[2]);
/* Returns the rank that is i places after s->rank on the path of links, on
 * which ranks of a node, and nodes of an island, are neighbours. Without links,
 * the path is the order of ranks. i must be at least -ranks. */
int shape_on_path(const struct shape *s, int i);
/* Returns the place of s->rank on that path, counted from 0. */
int shape_place(const struct shape *s);
/* shape_distance() returns how far `rank` is from s->rank: 0 on the same node,
 * 1 in the same island, 2 in another island. shape_farthest() returns the
 * largest distance between any two ranks. */
int shape_distance(const struct shape *s, int rank);
int shape_farthest(const struct shape *s);
/* The chain contains all ranks and begins at the root. The ranks of the root's
 * node follow, then the rest of its island, fast nodes first, then the other
 * islands. shape_chain_place() returns the place of s->rank; shape_chain_rank()
 * returns the rank at a place. */
int shape_chain_place(const struct shape *s);
int shape_chain_rank(const struct shape *s, int place);
/* Lower bounds for the number of hops that stay within a node: on the way along
 * the whole chain, and on the way round a ring from any rank to the rank before
 * it. Without links, 0. */
uint32_t shape_near_of_chain(const struct shape *s);
uint32_t shape_near_of_ring(const struct shape *s);
/* shape_power_of_two() returns the largest power of two that is not larger than
 * the number of ranks. shape_is_power_of_two() returns true if it equals the
 * number of ranks. */
int shape_power_of_two(const struct shape *s);
bool shape_is_power_of_two(const struct shape *s);
/* The logarithm to base 2, rounded up, of the number of ranks, and of n. */
uint32_t shape_log2(const struct shape *s);
uint32_t shape_log2_of(uint32_t n);

/*
 * Returns the span from which to read an input. This is `span` itself, unless
 * the operator scales its inputs. In that case the function appends a
 * STEP_SCALE that writes the scaled input to `to`, and returns `to`. Call it
 * once for each span, before the first use of that span. `span` lies in
 * PLAN_SEND; `to` is as long and lies in PLAN_RECV or scratch.
 */
struct span shape_input(struct plan *p, const struct shape *s, struct span span,
			struct span to);
/* Appends all steps of an all-reduce of an extra rank, one beyond a power of
 * two: it hands its input to its partner, and gets the result. */
void shape_extra(struct plan *p, const struct shape *s, int partner);
/* To be called for a span that holds the complete reduction. Appends a
 * STEP_DIVIDE if the operator divides its result. */
void shape_result(struct plan *p, const struct shape *s, struct span span);

#endif
