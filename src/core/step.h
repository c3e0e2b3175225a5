/* SPDX-License-Identifier: BSD-3-Clause */
/* One step of an operation on one slice: a message, a copy or a reduction. */
#ifndef DICOMM_CORE_STEP_H
#define DICOMM_CORE_STEP_H

#include "src/core/engine.h"

/* How the schedule of an operation is run; its context is the operation. */
extern const struct schedule_io step_io;

/* The message's bytes as memory to load from, at *src; ERR_UNSUPPORTED: they
 * have to be read. */
dicomm_result_t step_look(struct dicomm_comm *comm, struct peer *peer,
			  enum tp_class c, uint64_t seq,
			  const struct tp_line *line, const void **src);
/* Read them: IN_PROGRESS, if that is not done yet. */
dicomm_result_t step_read(struct dicomm_comm *comm, struct peer *peer,
			  enum tp_class c, uint64_t seq,
			  const struct tp_line *line, void *into);
/* Room for a message that must be read, but not to its final place; NULL in
 * *out if all of it is in use. Free when its op is NULL. */
dicomm_result_t step_bounce(struct dicomm_comm *comm, struct bounce **out);
/* Give back what slices that will not finish have taken. */
void step_forget(struct operation *op);
/* Break the communicator of an operation that cannot go on. */
enum schedule_result step_fail(struct operation *op, dicomm_result_t status,
			       int peer);

#endif
