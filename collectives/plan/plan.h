/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plan: what one rank does for one collective, as data.
 *
 * It reads as a sequential program over ONE slice of the message. The engine
 * runs it over all slices, and starts a step on slice k as soon as the earlier
 * steps that touch the same memory have finished slice k: dependencies follow
 * from the spans (plan_finish), nobody writes them down. Its size depends on
 * the ranks, never on the bytes.
 *
 * Three rules let any mixture of transports and any number of credits work:
 *  - between two ranks, the sends of one and the receives of the other come
 *    in the same order, and each pair has spans of equal length;
 *  - run sequentially with one credit per pair, the plans of all ranks end;
 *  - they also end if a send finishes only when its peer has consumed it (it
 *    may be read where it lies), and writes to that memory wait for that. So no
 *    two ranks receive into what they are sending to each other.
 * tests/plans checks them for every algorithm.
 */
#ifndef DICOMM_COLLECTIVES_PLAN_PLAN_H
#define DICOMM_COLLECTIVES_PLAN_PLAN_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

enum plan_buffer { PLAN_SEND, PLAN_RECV, PLAN_SCRATCH, PLAN_BUFFERS };

/*
 * Part of a slice. A buffer is one or more blocks: the send and receive
 * buffers have one block, or one for each rank, as the collective says
 * (coll_layout() in algorithm.h); each scratch block has room for one slice of
 * the longest block. Slice k of a block is its elements [k * E, (k + 1) * E),
 * for E slice elements, as far as the block has them. A slice is cut into
 * `parts` equal parts, rounded up to whole cache lines, the last ones shorter
 * or empty; the span holds parts [lo, hi). With nblocks > 1 it is that many
 * whole consecutive blocks (lo 0, hi = parts = 1), which only a plan that is
 * marked whole may use, as its message is never sliced. The scratch blocks of
 * such a plan follow each other without gaps, as those of the buffers do.
 *
 * Blocks of the send or receive buffer differ in length only in the
 * v-collectives. There a span of scratch is as long as block `like` of the
 * buffer that has one for each rank.
 */
struct span {
	uint8_t buffer; /* enum plan_buffer */
	uint32_t block, nblocks;
	uint32_t lo, hi, parts;
	uint32_t like; /* only for PLAN_SCRATCH */
};

enum step_kind {
	STEP_SEND,        /* a -> peer */
	STEP_RECV,        /* peer -> dst */
	STEP_RECV_REDUCE, /* dst = a op (what peer sent) */
	STEP_COPY,        /* dst = a */
	STEP_REDUCE,      /* dst = a op b */
	STEP_SCALE,  /* dst = a * scalar of the operator (avg, premulsum) */
	STEP_DIVIDE, /* dst = a / N, toward zero (avg of integers) */
	STEP_FOLD,   /* dst = fold of nfold spans: scratch block b.block + i
		      * (b's parts of it, which are dst's) for rank i, `a` in
		      * place of the own rank's; rank order, narrow floats
		      * accumulated in float32 */
};

struct step {
	uint8_t kind;
	int peer; /* rank; -1 if local */
	/* This is message `pair_index` of those to (or from) this peer, for
	 * one slice; set by plan_finish. */
	uint32_t pair_index;
	struct span dst, a, b;
	uint32_t nfold;
	/* Earlier steps that must have finished a slice before this one starts
	 * it: plan->deps[dep_first .. dep_first + dep_count). */
	uint32_t dep_first, dep_count;
};

/* Hears of a step, and how long is what it sends, or else writes: of so many
 * blocks `taken` of `parts` parts. A fold is told as the reductions it is. */
typedef void plan_tell(void *ctx, enum step_kind kind, int peer,
		       uint32_t nblocks, uint32_t taken, uint32_t parts);

struct plan {
	struct step *steps;
	uint32_t nsteps;
	uint32_t *deps;
	uint32_t ndeps;
	uint32_t scratch_blocks;
	/* Messages for each slice to and from each peer: [peer] */
	uint32_t *sends_to, *recvs_from;
	int ranks;
	/* Largest message as a fraction of a slice (of the longest block).
	 * From it follows how long a slice is, so all ranks have the same. */
	uint32_t message_parts, message_parts_of;
	bool whole; /* never sliced; spans may hold several blocks */
	/* How PLAN_SEND and PLAN_RECV alias when the call is in place; see
	 * plan_set_in_place. */
	bool in_place;
	bool in_place_send_in_recv; /* else recv lies in send */
	uint32_t in_place_block;
	dicomm_result_t status;
	/* Steps are told to it, and not kept: the plan is only looked at. */
	plan_tell *tell;
	void *tell_ctx;
	/* private to plan.c */
	uint32_t steps_room, deps_room;
	uint32_t largest, largest_of;
};

/* Start an empty plan for one of `ranks` ranks. */
void plan_init(struct plan *p, int ranks);
void plan_free(struct plan *p);
/*
 * The call is in place. Either the send buffer is block `block` of the receive
 * buffer (allreduce, allgather, gather: send_in_recv) or the receive buffer is
 * block `block` of the send buffer (reduce_scatter, scatter). In alltoall, the
 * blocks coincide one by one: send_in_recv, block 0. Spans are rewritten to the
 * enclosing buffer, and copies onto themselves dropped.
 */
void plan_set_in_place(struct plan *p, bool send_in_recv, uint32_t block);

/* Spans, and steps with peers, are made here and field by field: counting the
 * steps of many ranks makes hundreds of millions, and a span that is copied as
 * a whole waits until all that was just written to it has left the core. */
static inline struct span plan_blocks(enum plan_buffer buffer, uint32_t block,
				      uint32_t n)
{
	return (struct span){.buffer = (uint8_t)buffer,
			     .block = block,
			     .nblocks = n,
			     .hi = 1,
			     .parts = 1};
}

static inline struct span plan_block(enum plan_buffer buffer, uint32_t block)
{
	return plan_blocks(buffer, block, 1);
}

/* Parts of a span that was whole until now. */
static inline struct span plan_cut(struct span span, uint32_t lo, uint32_t hi,
				   uint32_t parts)
{
	assert(span.parts == 1 && span.nblocks == 1);
	assert(lo <= hi && hi <= parts);
	return (struct span){.buffer = span.buffer,
			     .block = span.block,
			     .nblocks = 1,
			     .lo = lo,
			     .hi = hi,
			     .parts = parts,
			     .like = span.like};
}

/* A span of scratch that holds (some of) block `block`. */
static inline struct span plan_like(struct span span, uint32_t block)
{
	span.like = block;
	return span;
}

/* Is nothing left to do for a step that sends or writes `span`? */
static inline bool plan_told(struct plan *p, enum step_kind kind, int peer,
			     struct span span)
{
	if (span.nblocks == 0 || span.lo == span.hi)
		return true;
	if (!p->tell)
		return false;
	p->tell(p->tell_ctx, kind, peer, span.nblocks, span.hi - span.lo,
		span.parts);
	return true;
}

/* Append the step of a message that has not been told. */
void plan_message(struct plan *p, enum step_kind kind, int peer,
		  struct span dst, struct span a);

/* Append a step. After a failure (no memory) they do nothing; ask
 * plan_finish once. A step with an empty span (lo == hi) is not added. */
static inline void plan_send(struct plan *p, int peer, struct span a)
{
	if (!plan_told(p, STEP_SEND, peer, a))
		plan_message(p, STEP_SEND, peer, (struct span){.lo = 0}, a);
}

static inline void plan_recv(struct plan *p, int peer, struct span dst)
{
	if (!plan_told(p, STEP_RECV, peer, dst))
		plan_message(p, STEP_RECV, peer, dst, (struct span){.lo = 0});
}

static inline void plan_recv_reduce(struct plan *p, int peer, struct span dst,
				    struct span a)
{
	if (!plan_told(p, STEP_RECV_REDUCE, peer, dst))
		plan_message(p, STEP_RECV_REDUCE, peer, dst, a);
}

void plan_copy(struct plan *p, struct span dst, struct span a);
void plan_reduce(struct plan *p, struct span dst, struct span a, struct span b);
void plan_scale(struct plan *p, struct span dst, struct span a);
void plan_divide(struct plan *p, struct span dst, struct span a);
void plan_fold(struct plan *p, struct span dst, struct span a,
	       uint32_t first_block, uint32_t n);
/* The building of a plan has failed. */
void plan_fail(struct plan *p, dicomm_result_t status);
/* The largest message, for a rank that itself may have only smaller ones. */
void plan_largest(struct plan *p, uint32_t parts, uint32_t parts_of);
/* Reserve n scratch blocks; the first one's number. */
uint32_t plan_scratch(struct plan *p, uint32_t n);

/* Derive dependencies and message numbers. DICOMM_ERR_NO_MEMORY if any
 * append failed. */
dicomm_result_t plan_finish(struct plan *p);

/* Bytes that the plan itself occupies. */
size_t plan_bytes(const struct plan *p);

/* The elements [*first, *first + *n) of a slice of len elements that parts
 * [lo, hi) of `parts` hold; align is the number of elements in a cache line. */
void plan_split(size_t len, uint32_t lo, uint32_t hi, uint32_t parts,
		size_t align, size_t *first, size_t *n);

#endif
