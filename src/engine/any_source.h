/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives without a tag from any source.
 *
 * Such a receive has no number, and so no place among those of a peer, until
 * a message is there that no earlier receive takes. Meanwhile, later receives
 * have none either: the next message of their peer may be that of the first.
 * They wait in one list, in call order.
 *
 * Threads: the data path of the communicator.
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

/* Append the operation to the list. */
dicomm_result_t any_source_post(struct operation *op);
/* SUCCESS: its source is known, and it has left the list. AGAIN: not yet. */
dicomm_result_t any_source_look(struct operation *op);
void any_source_drop(struct operation *op);

#endif
