/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of the driver that can make progress because of another operation:
 * one that was before them in their queue has ended, or one has found their
 * message.
 *
 * The thread that has the data path of an operation's communicator adds it. The
 * driver takes all of them in each pass, so it need not search for them.
 */
#ifndef DICOMM_ENGINE_WOKEN_H
#define DICOMM_ENGINE_WOKEN_H

#include "src/core/operation.h"

/* Adds an operation, unless it is not the driver's or is in the list
 * already. */
void woken_add(struct operation *op);
/* Takes the whole list and returns its oldest operation; the others follow by
 * woken_next. The caller calls woken_taken() for each one after it has read
 * woken_next. */
struct operation *woken_take(void);
void woken_taken(struct operation *op);
/* Empties the list in the child of a fork. */
void woken_forget(void);

#endif
