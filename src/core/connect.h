/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connects the two sides of a channel at its first message, and waits until
 * peers know what this rank has received. Thread: that of the data path.
 */
#ifndef DICOMM_CORE_CONNECT_H
#define DICOMM_CORE_CONNECT_H

#include "src/core/comm.h"

/* Connect the sending side of a lane. */
dicomm_result_t comm_connect_out(struct dicomm_comm *comm, struct peer *peer,
				 enum tp_class c);
/* AGAIN until the peer has begun to send. */
dicomm_result_t comm_connect_in(struct dicomm_comm *comm, struct peer *peer,
				enum tp_class c);
/* The same, and poll until all is told, for at most so long. What a wire has no
 * room for now it has room for a trip later; or else something is wrong with
 * it, which is not for who is done to wait for. */
void comm_tell_all(struct dicomm_comm *comm, int ms);

#endif
