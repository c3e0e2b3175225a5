/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plan says, as data, what one rank does for one collective.
 *
 * It reads as a sequential program over ONE slice of the message. The engine
 * runs it over all slices. It starts a step on slice k as soon as the earlier
 * steps that touch the same memory have finished slice k. plan_finish() derives
 * these dependencies from the spans; nobody writes them down. The size of a
 * plan depends on the number of ranks, never on the number of bytes.
 *
 * Three rules make every plan work over any mixture of transports and with any
 * number of credits:
 *  - Between two ranks, sends of one and receives of the other come in the
 *    same order, and with spans of equal length.
 *  - If all ranks run their plans sequentially with one credit per pair, all
 *    of them end.
 *  - They also end if a send finishes only when the peer has consumed it (the
 *    peer may read the memory in place), and if later writes to that memory
 *    wait until then. So no two ranks may receive into the memory that they
 *    are sending to each other.
 * tests/plans checks the rules for every algorithm.
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
 * A range of a buffer within one slice.
 *
 * A buffer consists of blocks. The send and the receive buffer have one block,
 * or one for each rank, as coll_layout() says. A scratch block has room for one
 * slice of the longest block. Scratch blocks follow each other without gaps, as
 * the blocks of the other buffers do.
 *
 * With E elements per slice, slice k of a block is its E elements from k * E
 * on, as far as the block reaches. A slice is cut into `parts` equal parts,
 * rounded up to whole cache lines, so the last parts may be shorter or empty.
 * The span is parts [lo, hi) of the slice.
 *
 * With nblocks > 1, the span is that many whole consecutive blocks, with lo 0
 * and hi = parts = 1. Only a plan that is marked `whole` may use such spans,
 * because its message is never sliced.
 *
 * Blocks of the send or receive buffer differ in length only in the
 * v-collectives. In these, a span of scratch has the length of block `like` of
 * the buffer that has a block for each rank.
 */
struct span {
	uint8_t buffer; /* enum plan_buffer */
	uint32_t block, nblocks;
	uint32_t lo, hi, parts;
	uint32_t like; /* for PLAN_SCRATCH only */
};

enum step_kind {
	STEP_SEND,        /* send a to the peer */
	STEP_RECV,        /* receive from the peer into dst */
	STEP_RECV_REDUCE, /* dst = a op what the peer sent */
	STEP_COPY,        /* dst = a */
	STEP_REDUCE,      /* dst = a op b */
	/* dst = a * scalar of the operator (avg of floats, premulsum) */
	STEP_SCALE,
	/* dst = a / number of ranks, rounded toward zero (avg of integers) */
	STEP_DIVIDE,
	/* dst = reduction of nfold spans in rank order. The span of rank i is
	 * scratch block b.block + i, with the parts of dst; for the own rank it
	 * is `a`. Narrow floats accumulate in float32. */
	STEP_FOLD,
};

struct step {
	uint8_t kind;
	int peer; /* a rank; -1 for a local step */
	/* Within one slice, this is message number pair_index from or to this
	 * peer. plan_finish() sets it. */
	uint32_t pair_index;
	struct span dst, a, b;
	uint32_t nfold;
	/* The earlier steps that must have finished a slice before this step
	 * starts on it: plan->deps[dep_first .. dep_first + dep_count).
	 * plan_finish() sets them. */
	uint32_t dep_first, dep_count;
};

/* A callback that gets each step, when the plan does not keep steps. The step
 * sends, or otherwise writes, `taken` of `parts` parts of nblocks blocks. A
 * fold is reported as single reductions. */
typedef void plan_tell(void *ctx, enum step_kind kind, int peer,
		       uint32_t nblocks, uint32_t taken, uint32_t parts);

struct plan {
	struct step *steps;
	uint32_t nsteps;
	uint32_t *deps;
	uint32_t ndeps;
	uint32_t scratch_blocks;
	/* [peer]: the messages per slice to that peer, and from it. */
	uint32_t *sends_to, *recvs_from;
	int ranks;
	/* The largest message of all ranks as a fraction of a slice of the
	 * longest block. The length of a slice follows from it, so all ranks
	 * must have the same value. */
	uint32_t message_parts, message_parts_of;
	/* The message is not sliced; spans may hold several blocks. */
	bool whole;
	/* Set by plan_set_in_place(): how PLAN_SEND and PLAN_RECV alias. */
	bool in_place;
	/* False: the receive buffer lies in the send buffer. */
	bool in_place_send_in_recv;
	uint32_t in_place_block;
	dicomm_result_t status;
	/* If set, steps are reported to this function and are not kept. */
	plan_tell *tell;
	void *tell_ctx;
	/* Private to plan.c. */
	uint32_t steps_room, deps_room;
	uint32_t largest, largest_of;
};

/* Starts an empty plan for one rank of a communicator of `ranks` ranks. */
void plan_init(struct plan *p, int ranks);
void plan_free(struct plan *p);
/*
 * Declares the call as in place; to be called before any step is appended. With
 * send_in_recv, the send buffer is block `block` of the receive buffer
 * (allreduce, allgather, gather). Otherwise, the receive buffer is block
 * `block` of the send buffer (reduce_scatter, scatter). In an alltoall both
 * have the same blocks: send_in_recv, block 0.
 *
 * From then on, spans are rewritten to the enclosing buffer, and a copy of a
 * span onto itself is dropped.
 */
void plan_set_in_place(struct plan *p, bool send_in_recv, uint32_t block);

/* The functions that make spans and message steps are inline and write single
 * fields. The estimator calls them hundreds of millions of times for many
 * ranks. Copying a whole struct span right after its fields were written would
 * stall until those stores have left the core. */
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

/* Returns parts [lo, hi) of `parts` of a span that is not cut yet. */
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

/* Returns `span`, a span of scratch, marked to be as long as block `block`. */
static inline struct span plan_like(struct span span, uint32_t block)
{
	span.like = block;
	return span;
}

/* Returns true if a step that sends or writes `span` need not be appended: the
 * span is empty, or the step was reported to tell(). */
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

/* Appends a message step that was not reported to tell(). */
void plan_message(struct plan *p, enum step_kind kind, int peer,
		  struct span dst, struct span a);

/* These functions append one step. A step with an empty span (lo == hi) is not
 * added. After a failure (no memory) they do nothing, so the caller checks the
 * result of plan_finish() only. */
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
/* Called by build() if it fails; plan_finish() returns `status`. */
void plan_fail(struct plan *p, dicomm_result_t status);
/* Sets the largest message of any rank, as a fraction of a slice. Needed if
 * some ranks only have smaller messages than others. */
void plan_largest(struct plan *p, uint32_t parts, uint32_t parts_of);
/* Reserves n scratch blocks. Returns the number of the first one. */
uint32_t plan_scratch(struct plan *p, uint32_t n);

/* Derives dependencies and message numbers. Returns DICOMM_ERR_NO_MEMORY if it,
 * or an append before it, ran out of memory. */
dicomm_result_t plan_finish(struct plan *p);

/* Turns the plan of some ranks of a communicator of `ranks` ranks, which is
 * finished, into one of that communicator: rank i is its rank of[i]. Returns
 * DICOMM_ERR_NO_MEMORY if there is no memory. */
dicomm_result_t plan_among(struct plan *p, const uint32_t *of, int ranks);

/* Returns the memory that the plan occupies, in bytes. */
size_t plan_bytes(const struct plan *p);

/* Converts parts [lo, hi) of `parts` of a slice of len elements to a range of
 * elements, [*first, *first + *n). `align` is the number of elements in a cache
 * line. */
void plan_split(size_t len, uint32_t lo, uint32_t hi, uint32_t parts,
		size_t align, size_t *first, size_t *n);

#endif
