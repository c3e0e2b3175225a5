/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the survivors of an event must say, and how they must go on.
 */
#ifndef DICOMM_TESTS_STORMS_JUDGE_H
#define DICOMM_TESTS_STORMS_JUDGE_H

#include <stdbool.h>

#include "tests/storms/event.h"

/* Whom an event is about, in one communicator */
struct cause {
	struct event event;
	int rank, second; /* ranks of the victims; second: or -1 */
};

/* Is that rank among those that a text names? */
bool judge_names(const char *text, int rank);
/* Does that survivor, in the life of this number, blame who did it? */
bool judge_named(const struct cause *c, int seat, int life);

/* What shrink must give */
struct outcome {
	int survivors;
	int ranks;        /* of the communicator that failed */
	bool with_lowest; /* its rank 0 survives */
};
bool judge_majority(const struct outcome *o);
/* Seats: bit s for each survivor. */
bool judge_one_party(unsigned seats, int life);

#endif
