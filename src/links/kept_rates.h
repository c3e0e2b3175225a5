/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rates that this process knows from measurements, for communicators that
 * it makes later.
 *
 * Each measurement leaves one table. A communicator takes its rates from the
 * newest table that has all of its hosts. Rates of two tables are never
 * combined, because islands show only in rates of one measurement: if no table
 * has all hosts, the communicator measures, and its table replaces those that
 * it covers.
 *
 * A host counts as the same only if its messages leave it as they did when it
 * was measured: by the same transports, adapters and address.
 *
 * Threads: any. A child of fork() begins without tables.
 */
#ifndef DICOMM_LINKS_KEPT_RATES_H
#define DICOMM_LINKS_KEPT_RATES_H

#include "src/core/comm.h"

/* The most hosts of all tables together. The oldest tables go first. */
#define KEPT_RATES_HOSTS CONTROL_RANKS_MAX

struct kept_rate {
	uint64_t host; /* links_class.host */
	struct links_pipe nic;
	/* The link of its island, and the lowest host that is in it. */
	struct links_pipe island;
	uint64_t island_of;
};

/* Keeps the rates of these links, if all hosts are identified. Without memory,
 * it keeps nothing. */
void kept_rates_add(const struct links *l);
/* Sets of[node] to the rates of these hosts. Returns false if no table has all
 * of them; of[] is undefined then. */
bool kept_rates_look(const struct links *l, struct kept_rate *of);
/* Makes links from old ones, with these rates. Returns DICOMM_ERR_NO_MEMORY if
 * there is no memory. */
dicomm_result_t kept_rates_links(const struct links *old,
				 const struct kept_rate *of,
				 struct links **out);

/* Identifies the hosts of comm->links. way[rank] is what carries the messages
 * of a rank (adapter_rates.h); the lowest rank of a host measures. Returns
 * DICOMM_ERR_NO_MEMORY if there is no memory. */
dicomm_result_t kept_rates_identify(struct dicomm_comm *comm,
				    const uint64_t *way);

/*
 * Gives comm->links the rates that are kept; *found becomes true, on all ranks
 * alike. If ranks have kept unlike rates, or some have none, all take the
 * highest ones: a rate that is too low, because others measured at the same
 * time, never shows, while operations that take longer than predicted do
 * (drift.h). *found becomes false if no rank has kept rates, or if sending them
 * would take longer than measuring. All ranks call it. Returns
 * DICOMM_ERR_NO_MEMORY, or an error of control_allgather().
 */
dicomm_result_t kept_rates_take(struct dicomm_comm *comm, bool *found);

#endif
