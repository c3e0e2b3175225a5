/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connects the two sides of a channel at its first message, and waits until
 * peers know what this rank has received. Thread: that of the data path.
 */
#ifndef DICOMM_CORE_CONNECT_H
#define DICOMM_CORE_CONNECT_H

#include "src/core/comm.h"

/* Connect the sending side of a channel. Waits for the peer, bounded by
 * DICOMM_BOOTSTRAP_TIMEOUT. Errors: ABORTED, REMOTE if the peer left, TIMEOUT.
 */
dicomm_result_t comm_connect_out(struct dicomm_comm *comm, struct peer *peer,
				 enum tp_class c);
/* Connect the receiving side. AGAIN until the peer has begun to send. */
dicomm_result_t comm_connect_in(struct dicomm_comm *comm, struct peer *peer,
				enum tp_class c);
/* Send all pending credits, polling for at most `ms`. A transport that has no
 * room now has room one round trip later; if it does not, something is wrong
 * with it, and a rank that has finished does not wait for that. */
void comm_tell_all(struct dicomm_comm *comm, int ms);

#endif
