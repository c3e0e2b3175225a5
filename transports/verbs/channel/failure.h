/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue pair fails: say why; the channel goes on without it, or ends. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_FAILURE_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_FAILURE_H

#include <stdint.h>

#include "dicomm.h"

struct ibv_wc;
struct verbs_qp;

/* A request has completed with an error: one line about it. Either the queue
 * pair fails, and its channel goes on without it; or that sets channel->why and
 * text. */
void verbs_qp_completion_error(struct verbs_qp *qp, const struct ibv_wc *wc,
			       const char *operation, uint64_t bytes);
/* The same without a completion. */
void verbs_qp_fail(struct verbs_qp *qp, dicomm_result_t why, const char *what,
		   const char *hint);
/* channel->text becomes what has happened to the queue pair. */
void verbs_qp_set_text(struct verbs_qp *qp, const char *what, const char *hint);

#endif
