/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator that has met nobody yet, and its end. */
#ifndef DICOMM_COMM_CREATE_H
#define DICOMM_COMM_CREATE_H

#include "src/core/comm.h"

/* An empty communicator with the caller's settings. */
dicomm_result_t comm_create(struct dicomm_comm **out, int ranks, int rank,
			    const dicomm_config_t *config);
/* Close its transports and free all that it owns, once no thread uses it. */
void comm_free(struct dicomm_comm *comm);

#endif
