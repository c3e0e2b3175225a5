/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a storm counts, by kind of event. The supervisor of a round and the
 * program write it, one after the other.
 */
#ifndef DICOMM_TESTS_STORMS_TALLY_H
#define DICOMM_TESTS_STORMS_TALLY_H

#include <stdio.h>

#include "tests/storms/event.h"

enum tally_fault {
	TALLY_HANG,    /* a rank did not go on within its bound of time */
	TALLY_WRONG,   /* a result is not what its definition says */
	TALLY_UNNAMED, /* the error of a survivor names another rank, or has
			* another status, than the event calls for */
	TALLY_CRASH,   /* a survivor ended by itself */
	TALLY_SHRINK,  /* a majority lives and cannot shrink or grow */
	TALLY_SPLIT,   /* survivors go on as several parties, or with too few */
	TALLY_LEFT,    /* descriptors, memory, threads are left over */
	TALLY_OTHER,   /* anything else that a rank finds wrong */
	TALLY_FAULTS
};

struct tally {
	struct tally_row {
		unsigned events;
		unsigned faults[TALLY_FAULTS];
		/* until the last survivor knew, where one was told of */
		unsigned known;
		double sum_s, longest_s;
	} row[EVENT_KINDS];
	unsigned rounds, shrinks, growths;
	/* SIGSTOP for good, and where all texts named that very rank */
	unsigned stops, stops_found;
	unsigned long calls;
	enum event_kind latest;
	double slowest_shrink_s;
	long most_grown; /* memory that a rank kept, in bytes */
	int most_descriptors;
};

const char *tally_name(enum tally_fault fault);
void tally_event(struct tally *t, enum event_kind kind);
/* Of the latest event */
void tally_fault(struct tally *t, enum tally_fault fault);
void tally_known(struct tally *t, double seconds);
/* Which fault the words of a job mean that failed */
enum tally_fault tally_read(const char *text);
unsigned tally_events(const struct tally *t);
unsigned tally_faults(const struct tally *t);
void tally_print(const struct tally *t, FILE *to);

#endif
