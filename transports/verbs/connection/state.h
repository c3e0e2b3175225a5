/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of making a channel: it becomes ready, or fails. The caller
 * holds verbs_lock(). */
#ifndef DICOMM_TRANSPORTS_VERBS_CONNECTION_STATE_H
#define DICOMM_TRANSPORTS_VERBS_CONNECTION_STATE_H

#include "dicomm.h"

struct verbs_channel;
struct verbs_qp;

/* Set the channel to CHANNEL_FAILED, unless it has failed before. */
void verbs_channel_failed(struct verbs_channel *channel, dicomm_result_t why,
			  const char *text);
/* librdmacm has connected that queue pair. After the last one the channel
 * is ready. */
void verbs_qp_connected(struct verbs_qp *qp);
/* librdmacm could not connect the queue pair: the channel fails. */
void verbs_qp_connect_failed(struct verbs_qp *qp, const char *what,
			     const char *why);

#endif
