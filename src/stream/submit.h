/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a checked call to its run: at once, at the end of a group, or by the
 * progress thread in the order of its streams.
 */
#ifndef DICOMM_STREAM_SUBMIT_H
#define DICOMM_STREAM_SUBMIT_H

#include "src/device/device.h"

struct host_stream;

/* A call that waits to run */
struct item {
	struct dicomm_comm *comm; /* NULL: dropped */
	struct call call;
	size_t *counts; /* of a v-collective; freed with the item */
	struct host_stream
		*stream;        /* NULL: a blocking call, or a device stream */
	dicomm_stream_t native; /* the stream of the rank's device */
	struct operation *op;
};

/* Is the calling thread inside a group? */
bool group_open(void);
/* In the child of a fork: forget the calls of the parent's group. */
void group_forget(void);
/* The same for streams that were destroyed */
void host_stream_forget(void);
/* ERR_INVALID_USAGE, logged, if the group has calls on this communicator or
 * host stream, which is about to be destroyed before they run. */
dicomm_result_t group_check_end(const void *of, const char *function);

/*
 * Run a call: blocking, or queued on its stream, or kept until the end of the
 * calling thread's group. Takes over `counts` (released by free()).
 */
dicomm_result_t group_call(struct dicomm_comm *comm, const struct call *call,
			   size_t *counts, dicomm_stream_t stream);
/* Run the init or the end of a communicator, or the init of one made from it.
 * Outside a group it runs at once. Inside a group it runs at the end, together
 * with others; those of one communicator run in call order. If it cannot run,
 * refuse() gets the argument; it may be NULL. */
dicomm_result_t group_init(const struct dicomm_comm *of,
			   dicomm_result_t (*init)(void *arg),
			   void (*refuse)(void *arg), void *arg);

/*
 * Hand items to the progress thread as one unit. It starts when it is first in
 * all its host streams and the device streams have reached all fences. When it
 * is done, the streams continue. Takes over the items, their counts and the
 * fences. wait: return when it is done, with its status.
 */
dicomm_result_t stream_submit(const struct item *items, size_t n,
			      struct stream_fence *fences, bool wait);
/* Is it a host stream of this process? */
bool stream_valid(dicomm_stream_t stream);
/* Log why it is not one. */
dicomm_result_t stream_refuse(dicomm_stream_t stream, const char *function);

#endif
