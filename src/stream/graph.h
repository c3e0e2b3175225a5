/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that are captured into graphs of CUDA or HIP.
 *
 * A captured call does not run. It is kept, and the graph gets a stop on each
 * of its streams. A thread looks at the stops of all graphs: when a replay has
 * come to those of a call, the call is queued, and when it has ended, the
 * replay goes on. The driver is not called for a replay.
 *
 * Captured calls of a communicator run on another one, which the ranks split
 * off it in the first captured call. A call of the user gets its place in the
 * order of calls when it is made, but a captured one when its replay comes to
 * it. With a single order, a rank could have one of the user's before a replay
 * that another rank has before that.
 *
 * A captured call ends with the last graph that was made of the captured one,
 * or with its communicator, whichever is later. Replays that come to it after
 * the end of its communicator, or when that is broken, go on at once.
 */
#ifndef DICOMM_STREAM_GRAPH_H
#define DICOMM_STREAM_GRAPH_H

#include "src/stream/submit.h"

/* Is the stream of one of the calls being captured? Fails if one is, and it
 * cannot go into a graph. */
dicomm_result_t graph_captures(const struct item *items, size_t n,
			       const struct local_work *before, bool *does);
/* Capture the calls, which start together. Takes over their counts, also on
 * failure. */
dicomm_result_t graph_capture(struct item *items, size_t n);

/* The communicator aborts, and ends: so do its captured calls. */
void graph_abort(struct dicomm_comm *comm);
void graph_close(struct dicomm_comm *comm);
void graph_set_timeout(struct dicomm_comm *comm, int timeout_ms);

#endif
