/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the transport that leads to a rank; polls and flushes all
 * transports. */
#include "src/core/paths.h"

#include <stdio.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/member.h"
#include "src/core/rank_address.h"

/* Returns true if this transport leads to that rank. Otherwise writes the
 * reason to `why`. */
static bool reaches_by(struct dicomm_comm *comm, const struct comm_transport *w,
		       int rank, char *why, size_t len)
{
	struct tp_blob address;

	rank_address_read(comm, rank, (size_t)(w - comm->transports), &address);
	if (!address.len) {
		snprintf(why, len, "rank %d does not use it", rank);
		return false;
	}
	return w->transport->reaches(w->device, &address, why, len);
}

uint8_t comm_transports_to(struct dicomm_comm *comm, int rank)
{
	uint8_t mask = 0;
	char why[160];

	comm_each_transport (w, comm)
		if (reaches_by(comm, w, rank, why, sizeof(why)))
			mask |= (uint8_t)(1u << (w - comm->transports));
	return mask;
}

/* Other transports were not opened to the rank, so they do not notice that it
 * has gone. */
bool comm_is_reached(struct dicomm_comm *comm, int rank)
{
	uint8_t mask = comm->ways[rank];
	char why[160];

	return mask && reaches_by(comm, &comm->transports[__builtin_ctz(mask)],
				  rank, why, sizeof(why));
}

bool comm_has_left(struct dicomm_comm *comm, int rank)
{
	return control_gone(comm->control, rank) ||
	       (control_gone(comm->control, 0) && !comm_is_reached(comm, rank));
}

static dicomm_result_t open_peer(struct dicomm_comm *comm,
				 struct comm_transport *w, int rank,
				 struct peer *peer)
{
	struct tp_blob address;

	peer->rank = rank;
	rank_address_read(comm, rank, (size_t)(w - comm->transports), &address);
	TRY(w->transport->peer_open(w->device, rank, &address, &peer->tp));
	peer->transport = w->transport;
	peer->device = w->device;
	w->transport->limits(peer->tp, &peer->limits);
	/* Slots are host memory, so no data goes through them. */
	if (peer->by_reference)
		peer->limits.eager_bytes = 0;
	comm->stats.connected_peers++;
	return DICOMM_SUCCESS;
}

/* Writes why that transport does not lead there. Returns false if the transport
 * does not matter. */
static bool explain(struct dicomm_comm *comm, size_t i, int rank, char *why,
		    size_t len)
{
	struct comm_transport *w = &comm->transports[i];

	if (!comm_lists(comm, transports[i]->name))
		return false;
	if (*comm->why_closed[i])
		snprintf(why, len, "%s", comm->why_closed[i]);
	else if (!w->device)
		return !transports[i]->usable(why, len);
	if (!w->device)
		return true;
	if (reaches_by(comm, w, rank, why, len))
		snprintf(why, len, "not both ranks had it");
	return true;
}

dicomm_result_t comm_no_path(struct dicomm_comm *comm, int rank)
{
	char reasons[512] = "", why[160];
	size_t n = 0;

	for (size_t i = 0; transports[i]; i++)
		if (explain(comm, i, rank, why, sizeof(why)) &&
		    n < sizeof(reasons))
			n += (size_t)snprintf(reasons + n, sizeof(reasons) - n,
					      "%s%s: %s", n ? "; " : "",
					      transports[i]->name, why);
	return FAIL(DICOMM_ERR_NO_PATH,
		    "no path from rank %d (%s) to rank %d (%s, %s): %s",
		    comm->rank, comm->device, rank, comm->members[rank].device,
		    control_where(comm->control, rank), reasons);
}

dicomm_result_t comm_peer(struct dicomm_comm *comm, int rank, struct peer **out)
{
	struct peer *peer = &comm->peers[rank];

	*out = peer;
	if (peer->tp)
		return DICOMM_SUCCESS;
	if (!comm->ways[rank])
		return comm_no_path(comm, rank);
	return open_peer(comm,
			 &comm->transports[__builtin_ctz(comm->ways[rank])],
			 rank, peer);
}

/* The thread in the data path may connect to one meanwhile, by a plain store. A
 * pointer is not torn. */
__attribute__((no_sanitize("thread"))) void
comm_count_peers(const struct dicomm_comm *comm, uint64_t n[TP_TRANSPORTS])
{
	memset(n, 0, TP_TRANSPORTS * sizeof(*n));
	for (int r = 0; r < comm->ranks; r++) {
		const struct transport *const volatile *t =
			&comm->peers[r].transport;
		const struct transport *by = *t;

		for (size_t i = 0; by && transports[i]; i++)
			n[i] += transports[i] == by;
	}
}

bool comm_flush(struct dicomm_comm *comm)
{
	bool all = true;

	comm_each_transport (w, comm)
		all &= w->transport->flush(w->device);
	return all;
}

bool comm_landed(struct dicomm_comm *comm)
{
	bool all = true;

	comm_each_transport (w, comm)
		if (w->transport->delivered)
			all &= w->transport->delivered(w->device);
	return all;
}

void comm_poll(struct dicomm_comm *comm)
{
	comm_each_transport (w, comm)
		w->transport->poll(w->device);
	if (comm->service && comm->service->poll(comm))
		comm->service_moves++;
}
