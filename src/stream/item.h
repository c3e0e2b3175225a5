/* SPDX-License-Identifier: BSD-3-Clause */
/* A call that waits to run. */
#ifndef DICOMM_STREAM_ITEM_H
#define DICOMM_STREAM_ITEM_H

#include "src/device/device.h"

struct batch;
struct host_stream;
struct item;

/* Runs calls that came in a group, and takes over their counts, also on
 * failure. */
typedef dicomm_result_t group_run_fn(struct item *items, size_t n);

struct item {
	struct dicomm_comm *comm; /* NULL: dropped */
	struct call call;
	size_t *counts; /* counts of a v-collective; freed with the item */
	struct host_stream
		*stream;        /* NULL: a blocking call, or a device stream */
	dicomm_stream_t native; /* the stream of the rank's device */
	/* Cleared when its batch has ended; NULL: no replay of a graph has
	 * begun it. */
	_Atomic bool *replay_runs;
	/* Runs all calls of its group, of which this one is not done by the
	 * engine alone; or NULL. */
	group_run_fn *run_group;
	struct operation *op;
	bool entered; /* this thread has entered its communicator */
	/* Used by the driver. batch: the unit it belongs to; parked: its
	 * operation gets no turn before it is woken; moves: batch->moves when
	 * the wait of its operation began. */
	struct batch *batch;
	bool parked;
	unsigned moves;
};

#endif
