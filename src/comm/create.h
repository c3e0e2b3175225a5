/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes the object of a communicator before its ranks are connected, and frees
 * it. */
#ifndef DICOMM_COMM_CREATE_H
#define DICOMM_COMM_CREATE_H

#include "src/core/comm.h"

/* Makes a communicator with the caller's settings and without peers. Logs which
 * setting is invalid, if one is. */
dicomm_result_t comm_create(struct dicomm_comm **out, int ranks, int rank,
			    const dicomm_config_t *config);
/* Closes the transports and frees everything that the communicator owns. No
 * other thread may use it. */
void comm_free(struct dicomm_comm *comm);

#endif
