/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ranks of a round, their supervisor and the program see of each
 * other: memory that all of these processes share. A rank writes its seat and
 * the lives in it; it fills a life before it counts it as failed or shrunk.
 */
#ifndef DICOMM_TESTS_STORMS_BOARD_H
#define DICOMM_TESTS_STORMS_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>

#include "dicomm.h"
#include "tests/storms/tally.h"

#define BOARD_RANKS 8
#define BOARD_SPARES 2
#define BOARD_SEATS (BOARD_RANKS + BOARD_SPARES)
/* Communicators one after the other, each by a shrink of the one before. */
#define BOARD_LIVES 12

enum phase { MEETING, WORKING, SHRINKING, GROWING, LEAVING, GONE };
/* What the ranks are to agree on; the largest one wins. */
enum wish { GO_ON, GROW, LEAVE };
enum command { NOTHING, DO_ABORT, DO_EXIT, DO_EXIT_NOW, DO_SHUT };

/* One communicator, as one rank saw it. */
struct life {
	int rank, ranks;
	dicomm_result_t status; /* of the call that failed */
	dicomm_result_t async;  /* what the communicator says then */
	char text[700];
	double failed_at;
	dicomm_result_t shrunk; /* how shrink ended */
	char shrink_text[400];
};

struct seat {
	_Atomic bool ready; /* about to meet */
	_Atomic int phase;
	_Atomic int failed; /* how many lives have ended */
	_Atomic int shrunk; /* how many shrinks have returned */
	_Atomic int grown;  /* growths of the board that it has been through */
	dicomm_result_t grow; /* how the latest one ended */
	char grow_text[400];
	_Atomic int command;
	_Atomic unsigned calls; /* that this rank has begun */
	unsigned shut;          /* which of the sockets DO_SHUT takes */
	/* What it has more than before, when all is destroyed */
	int descriptors;
	long memory;
	struct life life[BOARD_LIVES];
};

struct board {
	_Atomic bool id_made, leave;
	dicomm_unique_id_t id; /* to meet by, then to grow by */
	/* Set before it says that they are to grow once more: which spare seat
	 * joins, in which life, and how many ranks there are then. */
	int joiner, life, ranks;
	_Atomic int growths;
	_Atomic int called; /* the seat that is to join now, or -1 */
	struct seat seat[BOARD_SEATS];
	/* These stay from round to round. */
	struct tally tally;
};

extern struct board *board;

#endif
