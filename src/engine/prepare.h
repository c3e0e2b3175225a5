/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prepares calls and caches what it made. An operation gets its prepared call
 * here when it is queued, and puts it back when it ends. A call with equal
 * arguments finds the cached one.
 *
 * Threads: the data path of the communicator.
 */
#ifndef DICOMM_ENGINE_PREPARE_H
#define DICOMM_ENGINE_PREPARE_H

#include "src/engine/prepared.h"

/* Find or make the prepared call for one operation, and connect the channels
 * that it sends on. Errors: no memory, no path to a peer, a bad operator; the
 * reason is logged. */
dicomm_result_t prepare_get(struct dicomm_comm *comm, const struct call *call,
			    struct prepared **out);
/* The operation does not use it any more. Accepts NULL. */
void prepare_put(struct prepared *prep);
/* While the cache is too large, free the oldest that no operation uses. */
void prepare_trim(struct dicomm_comm *comm);
/* Free those with a created operator that the user destroys. */
void prepare_forget_op(struct dicomm_comm *comm, dicomm_redop_t op);
void prepare_free_all(struct dicomm_comm *comm);

#endif
