/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the supervisor of a round knows of its ranks, and what it waits for.
 */
#ifndef DICOMM_TESTS_STORMS_WATCH_H
#define DICOMM_TESTS_STORMS_WATCH_H

#include "tests/storms/board.h"
#include "tests/storms/judge.h"
#include "tests/storms/round.h"

struct watch {
	const struct round *r;
	int seats;        /* ranks and spares */
	unsigned waiting; /* bit s: a spare that has not joined */
	int growths;
	unsigned random;
	unsigned dead;    /* bit s: seat s has ended, or is to */
	unsigned stopped; /* by SIGSTOP, for good */
	int life;         /* which communicator they use */
	struct cause cause;
	double at;        /* when it happened */
	unsigned counted; /* bit k: a fault of kind k of that event */
	unsigned calls[BOARD_RANKS]; /* then */
};

/* Takes part, and is neither ended nor stopped by an event */
bool watch_survives(const struct watch *w, int seat);
/* Seats: bit s for each. */
unsigned watch_survivors(const struct watch *w);
int watch_phase(int seat);
/* A survivor has ended by itself; the job tells how. */
bool watch_lost(const struct watch *w);

typedef bool watch_condition(const struct watch *w);

/* False: it has not come about within its time, or cannot. */
bool watch_await(const struct watch *w, watch_condition *met, double seconds);

/* Of all survivors each */
watch_condition watch_work, watch_are_about_to_meet, watch_know,
	watch_none_knows, watch_went_on_or_know, watch_have_shrunk,
	watch_have_grown, watch_are_gone;

#endif
