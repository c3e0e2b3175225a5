/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rates of links between hosts, from what the network adapters of all ranks
 * declare. Used if no topology file describes the links.
 */
#ifndef DICOMM_LINKS_ADAPTER_RATES_H
#define DICOMM_LINKS_ADAPTER_RATES_H

#include "src/core/comm.h"

/* What one rank sends to all others. */
struct adapter_rates {
	/* True if this rank reaches another host by a transport that declares
	 * nothing. */
	uint32_t unknown;
	uint32_t n;
	struct tp_adapter adapter[TP_ADAPTERS];
	/* Hash of the transports and adapters by which this rank reaches other
	 * hosts, and of the address that it listens on. */
	uint64_t way;
};

/*
 * Makes a table of links from an old one; d[rank] are the declarations. The
 * uplink of a host is the sum of all adapters that its ranks use, each counted
 * once. The share of a rank is the sum of its own adapters; if ranks of a host
 * differ, the smallest one. *summed becomes true if, on some host, the rank
 * that would measure the uplink (probe.h) can only use a part of it. Returns
 * DICOMM_ERR_NO_MEMORY if there is no memory.
 */
dicomm_result_t adapter_rates_links(const struct links *old,
				    const struct adapter_rates *d,
				    struct links **out, bool *summed);

/*
 * Exchanges the declarations of all ranks. If all ranks declare rates, makes
 * comm->links from them. *known becomes true if, in addition, the rates are
 * plausible. way[rank] becomes adapter_rates.way of each rank. All ranks call
 * it. Returns DICOMM_ERR_NO_MEMORY, or an error of control_allgather().
 */
dicomm_result_t adapter_rates_adopt(struct dicomm_comm *comm, bool *known,
				    uint64_t *way);

#endif
