/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs operations, such as plans over transports.
 *
 * The collectives of a communicator run one after the other, in call order. So
 * do its sends to one peer, and its receives from one peer. All these queues
 * make progress at the same time.
 */
#ifndef DICOMM_ENGINE_ENGINE_H
#define DICOMM_ENGINE_ENGINE_H

#include "src/core/operation.h"
#include "src/engine/prepared.h"

/* The kinds of operations, apart from one_sided_kind (src/window). A receive
 * without a tag is of any_source_kind, even if the source is given. */
extern const struct operation_kind planned_kind, point_to_point_kind,
	any_source_kind, tagged_kind, local_kind;

/* Runs one blocking call. DICOMM_AGAIN: nothing has happened, since another
 * thread is inside the communicator. */
dicomm_result_t engine_call(struct dicomm_comm *comm, const struct call *call);

/* Makes an operation of a call and appends it to its queue. The caller must run
 * it afterwards. The call's arrays of counts must stay until the operation
 * ends. */
dicomm_result_t engine_prepare(struct dicomm_comm *comm,
			       const struct call *call, struct operation **out);
/* Gives one operation a turn. Returns SCHEDULE_AGAIN if it has not ended. A
 * failure breaks the communicator. */
enum schedule_result engine_turn(struct operation *op, bool *progressed);
/* Returns true if the operation cannot make progress before another one has
 * ended or has found its message. When that happens, order_wake() is called for
 * it. */
static inline bool engine_is_parked(const struct operation *op)
{
	return op->before;
}
/* Gives up an operation of a broken communicator. */
void engine_drop(struct operation *op);
/* Runs operations until all have ended or their communicators have broken, and
 * releases them. Each operation has entered its communicator, and leaves it
 * when it ends; from then on, another thread may free that communicator. */
dicomm_result_t engine_run(struct operation **ops, size_t n);
/* Leaves the communicator of a call that has ended, or that will not be run. */
void engine_leave(struct dicomm_comm *comm);
/* Puts the operation on the communicator's list of spare ones. */
void engine_release(struct operation *op);
void engine_free_spare(struct dicomm_comm *comm);

/* To be called after a poll without progress. Every now and then it checks for
 * faults, time-outs and mismatched calls of op, and returns true. `alone` means
 * that no other work needs this thread, `lends` that it lends the data path. A
 * failure becomes the fault of the communicator. */
bool engine_wait(struct waiter *w, struct operation *op, bool alone,
		 bool lends);
/* Does the same checks for an operation that waits while this thread checks
 * another one. Returns true if they were due. */
bool engine_look(struct waiter *w, struct operation *op);

#endif
