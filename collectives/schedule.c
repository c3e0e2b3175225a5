/* SPDX-License-Identifier: BSD-3-Clause */
/* Running a plan over slices: who may start what, and when it is over. */
#include "collectives/schedule.h"

#include <stdlib.h>
#include <string.h>

dicomm_result_t schedule_begin(struct schedule *sc, const struct plan *plan,
			       uint64_t slices, uint64_t window)
{
	uint32_t n = plan->nsteps;

	if (n > sc->room) {
		uint64_t *both = malloc(2 * (size_t)n * sizeof(*both));

		if (!both)
			return DICOMM_ERR_NO_MEMORY;
		free(sc->posted);
		sc->posted = both;
		sc->room = n;
	}
	/* One block of memory: the second half is done[]. */
	sc->done = sc->posted ? sc->posted + n : NULL;
	if (n > 0)
		memset(sc->posted, 0, 2 * (size_t)n * sizeof(*sc->posted));
	sc->plan = plan;
	sc->slices = slices;
	sc->window = plan->scratch_blocks > 0 ? window : UINT64_MAX;
	sc->first = slices == 0 ? n : 0;
	sc->lowest = 0;
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

static bool may_start(const struct schedule *sc, const struct step *step,
		      uint64_t slice)
{
	const struct plan *p = sc->plan;

	if (slice - sc->lowest >= sc->window)
		return false;
	for (uint32_t i = 0; i < step->dep_count; i++)
		if (sc->done[p->deps[step->dep_first + i]] <= slice)
			return false;
	return true;
}

/* Take note of sends that have finished since. */
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

/* One slice of each step that can go on: what one step has just written is
 * read by the next one while it is in the cache. */
static enum schedule_result pass(struct schedule *sc,
				 const struct schedule_io *io, void *ctx,
				 unsigned *budget, bool *moved)
{
	uint64_t lowest = sc->slices;
	enum schedule_result r;

	for (uint32_t s = sc->first; s < sc->plan->nsteps; s++) {
		if (sc->done[s] == sc->slices) {
			if (s == sc->first)
				sc->first++;
			continue;
		}
		if (reap(sc, io, ctx, s, moved) == SCHEDULE_FAILED)
			return SCHEDULE_FAILED;
		if (*budget > 0) {
			r = start(sc, io, ctx, s, moved);
			if (r == SCHEDULE_FAILED)
				return r;
			if (r != SCHEDULE_AGAIN)
				(*budget)--;
		}
		if (sc->done[s] < lowest)
			lowest = sc->done[s];
		if (s == sc->first && sc->done[s] == sc->slices)
			sc->first++;
	}
	sc->lowest = lowest;
	return SCHEDULE_AGAIN;
}

enum schedule_result schedule_turn(struct schedule *sc,
				   const struct schedule_io *io, void *ctx,
				   unsigned budget, bool *progressed)
{
	bool moved;

	do {
		moved = false;
		if (pass(sc, io, ctx, &budget, &moved) == SCHEDULE_FAILED)
			return SCHEDULE_FAILED;
		if (moved)
			*progressed = true;
		if (sc->first == sc->plan->nsteps)
			return SCHEDULE_DONE;
	} while (moved && budget > 0);
	return SCHEDULE_AGAIN;
}
