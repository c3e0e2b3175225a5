/* SPDX-License-Identifier: BSD-3-Clause */
/* Create a queue pair, and connect it to that of the other side. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_QP_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_QP_H

#include "dicomm.h"

struct verbs_qp;
struct verbs_qp_address;

/* In INIT, on qp->rail; `mine` becomes how the other side reaches it. */
dicomm_result_t verbs_qp_open(struct verbs_qp *qp,
			      struct verbs_qp_address *mine);
/* To RTS. If it cannot be, the channel's text says why. */
dicomm_result_t verbs_qp_connect(struct verbs_qp *qp,
				 const struct verbs_qp_address *remote);
void verbs_qp_close(struct verbs_qp *qp);

#endif
