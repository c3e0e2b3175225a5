/* SPDX-License-Identifier: BSD-3-Clause */
/* One step of an operation on one slice: a message, a copy or a reduction. */
#ifndef DICOMM_CORE_STEP_H
#define DICOMM_CORE_STEP_H

#include "src/core/engine.h"

/* How the schedule of an operation is run; its context is the operation. */
extern const struct schedule_io step_io;

/* The message's bytes as memory to load from. A reference that cannot be
 * mapped is read into `into`, or if that is NULL into the operation's own
 * buffer. */
dicomm_result_t step_fetch(struct operation *op, struct peer *peer,
			   uint64_t seq, const struct tp_line *line, void *into,
			   const void **src);
/* Break the communicator of an operation that cannot go on. */
enum schedule_result step_fail(struct operation *op, dicomm_result_t status,
			       int peer);

#endif
