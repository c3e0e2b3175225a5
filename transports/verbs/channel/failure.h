/* SPDX-License-Identifier: BSD-3-Clause */
/* Failure of a queue pair: reports the cause. Then the channel uses its other
 * queue pairs, or fails. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_FAILURE_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_FAILURE_H

#include <stdint.h>

#include "dicomm.h"

struct ibv_wc;
struct verbs_channel;
struct verbs_qp;

/* A request has completed with an error. Either the queue pair becomes
 * QP_FAILED and its channel uses the others, or the channel fails. Logs one
 * line. */
void verbs_qp_completion_error(struct verbs_qp *qp, const struct ibv_wc *wc,
			       const char *operation, uint64_t bytes);
/* The queue pair has failed without such a completion. Does the same; `why`
 * becomes the status of the channel if the channel fails. */
void verbs_qp_fail(struct verbs_qp *qp, dicomm_result_t why, const char *what,
		   const char *hint);
/* Set channel->text to a description of what has happened to the queue pair,
 * and a hint. */
void verbs_qp_set_text(struct verbs_qp *qp, const char *what, const char *hint);
/* Set a channel that could not be made to CHANNEL_FAILED, unless it has failed
 * before. The caller holds verbs_lock(). */
void verbs_channel_failed(struct verbs_channel *channel, dicomm_result_t why,
			  const char *text);

#endif
