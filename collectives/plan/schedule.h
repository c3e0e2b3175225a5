/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a plan over the slices of a message: each step takes its slices in
 * order, and slice k as soon as the steps it depends on have finished slice k.
 *
 * It knows no transport. Whoever runs it (the engine, or the simulator of the
 * tests) supplies how one step is done on one slice.
 *
 * Message numbers: message m of a pair, for slice k, has number
 * k * (messages of that pair per slice) + m, on both sides. The runner may
 * transfer messages of a pair in any order within its window of credits, but
 * never beyond it: number q only when all below q - window are consumed. So an
 * early slice is never blocked by a later one.
 */
#ifndef DICOMM_COLLECTIVES_PLAN_SCHEDULE_H
#define DICOMM_COLLECTIVES_PLAN_SCHEDULE_H

#include "collectives/plan/plan.h"

enum schedule_result {
	SCHEDULE_DONE,   /* done; the source or destination is free */
	SCHEDULE_POSTED, /* under way; ask finished() */
	SCHEDULE_AGAIN,  /* cannot now: no credit, nothing arrived */
	SCHEDULE_FAILED
};

/*
 * Bytes of a message that one slice carries, for a message of so many, all its
 * slices together, and slices of which one carries `most`. Slotless: nothing
 * holds them on their way, and a slice costs the start of a kernel.
 */
uint64_t schedule_slice_bytes(uint64_t message, uint64_t most, bool slotless);

struct schedule;

struct schedule_io {
	/* Do step s on slice k. For a message, `number` is its number on the
	 * pair; it may be POSTED: a source or destination in use until
	 * finished() says otherwise. */
	enum schedule_result (*start)(void *ctx, const struct step *step,
				      uint32_t s, uint64_t slice,
				      uint64_t number);
	/* Has this slice of a message step finished? Asked of the oldest one
	 * that is not known to be; also of one that start() called DONE while
	 * an older one was still POSTED. */
	enum schedule_result (*finished)(void *ctx, const struct step *step,
					 uint32_t s, uint64_t slice,
					 uint64_t number);
};

struct schedule {
	const struct plan *plan;
	uint64_t slices;
	/* Of scratch: slice k uses copy k % window of the scratch blocks, so
	 * no step may be `window` slices ahead of the slowest one. */
	uint64_t window;
	uint64_t *posted, *done; /* [step]: slices begun, finished */
	uint32_t first;          /* steps below it have finished all slices */
	uint32_t next;           /* step that the next turn begins with */
	uint64_t lowest; /* slices that every step has finished, at least */
	bool stale;      /* lowest may have grown */
	uint32_t room;   /* entries of posted and done */
};

/* Memory for plans of up to nsteps steps is kept between runs. */
dicomm_result_t schedule_begin(struct schedule *sc, const struct plan *plan,
			       uint64_t slices, uint64_t window);
void schedule_free(struct schedule *sc);

/* One turn: steps take one slice each in turn, until none can go on or after
 * `budget` starts; the next turn goes on from there. DONE when every step has
 * finished every slice; AGAIN when it has not; FAILED at once on a failure.
 * *progressed is set if anything moved. */
enum schedule_result schedule_turn(struct schedule *sc,
				   const struct schedule_io *io, void *ctx,
				   unsigned budget, bool *progressed);

#endif
