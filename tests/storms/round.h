/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One round of a storm: ranks that work, and a supervisor that disturbs them,
 * waits until all survivors know, and judges what they say and how they go on.
 */
#ifndef DICOMM_TESTS_STORMS_ROUND_H
#define DICOMM_TESTS_STORMS_ROUND_H

#include <stdbool.h>
#include <stddef.h>

enum round_kind {
	ROUND_ORDINARY,
	ROUND_STOPS, /* SIGSTOP for good, under a short time-out */
	ROUND_INIT   /* SIGKILL while the ranks meet */
};

struct round {
	enum round_kind kind;
	unsigned seed;
	int ranks;
	int spares; /* processes that join when the others have shrunk */
	/* A communicator comes and goes first; and what is left is checked. */
	bool warm;
	bool ucx;        /* which keeps things */
	size_t most;     /* elements of a block; 0: as many as there may be */
	unsigned events; /* at most */
	double end;      /* no event after that time (job_seconds()) */
};

/* Draw a round of so many ranks from a seed. */
struct round round_draw(unsigned seed, int ranks);
/* Run it; what happened is in the tally of the board. */
void round_run(const struct round *r);

#endif
