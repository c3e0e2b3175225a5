/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rates of links between hosts, from what the network adapters of all ranks
 * declare. Used if no topology file describes the links.
 */
#ifndef DICOMM_LINKS_ADAPTER_RATES_H
#define DICOMM_LINKS_ADAPTER_RATES_H

#include "src/core/comm.h"

/* What one rank tells all others */
struct adapter_rates {
	/* It reaches another host by a transport that declares nothing. */
	uint32_t unknown;
	uint32_t n;
	struct tp_adapter adapter[TP_ADAPTERS];
};

/*
 * Make a table from an old one. The uplink of a host is the sum of all adapters
 * that its ranks use, each counted once. The share of a rank is its own
 * adapters, or, where ranks differ, the smallest. d[rank]. *summed: on some
 * host, the rank that would measure the uplink (probe.h) has only a part of it.
 * ERR_NO_MEMORY.
 */
dicomm_result_t adapter_rates_links(const struct links *old,
				    const struct adapter_rates *d,
				    struct links **out, bool *summed);

/*
 * Exchange the declarations of all ranks; if all declare rates, make
 * comm->links from them. *known: they did, and the rates are plausible. All
 * ranks call it. Errors: NO_MEMORY, REMOTE.
 */
dicomm_result_t adapter_rates_adopt(struct dicomm_comm *comm, bool *known);

#endif
