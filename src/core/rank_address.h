/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The addresses of a rank on all its transports, one after the other.
 *
 * Most ranks have short addresses, and there may be thousands of ranks. So all
 * ranks first gather a fixed size that suffices for most. If some rank has
 * more, they gather the rest in a second step.
 */
#ifndef DICOMM_CORE_RANK_ADDRESS_H
#define DICOMM_CORE_RANK_ADDRESS_H

#include "src/core/member.h"
#include "transports/transport.h"

/* Fill in the addresses of this rank's open transports. */
void rank_address_fill(struct dicomm_comm *comm, struct rank_address *stored);
/* After all members have gathered the first part: gather the rest. */
dicomm_result_t rank_address_complete(struct dicomm_comm *comm);
/* Instead of both, for two communicators of one process that do not meet: copy
 * the addresses. */
dicomm_result_t rank_address_copy(struct dicomm_comm *from,
				  struct dicomm_comm *to);
/* The address of a rank on transport `index` of transports[]. Its length is 0
 * if the rank does not use that transport. */
void rank_address_read(const struct dicomm_comm *comm, int rank, size_t index,
		       struct tp_blob *address);

#endif
