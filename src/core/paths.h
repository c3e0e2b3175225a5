/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which transport leads to which rank, and functions for all open transports at
 * once. The thread of the data path calls them.
 */
#ifndef DICOMM_CORE_PATHS_H
#define DICOMM_CORE_PATHS_H

#include "src/core/comm.h"

/* Log why no transport leads to that rank; ERR_NO_PATH. */
dicomm_result_t comm_no_path(struct dicomm_comm *comm, int rank);
/* Opens the transport to a peer, when the first operation needs it. Returns
 * DICOMM_ERR_NO_PATH, and logs the reason, if no transport leads there. */
dicomm_result_t comm_peer(struct dicomm_comm *comm, int rank,
			  struct peer **out);
/* Returns true if that rank has left or died. The control plane knows that. If
 * rank 0, which hosts the control plane, has gone, the transport decides. */
bool comm_has_left(struct dicomm_comm *comm, int rank);
/* Returns true if the transport to that rank still leads there: as far as it
 * knows, the rank has not ended, closed or aborted. */
bool comm_is_reached(struct dicomm_comm *comm, int rank);
/* Returns the open transports by which this rank reaches that one; bit i is
 * transport i. */
uint8_t comm_transports_to(struct dicomm_comm *comm, int rank);
/* Counts the peers that transport i connects. Any thread. */
void comm_count_peers(const struct dicomm_comm *comm,
		      uint64_t n[TP_TRANSPORTS]);
/* Polls all open transports once, and serves windows. */
void comm_poll(struct dicomm_comm *comm);
/* Sends all pending credits, because this rank may not call again for a while.
 * Returns false if a transport had no room; poll and call again. */
bool comm_flush(struct dicomm_comm *comm);
/* Returns true if all credits have arrived at the peers. Otherwise poll and ask
 * again. */
bool comm_landed(struct dicomm_comm *comm);

#endif
