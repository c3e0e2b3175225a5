/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connects the two sides of a channel at its first message, and sends credits
 * that are still due. The thread of the data path calls these functions.
 */
#ifndef DICOMM_CORE_CONNECT_H
#define DICOMM_CORE_CONNECT_H

#include "src/core/comm.h"

/* Connects the sending side of a channel. Returns DICOMM_AGAIN if the peer has
 * not done its part yet: whoever wants to send tries again, and waits as for a
 * message. Returns DICOMM_ERR_ABORTED or DICOMM_ERR_REMOTE if it never will. */
dicomm_result_t comm_connect_out(struct peer *peer, enum tp_class c);
/* Connects the receiving side. Returns DICOMM_AGAIN until the peer has begun to
 * send. */
dicomm_result_t comm_connect_in(struct dicomm_comm *comm, struct peer *peer,
				enum tp_class c);
/* Sends all pending credits, polling for at most `ms` milliseconds. A transport
 * that has no room now usually has room one round trip later. If it has not,
 * something is wrong with it, and a rank that has finished does not wait for
 * that. */
void comm_tell_all(struct dicomm_comm *comm, int ms);

#endif
