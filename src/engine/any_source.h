/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives without a tag from any source.
 *
 * Such a receive has no number, and so no place among the receives from a peer,
 * until a message is there that no earlier receive takes. Until then, later
 * receives have no number either, because the next message of their peer may be
 * for this one. All of them wait in one list, in call order.
 *
 * The thread of the data path calls these functions.
 */
#ifndef DICOMM_ENGINE_ANY_SOURCE_H
#define DICOMM_ENGINE_ANY_SOURCE_H

#include "src/core/comm.h"
#include "src/core/operation.h"

static inline bool any_source_holds(const struct dicomm_comm *comm,
				    const struct call *call)
{
	return call->coll == COLL_RECV && (call->root < 0 || comm->unbound);
}

/* Appends the operation to the list. */
dicomm_result_t any_source_post(struct operation *op);
/* Returns DICOMM_SUCCESS if the source of the operation is known; the operation
 * has left the list then. Returns DICOMM_AGAIN if it is not known yet. */
dicomm_result_t any_source_look(struct operation *op);
void any_source_drop(struct operation *op);

#endif
