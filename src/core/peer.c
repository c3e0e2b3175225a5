/* SPDX-License-Identifier: BSD-3-Clause */
/* Paths to other ranks, made when the first operation needs them. */
#include <stdio.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/core/comm.h"
#include "src/core/wait.h"

dicomm_result_t comm_peer(struct dicomm_comm *comm, int rank, struct peer **out)
{
	struct peer *peer = &comm->peers[rank];
	char reasons[320] = "", why[160];
	size_t n = 0;

	*out = peer;
	if (peer->tp)
		return DICOMM_SUCCESS;
	for (size_t i = 0; i < COMM_WIRES; i++) {
		struct wire *w = &comm->wires[i];
		const struct tp_blob *address = &comm->members[rank].address[i];

		if (!w->device)
			continue;
		snprintf(why, sizeof(why), "rank %d does not use it", rank);
		if (address->len && w->transport->reaches(w->device, address,
							  why, sizeof(why))) {
			peer->rank = rank;
			TRY(w->transport->peer_open(w->device, rank, address,
						    &peer->tp));
			peer->transport = w->transport;
			peer->device = w->device;
			w->transport->limits(peer->tp, &peer->limits);
			comm->stats.connected_peers++;
			return DICOMM_SUCCESS;
		}
		if (n < sizeof(reasons))
			n += (size_t)snprintf(reasons + n, sizeof(reasons) - n,
					      "%s%s: %s", n ? "; " : "",
					      w->transport->name, why);
	}
	return FAIL(DICOMM_ERR_NO_PATH,
		    "no path from rank %d (%s) to rank %d (%s, %s): %s",
		    comm->rank, comm->device, rank, comm->members[rank].device,
		    control_where(comm->control, rank), reasons);
}

bool comm_reaches(struct dicomm_comm *comm, int rank)
{
	char why[160];

	for (size_t i = 0; i < COMM_WIRES; i++) {
		struct wire *w = &comm->wires[i];

		if (w->device &&
		    w->transport->reaches(w->device,
					  &comm->members[rank].address[i], why,
					  sizeof(why)))
			return true;
	}
	return false;
}

dicomm_result_t comm_connect_out(struct dicomm_comm *comm, struct peer *peer,
				 enum tp_class c)
{
	struct lane *lane = &peer->lane[c];
	struct waiter w = {0};
	struct tp_outbox out;
	dicomm_result_t status;
	uint64_t deadline =
		clock_ns() + (uint64_t)config_int(CONFIG_BOOTSTRAP_TIMEOUT) *
				     UINT64_C(1000000000);

	if (lane->released)
		return DICOMM_SUCCESS;
	while ((status = peer->transport->connect_out(peer->tp, c, &out)) ==
	       DICOMM_AGAIN) {
		if (fault_is(comm))
			return fault_report(comm);
		if (clock_ns() > deadline)
			return FAIL(DICOMM_ERR_TIMEOUT,
				    "connect to rank %d over %s: timed out",
				    peer->rank, peer->transport->name);
		wait_pause(comm, &w);
	}
	TRY(status);
	lane->released = out.released;
	return DICOMM_SUCCESS;
}

dicomm_result_t comm_connect_in(struct dicomm_comm *comm, struct peer *peer,
				enum tp_class c)
{
	struct lane *lane = &peer->lane[c];

	(void)comm;
	TRY(peer->transport->connect_in(peer->tp, c, &lane->in));
	/* Empty messages, which are never sent, have numbers and so credits. */
	peer->transport->release(peer->tp, c, lane->in_done);
	return DICOMM_SUCCESS;
}
