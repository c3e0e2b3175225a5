/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a rank is reached: the addresses of all its wires, one after the other.
 *
 * Most are short, and there may be thousands of them: so all ranks gather what
 * most need, and the rest only where some rank has more.
 */
#ifndef DICOMM_CORE_CARD_H
#define DICOMM_CORE_CARD_H

#include "dicomm.h"
#include "transports/transport.h"

struct card {
	uint32_t len; /* of the whole */
	uint8_t begin[508];
};

/* This rank's, by the wires that it has open. */
void card_fill(struct dicomm_comm *comm, struct card *card);
/* Once all members have theirs: gather what was cut off. */
dicomm_result_t card_complete(struct dicomm_comm *comm);
/* In place of both, in another communicator that does not meet. */
dicomm_result_t card_give(struct dicomm_comm *from, struct dicomm_comm *to);
/* The address of a rank by a wire, as in transports[]; of no bytes, if the rank
 * does not use it. */
void card_read(const struct dicomm_comm *comm, int rank, size_t wire,
	       struct tp_blob *address);

#endif
