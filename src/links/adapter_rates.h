/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the adapters of the ranks say that they carry, for links between hosts
 * that nobody has described.
 */
#ifndef DICOMM_LINKS_ADAPTER_RATES_H
#define DICOMM_LINKS_ADAPTER_RATES_H

#include "src/core/comm.h"

/* Of a rank, for all others. */
struct adapter_rates {
	/* It reaches another host by a wire that does not say. */
	uint32_t unknown;
	uint32_t n;
	struct tp_adapter adapter[TP_ADAPTERS];
};

/*
 * A table made from an old one: the way of a host is all adapters that its
 * ranks use, each once; the part of each rank its own, or where they differ,
 * the least. d[rank]. *summed: of some host its first rank, who would measure
 * it (probe.h), has only a part. ERR_NO_MEMORY.
 */
dicomm_result_t adapter_rates_links(const struct links *old,
				    const struct adapter_rates *d,
				    struct links **out, bool *summed);

/*
 * Let all ranks know what the adapters of each say; if all do, make it
 * comm->links. *known: they do, and it is to be believed. All ranks call it;
 * ERR_NO_MEMORY, or who has died.
 */
dicomm_result_t adapter_rates_adopt(struct dicomm_comm *comm, bool *known);

#endif
