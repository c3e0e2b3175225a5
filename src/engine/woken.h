/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of the driver that can go on for something that another operation
 * has done: it has ended and was before them, or it has found their message.
 *
 * Whoever has the data path of an operation's communicator adds it. The driver
 * takes all of them in each pass, so it need not look for them.
 */
#ifndef DICOMM_ENGINE_WOKEN_H
#define DICOMM_ENGINE_WOKEN_H

#include "src/core/operation.h"

/* Does nothing if the operation is not the driver's, or was added and not
 * taken. */
void woken_add(struct operation *op);
/* Returns the oldest one; the others follow by woken_next. Each one must be
 * marked as taken after its woken_next was read. */
struct operation *woken_take(void);
void woken_taken(struct operation *op);
/* The child of a fork has none. */
void woken_forget(void);

#endif
