/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The addresses of a rank on all its transports, one after the other.
 *
 * Most ranks have short addresses, and there may be thousands of ranks. So all
 * ranks first gather a fixed size that suffices for most. If some rank needs
 * more, they gather the rest in a second step.
 */
#ifndef DICOMM_CORE_RANK_ADDRESS_H
#define DICOMM_CORE_RANK_ADDRESS_H

#include "src/core/member.h"
#include "transports/transport.h"

/* Stores the addresses of this rank on its open transports. */
void rank_address_fill(struct dicomm_comm *comm, struct rank_address *stored);
/* Keeps the addresses of all ranks, which have gathered their first parts: that
 * of rank r is r * stride bytes behind `first`. Gathers the rest if there is
 * any. */
dicomm_result_t rank_address_keep(struct dicomm_comm *comm,
				  const struct rank_address *first,
				  size_t stride);
/* Copies the addresses between two communicators of one process that do not use
 * the control plane for it; replaces the two functions above. */
dicomm_result_t rank_address_copy(struct dicomm_comm *from,
				  struct dicomm_comm *to);
/* Reads the address of a rank on transport `index` of transports[]. Its length
 * is 0 if the rank does not use that transport. */
void rank_address_read(const struct dicomm_comm *comm, int rank, size_t index,
		       struct tp_blob *address);

#endif
