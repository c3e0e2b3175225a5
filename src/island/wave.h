/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that run together: one, or one of each of several communicators, which
 * a group of a thread has. All of them take each step at the same time, and the
 * vendor's library gets a step of all of them as one group of its own: ranks of
 * one island may be in one thread, and its calls for them may wait for each
 * other.
 *
 * A long message is cut into parts. While the owners are at work on one, the
 * vendor's library is on the next two or on the one before: it does on the
 * stream what comes before a part, and then what comes after the part that
 * began two earlier. So one stream is enough, and as much scratch as three
 * parts need.
 */
#ifndef DICOMM_ISLAND_WAVE_H
#define DICOMM_ISLAND_WAVE_H

#include "src/island/island.h"

struct wave_call {
	struct dicomm_comm *comm;
	const struct call *call;
	dicomm_stream_t stream;
	bool captured; /* into a graph */
};

/* Runs them, each of another communicator; changes their order, and copies
 * their counts. Returns the status of one that failed. */
dicomm_result_t island_wave_run(struct wave_call *calls, size_t n);

#endif
