/* SPDX-License-Identifier: BSD-3-Clause */
/* Creates a communicator before its ranks meet, and frees it. */
#ifndef DICOMM_COMM_CREATE_H
#define DICOMM_COMM_CREATE_H

#include "src/core/comm.h"

/* A communicator with the caller's settings and no peers yet. The error names a
 * bad setting. */
dicomm_result_t comm_create(struct dicomm_comm **out, int ranks, int rank,
			    const dicomm_config_t *config);
/* Close its transports and free all that it owns. No thread uses it any more.
 */
void comm_free(struct dicomm_comm *comm);

#endif
