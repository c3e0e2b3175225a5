/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which transport leads to which rank, and what is done on all open transports
 * at once. All of it belongs to the thread of the data path.
 */
#ifndef DICOMM_CORE_PATHS_H
#define DICOMM_CORE_PATHS_H

#include "src/core/comm.h"

/* Set up the path to a peer, at the first operation that needs it. */
dicomm_result_t comm_peer(struct dicomm_comm *comm, int rank,
			  struct peer **out);
/* Will that rank never come? Without rank 0 nobody tells us; then what the wire
 * to it sees has to do. */
bool comm_has_left(struct dicomm_comm *comm, int rank);
/* The wires by which this rank reaches it, as far as open: bit i is wire i. */
uint8_t comm_transports_to(struct dicomm_comm *comm, int rank);
/* Let all open transports progress. */
void comm_poll(struct dicomm_comm *comm);
/* Tell all peers what was released: this rank may not call for a while. False:
 * not all could be told; poll, and call again. */
bool comm_flush(struct dicomm_comm *comm);
/* Is all there that was told? False: poll, and ask again. */
bool comm_landed(struct dicomm_comm *comm);

#endif
