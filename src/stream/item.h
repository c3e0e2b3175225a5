/* SPDX-License-Identifier: BSD-3-Clause */
/* A call that waits to run. */
#ifndef DICOMM_STREAM_ITEM_H
#define DICOMM_STREAM_ITEM_H

#include "src/device/device.h"

struct batch;
struct host_stream;

struct item {
	struct dicomm_comm *comm; /* NULL: dropped */
	struct call call;
	size_t *counts; /* counts of a v-collective; freed with the item */
	struct host_stream
		*stream;        /* NULL: a blocking call, or a device stream */
	dicomm_stream_t native; /* the stream of the rank's device */
	struct operation *op;
	bool entered; /* its communicator, by this thread */
	/* Used by the driver: the unit it belongs to; its operation cannot move
	 * before it is woken; how often the unit had moved when the wait of its
	 * operation began. */
	struct batch *batch;
	bool parked;
	unsigned moves;
};

#endif
