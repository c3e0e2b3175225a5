/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a plan over the slices of a message. Each step takes its slices in
 * order. It takes slice k as soon as the steps on which it depends have
 * finished slice k.
 *
 * The schedule knows no transport. Its caller (the engine, or the simulator of
 * the tests) supplies a function that does one step on one slice.
 *
 * Message numbers: for slice k, message m of a pair has the number k *
 * (messages of that pair per slice) + m, on both sides. The caller may transfer
 * the messages of a pair in any order within its window of credits: message q
 * may go only when all messages below q - window are consumed. So a later slice
 * never blocks an earlier one.
 */
#ifndef DICOMM_COLLECTIVES_PLAN_SCHEDULE_H
#define DICOMM_COLLECTIVES_PLAN_SCHEDULE_H

#include "collectives/plan/plan.h"

enum schedule_result {
	SCHEDULE_DONE,   /* finished; its source or destination is free */
	SCHEDULE_POSTED, /* started; finished() returns when it has ended */
	SCHEDULE_AGAIN,  /* cannot start now: no credit, or nothing has
			  * arrived */
	SCHEDULE_FAILED
};

/*
 * Returns how many bytes of a message one slice carries. `message` is the
 * length of the whole message, and `most` the largest slice, in bytes.
 * `slotless` means that messages do not pass through slots and that each slice
 * costs the launch of a kernel, so slices are longer.
 */
uint64_t schedule_slice_bytes(uint64_t message, uint64_t most, bool slotless);

struct schedule;

struct schedule_io {
	/* Does step s on slice k. For a message, `number` is its number on the
	 * pair. If it returns SCHEDULE_POSTED, the source or destination stays
	 * in use until finished() says that it is free. */
	enum schedule_result (*start)(void *ctx, const struct step *step,
				      uint32_t s, uint64_t slice,
				      uint64_t number);
	/* Returns whether a step has finished a slice. The schedule calls it
	 * for the oldest slice of the step that is not known to be finished.
	 * start() may have returned SCHEDULE_DONE for that slice while an older
	 * one was still posted. */
	enum schedule_result (*finished)(void *ctx, const struct step *step,
					 uint32_t s, uint64_t slice,
					 uint64_t number);
};

struct schedule {
	const struct plan *plan;
	uint64_t slices;
	/* The number of copies of the scratch blocks. Slice k uses copy k %
	 * window, so no step may be `window` or more slices ahead of the
	 * slowest step. */
	uint64_t window;
	uint64_t *posted, *done; /* [step]: slices started, slices finished */
	uint32_t first;          /* all steps below this one have finished all
				  * slices */
	uint32_t next;           /* the step with which the next turn begins */
	uint64_t lowest; /* every step has finished at least this many slices */
	bool stale;      /* lowest may have grown since it was computed */
	uint32_t room;   /* number of entries of posted and done */
};

/* Begins a run. Memory for the steps is kept between runs, and grows if a plan
 * has more steps than any before. Fails with DICOMM_ERR_NO_MEMORY. */
dicomm_result_t schedule_begin(struct schedule *sc, const struct plan *plan,
			       uint64_t slices, uint64_t window);
void schedule_free(struct schedule *sc);

/* Runs one turn: the steps take one slice each, round robin, until no step can
 * go on or until `budget` slices have been started. The next turn goes on from
 * there. Returns SCHEDULE_DONE when every step has finished every slice,
 * SCHEDULE_FAILED as soon as a step fails, otherwise SCHEDULE_AGAIN. Sets
 * *progressed to true if any step moved. */
enum schedule_result schedule_turn(struct schedule *sc,
				   const struct schedule_io *io, void *ctx,
				   unsigned budget, bool *progressed);

#endif
