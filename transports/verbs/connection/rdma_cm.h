/* SPDX-License-Identifier: BSD-3-Clause */
/* Connects queue pairs by librdmacm. The caller holds verbs_lock(). */
#ifndef DICOMM_TRANSPORTS_VERBS_CONNECTION_RDMA_CM_H
#define DICOMM_TRANSPORTS_VERBS_CONNECTION_RDMA_CM_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/verbs/nic/nic.h"

struct rdma_cm_id;
struct verbs_qp_address;
struct verbs_rail;
struct verbs_qp;

/* Open the event channel. *fd is readable when verbs_rdma_cm_events() has
 * something to do. */
dicomm_result_t verbs_rdma_cm_start(int *fd);
void verbs_rdma_cm_stop(void);
void verbs_rdma_cm_reset(void); /* for the child of a fork */
void verbs_rdma_cm_events(void);
dicomm_result_t verbs_rdma_cm_listen(struct verbs_rail *rail);
void verbs_rdma_cm_address(const struct verbs_rail *rail,
			   struct verbs_qp_address *end);
dicomm_result_t verbs_rdma_cm_connect(struct verbs_qp *qp,
				      const struct verbs_qp_address *end);
void verbs_rdma_cm_close(struct rdma_cm_id *id);

#endif
