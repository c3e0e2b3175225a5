/* SPDX-License-Identifier: BSD-3-Clause */
/* Creates a queue pair, and connects it to the peer's. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_QP_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_QP_H

#include "dicomm.h"

struct verbs_qp;
struct verbs_qp_address;

/* Create it on qp->rail. *mine is the address by which the peer reaches it. */
dicomm_result_t verbs_qp_open(struct verbs_qp *qp,
			      struct verbs_qp_address *mine);
/* Connect it. On failure, channel->text says why. */
dicomm_result_t verbs_qp_connect(struct verbs_qp *qp,
				 const struct verbs_qp_address *remote);
void verbs_qp_close(struct verbs_qp *qp);

#endif
