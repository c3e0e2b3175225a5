/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/message/headed.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/core/paths.h"

dicomm_result_t headed_connect(struct dicomm_comm *comm, int rank,
			       enum tp_class c, struct headed_places *h)
{
	struct tp_limits limits;
	struct peer *peer;
	dicomm_result_t status;

	if (h->at)
		return DICOMM_SUCCESS;
	TRY(comm_peer(comm, rank, &peer));
	/* Heads go in slots also where bytes must not. */
	peer->transport->limits(peer->tp, &limits);
	if (limits.eager_bytes <= HEADED_BYTES ||
	    (peer->by_reference && c == TP_TAGGED))
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "rank %d: %s has no %s there", rank,
			    peer->transport->name,
			    c == TP_TAGGED ? "messages with a tag" : "windows");
	h->eager = limits.eager_bytes - HEADED_BYTES < HEADED_EAGER
			   ? limits.eager_bytes - HEADED_BYTES
			   : HEADED_EAGER;
	if (peer->by_reference)
		h->eager = 0;
	h->mask = peer->limits.slots - 1;
	h->at = malloc((size_t)peer->limits.slots * HEADED_STRIDE);
	if (!h->at)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "no memory for messages to rank %d", rank);
	status = channel_connect_out(peer, c);
	return status == DICOMM_AGAIN ? DICOMM_SUCCESS : status;
}
