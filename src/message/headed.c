/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/message/headed.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/core/paths.h"

dicomm_result_t headed_connect(struct dicomm_comm *comm, int rank,
			       enum tp_class c, struct headed_places *h)
{
	struct peer *peer;
	dicomm_result_t status;

	if (h->at)
		return DICOMM_SUCCESS;
	TRY(comm_peer(comm, rank, &peer));
	if (peer->limits.eager_bytes <= HEADED_BYTES)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "rank %d: %s has no messages with a tag and no "
			    "windows there",
			    rank, peer->transport->name);
	h->eager = peer->limits.eager_bytes - HEADED_BYTES < HEADED_EAGER
			   ? (uint32_t)peer->limits.eager_bytes - HEADED_BYTES
			   : HEADED_EAGER;
	h->mask = peer->limits.slots - 1;
	h->at = malloc((size_t)peer->limits.slots * HEADED_STRIDE);
	if (!h->at)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "no memory for messages to rank %d", rank);
	status = channel_connect_out(peer, c);
	return status == DICOMM_AGAIN ? DICOMM_SUCCESS : status;
}
