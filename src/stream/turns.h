/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which of the queued operations get a turn. A pass takes the same time however
 * many are queued.
 *
 * An operation may move once its batch is first in its streams. While it is
 * behind others of its own queue, it is parked: it gets no turn until it is
 * woken (src/engine/order.h). All others are in one of two lists. A few are
 * hot: the latest to come, to be woken or to move. They get a turn in each
 * pass. The others are cold: in each pass some of them get a turn, one after
 * the other. A cold one that moves is hot again.
 *
 * Used by the driver only, except for turns_on_devices.
 */
#ifndef DICOMM_STREAM_TURNS_H
#define DICOMM_STREAM_TURNS_H

#include <stdbool.h>
#include <stdatomic.h>

struct batch;
struct operation;

/* Number of batches of devices that are queued. Only the progress thread drives
 * while there are any. */
extern _Atomic unsigned turns_on_devices;

/* Append batches, in the order of their calls; `end` points to the last
 * `next`. */
void turns_append(struct batch *first, struct batch **end);
/* Is any batch left? */
bool turns_left(void);
/* Give turns. Returns true if something moved and no broken communicator is
 * still in use by another thread. Otherwise *idle is the operation to wait for,
 * or NULL: the one that has waited for the shortest time, because its peer may
 * answer soon. */
bool turns_give(struct operation **idle);
/* Wait a little for the operation; every now and then check for late ranks.
 * Needs the data path. */
void turns_wait(struct operation *op);
/* Check for late ranks in one of the operations that had the latest turns. */
void turns_look(void);
/* Forget all batches, in the child of a fork. */
void turns_forget(void);

#endif
