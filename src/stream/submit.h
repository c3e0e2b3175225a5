/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a checked call: at once, at the end of a group, or in the order of its
 * streams.
 */
#ifndef DICOMM_STREAM_SUBMIT_H
#define DICOMM_STREAM_SUBMIT_H

#include "src/stream/item.h"

/* Returns true if the calling thread is inside a group. */
bool group_open(void);
/* Forget the calls of the parent's group, in the child of a fork. */
void group_forget(void);
/* Returns true if the group of the calling thread has calls on this
 * communicator or host stream. */
bool group_has(const void *of);
/* Fails with ERR_INVALID_USAGE, logged, if the group has calls on this
 * communicator or host stream, which is about to be destroyed. Those calls
 * would run after its end. */
dicomm_result_t group_check_end(const void *of, const char *function);

/*
 * Run a call: blocking, or queued on its stream, or kept until the end of the
 * calling thread's group. Takes over `counts`, and releases it with free().
 */
dicomm_result_t group_call(struct dicomm_comm *comm, const struct call *call,
			   size_t *counts, dicomm_stream_t stream);
/* Keep a call in the thread's group, all of which `run` is to run. Takes over
 * `counts`. */
dicomm_result_t group_keep(struct dicomm_comm *comm, const struct call *call,
			   size_t *counts, dicomm_stream_t stream,
			   group_run_fn *run);
/* Runs this work before the calls of the thread's group, which all belong to
 * one communicator of a host rank. */
void group_before(const struct local_work *work);
/* Run the init or the end of a communicator, or the init of one made from it.
 * Outside a group it runs at once. Inside a group it runs at the group's end,
 * at the same time as those of other communicators; those of one communicator
 * run in call order. If it cannot run, refuse() gets the argument. refuse may
 * be NULL. */
dicomm_result_t group_init(const struct dicomm_comm *of,
			   dicomm_result_t (*init)(void *arg),
			   void (*refuse)(void *arg), void *arg);

/*
 * Queue items as one unit. They start when the unit is
 * first in all of its host streams and the device streams have reached all
 * fences, after `before`, which may be NULL (group_before()). When all are
 * done, the streams continue. Takes over the fences, and
 * the counts of the items, also on failure. With `wait`, returns when all are
 * done, with their status.
 */
dicomm_result_t stream_submit(const struct item *items, size_t n,
			      struct stream_fence *fences,
			      const struct local_work *before, bool wait);
struct dicomm_request;
/* Complete the request when what was queued last on the stream has ended, at
 * once if nothing is queued. */
void stream_attach(dicomm_stream_t stream, struct dicomm_request *r);
/* Returns true if this is a host stream of this process. */
bool stream_valid(dicomm_stream_t stream);
/* Log why this is no host stream of this process, and return the error. */
dicomm_result_t stream_refuse(dicomm_stream_t stream, const char *function);
/* Checks that this rank can use the stream. A stream of a device is checked by
 * its runtime when the call is queued. */
static inline dicomm_result_t stream_check(dicomm_stream_t stream,
					   const struct dicomm_comm *comm,
					   const char *function)
{
	if (__builtin_expect(stream && !comm->dev && !stream_valid(stream), 0))
		return stream_refuse(stream, function);
	return DICOMM_SUCCESS;
}

#endif
