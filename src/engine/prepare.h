/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prepares calls and caches the results. An operation gets its prepared call
 * when it is queued, and returns it when it ends. A call with equal arguments
 * finds the cached one.
 *
 * The thread of the data path calls these functions.
 */
#ifndef DICOMM_ENGINE_PREPARE_H
#define DICOMM_ENGINE_PREPARE_H

#include "src/engine/prepared.h"

/* Finds or makes the prepared call for one operation, and connects the channels
 * on which it sends. Fails if there is no memory, no path to a peer, or if the
 * operator is invalid; the reason is logged. */
dicomm_result_t prepare_get(struct dicomm_comm *comm, const struct call *call,
			    struct prepared **out);
/* Releases the prepared call, which may be NULL, at the end of an operation. */
void prepare_put(struct prepared *prep);
/* While the cache is too large, frees the oldest prepared call that no
 * operation uses. */
void prepare_trim(struct dicomm_comm *comm);
/* Frees the prepared calls with a created operator that the user destroys. */
void prepare_forget_op(struct dicomm_comm *comm, dicomm_redop_t op);
void prepare_free_all(struct dicomm_comm *comm);

#endif
