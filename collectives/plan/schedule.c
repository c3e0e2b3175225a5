/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a plan over slices: which step may start which slice, and when all is
 * finished. */
#include "collectives/plan/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"

/* A message is cut into this many slices so that both sides work at the same
 * time, but not into slices that are too short to be worth their overhead. */
#define SLICES_WANTED 4
#define SLICE_MIN_BYTES 16384
/* Without slots, a slice is at least this fraction of the longest slice: less
 * is not worth the launch of a kernel. */
#define SLICE_SHARE 16

uint64_t schedule_slice_bytes(uint64_t message, uint64_t most, bool slotless)
{
	uint64_t least = SLICE_MIN_BYTES;
	uint64_t slice =
		message / SLICES_WANTED + (message % SLICES_WANTED > 0);

	if (slotless && most / SLICE_SHARE > least)
		least = most / SLICE_SHARE;
	if (slice < least)
		slice = least;
	return slice < most ? slice : most;
}

dicomm_result_t schedule_begin(struct schedule *sc, const struct plan *plan,
			       uint64_t slices, uint64_t window)
{
	uint32_t n = plan->nsteps;

	if (n > sc->room) {
		uint64_t *both = malloc(2 * (size_t)n * sizeof(*both));

		if (!both)
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "schedule: no memory for %u steps", n);
		free(sc->posted);
		sc->posted = both;
		sc->room = n;
	}
	/* posted[] and done[] share one allocation; done[] is its second
	 * half. */
	sc->done = sc->posted ? sc->posted + n : NULL;
	if (n > 0)
		memset(sc->posted, 0, 2 * (size_t)n * sizeof(*sc->posted));
	sc->plan = plan;
	sc->slices = slices;
	sc->window = plan->scratch_blocks > 0 ? window : UINT64_MAX;
	sc->first = slices == 0 ? n : 0;
	sc->next = sc->first;
	sc->lowest = 0;
	sc->stale = false;
	return DICOMM_SUCCESS;
}

void schedule_free(struct schedule *sc)
{
	if (!sc)
		return;
	free(sc->posted);
	memset(sc, 0, sizeof(*sc));
}

static uint64_t number(const struct plan *p, const struct step *step,
		       uint64_t slice)
{
	if (step->peer < 0)
		return 0;
	return slice * (step->kind == STEP_SEND ? p->sends_to[step->peer]
						: p->recvs_from[step->peer]) +
	       step->pair_index;
}

/* Returns true if this slice may use a copy of the scratch blocks now. */
static bool in_window(struct schedule *sc, uint64_t slice)
{
	if (slice - sc->lowest < sc->window)
		return true;
	if (!sc->stale)
		return false;
	sc->stale = false;
	sc->lowest = sc->slices;
	for (uint32_t s = sc->first; s < sc->plan->nsteps; s++)
		if (sc->done[s] < sc->lowest)
			sc->lowest = sc->done[s];
	return slice - sc->lowest < sc->window;
}

static bool may_start(struct schedule *sc, const struct step *step,
		      uint64_t slice)
{
	const struct plan *p = sc->plan;

	for (uint32_t i = 0; i < step->dep_count; i++)
		if (sc->done[p->deps[step->dep_first + i]] <= slice)
			return false;
	return in_window(sc, slice);
}

/* Advances done[s] past the slices that have finished since the last turn. */
static enum schedule_result reap(struct schedule *sc,
				 const struct schedule_io *io, void *ctx,
				 uint32_t s, bool *moved)
{
	const struct step *step = &sc->plan->steps[s];
	enum schedule_result r;

	while (sc->done[s] < sc->posted[s]) {
		r = io->finished(ctx, step, s, sc->done[s],
				 number(sc->plan, step, sc->done[s]));
		if (r != SCHEDULE_DONE)
			return r;
		sc->done[s]++;
		*moved = true;
	}
	return SCHEDULE_DONE;
}

static enum schedule_result start(struct schedule *sc,
				  const struct schedule_io *io, void *ctx,
				  uint32_t s, bool *moved)
{
	const struct step *step = &sc->plan->steps[s];
	uint64_t slice = sc->posted[s];
	enum schedule_result r;

	if (slice == sc->slices || !may_start(sc, step, slice))
		return SCHEDULE_AGAIN;
	r = io->start(ctx, step, s, slice, number(sc->plan, step, slice));
	if (r == SCHEDULE_DONE || r == SCHEDULE_POSTED) {
		if (r == SCHEDULE_DONE && sc->done[s] == slice)
			sc->done[s]++;
		sc->posted[s]++;
		*moved = true;
	}
	return r;
}

/*
 * Steps take turns, one slice each, for two reasons. A step reads what the step
 * before it has just written while that is in the cache. And a step that can
 * always go on does not hold up later steps, for which other ranks wait.
 */
enum schedule_result schedule_turn(struct schedule *sc,
				   const struct schedule_io *io, void *ctx,
				   unsigned budget, bool *progressed)
{
	uint32_t n = sc->plan->nsteps;
	uint32_t idle = 0; /* how many steps in a row could not go on */
	enum schedule_result r;

	while (sc->first < n && idle < n - sc->first && budget > 0) {
		uint32_t s = sc->next;
		bool moved = false;

		if (s < sc->first || s >= n)
			s = sc->first;
		sc->next = s + 1;
		idle++;
		if (sc->done[s] == sc->slices)
			continue;
		if (reap(sc, io, ctx, s, &moved) == SCHEDULE_FAILED)
			return SCHEDULE_FAILED;
		r = start(sc, io, ctx, s, &moved);
		if (r == SCHEDULE_FAILED)
			return r;
		if (r != SCHEDULE_AGAIN)
			budget--;
		if (!moved)
			continue;
		idle = 0;
		sc->stale = true;
		*progressed = true;
		while (sc->first < n && sc->done[sc->first] == sc->slices)
			sc->first++;
	}
	return sc->first == n ? SCHEDULE_DONE : SCHEDULE_AGAIN;
}
