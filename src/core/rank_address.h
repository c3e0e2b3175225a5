/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a rank is reached: the addresses of all its wires, one after the other.
 *
 * Most are short, and there may be thousands of them: so all ranks gather what
 * most need, and the rest only where some rank has more.
 */
#ifndef DICOMM_CORE_RANK_ADDRESS_H
#define DICOMM_CORE_RANK_ADDRESS_H

#include "src/core/member.h"
#include "transports/transport.h"

/* This rank's, by the wires that it has open. */
void rank_address_fill(struct dicomm_comm *comm, struct rank_address *stored);
/* Once all members have theirs: gather what was cut off. */
dicomm_result_t rank_address_complete(struct dicomm_comm *comm);
/* In place of both, in another communicator that does not meet. */
dicomm_result_t rank_address_copy(struct dicomm_comm *from,
				  struct dicomm_comm *to);
/* The address of a rank by a wire, as in transports[]; of no bytes, if the rank
 * does not use it. */
void rank_address_read(const struct dicomm_comm *comm, int rank, size_t index,
		       struct tp_blob *address);

#endif
