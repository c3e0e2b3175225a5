/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a checked call to its run: at once, at the end of a group, or by the
 * progress thread in the order of its streams.
 */
#ifndef DICOMM_STREAM_SUBMIT_H
#define DICOMM_STREAM_SUBMIT_H

#include "src/device/device.h"

struct host_stream;

/* A call that waits to be run. */
struct item {
	struct dicomm_comm *comm; /* NULL: given up */
	struct call call;
	size_t *counts;             /* of a v-collective; freed with the item */
	struct host_stream *stream; /* NULL: blocking, or of a device */
	dicomm_stream_t native;     /* of the rank's device, if that has some */
	struct operation *op;
};

/* Is the calling thread inside a group? */
bool group_open(void);
/* In the child of a fork: what the group has collected is its parent's. */
void group_forget(void);
/* Its calls on a communicator, or a host stream, would come after an end of
 * that which comes now: say so. */
dicomm_result_t group_check_end(const void *of, const char *function);

/*
 * Run a call: blocking, or queued on its stream, or kept for the end of the
 * calling thread's group. Takes over counts (freed by free()).
 */
dicomm_result_t group_call(struct dicomm_comm *comm, const struct call *call,
			   size_t *counts, dicomm_stream_t stream);
/* The beginning of a communicator, its end, or that of another one made from
 * it: inside a group it runs at the end of that, together with the others, but
 * those of one communicator in call order. Outside it runs at once. What cannot
 * be run is given to refuse(), which may be NULL. */
dicomm_result_t group_init(const struct dicomm_comm *of,
			   dicomm_result_t (*init)(void *arg),
			   void (*refuse)(void *arg), void *arg);

/*
 * Hand items to the progress thread as one unit: it starts when it is first in
 * all its host streams and the streams of devices have come to all tickets (a
 * list), and the streams go on when it is done. Takes over the items, their
 * counts and the tickets. wait: return when it is done, with its status.
 */
dicomm_result_t stream_submit(const struct item *items, size_t n,
			      struct stream_fence *fences, bool wait);
/* Is it a host stream of this process? */
bool stream_valid(dicomm_stream_t stream);
/* Say why it is not one. */
dicomm_result_t stream_refuse(dicomm_stream_t stream, const char *function);

#endif
