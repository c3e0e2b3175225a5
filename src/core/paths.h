/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which transport leads to which rank, and what is done on all open transports
 * at once. All of it belongs to the thread of the data path.
 */
#ifndef DICOMM_CORE_PATHS_H
#define DICOMM_CORE_PATHS_H

#include "src/core/comm.h"

/* Open the transport to a peer, when the first operation needs it. ERR_NO_PATH
 * if no transport leads there; the reason is logged. */
dicomm_result_t comm_peer(struct dicomm_comm *comm, int rank,
			  struct peer **out);
/* Has that rank left or died? The control plane says so; if rank 0, which
 * hosts it, has gone, the transport decides. */
bool comm_has_left(struct dicomm_comm *comm, int rank);
/* The open transports by which this rank reaches that one. Bit i: transport i.
 */
uint8_t comm_transports_to(struct dicomm_comm *comm, int rank);
/* Let all open transports progress. */
void comm_poll(struct dicomm_comm *comm);
/* Send all pending credits, because this rank may not call again for a while.
 * False: some transport had no room; poll and call again. */
bool comm_flush(struct dicomm_comm *comm);
/* Have all credits arrived at the peers? False: poll and ask again. */
bool comm_landed(struct dicomm_comm *comm);

#endif
