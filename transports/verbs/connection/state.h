/* SPDX-License-Identifier: BSD-3-Clause */
/* A channel becomes ready, or cannot be made. With the lock. */
#ifndef DICOMM_TRANSPORTS_VERBS_CONNECTION_STATE_H
#define DICOMM_TRANSPORTS_VERBS_CONNECTION_STATE_H

#include "dicomm.h"

struct verbs_channel;
struct verbs_qp;

/* CHANNEL_FAILED, unless it is already. */
void verbs_channel_failed(struct verbs_channel *channel, dicomm_result_t why,
			  const char *text);
/* librdmacm has connected that queue pair; with the last one the channel is
 * ready. */
void verbs_qp_connected(struct verbs_qp *qp);
/* ... or could not. */
void verbs_qp_connect_failed(struct verbs_qp *qp, const char *what,
			     const char *why);

#endif
