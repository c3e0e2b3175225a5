/* SPDX-License-Identifier: BSD-3-Clause */
/* Mapping the memory of a rank of this machine; memory_ref.h says what for. */
#ifndef DICOMM_DEVICE_NEIGHBOUR_H
#define DICOMM_DEVICE_NEIGHBOUR_H

#include "src/core/comm.h"

/* Reach the memory of a neighbour; its board is NULL where it is no host. The
 * reason is logged. */
dicomm_result_t neighbour_open(struct dicomm_comm *comm, int rank,
			       const struct accel_export *board);
void neighbour_close(struct dicomm_comm *comm, int rank);

/* Is it memory that each neighbour reaches which must have no staging? */
dicomm_result_t neighbour_check(const struct dicomm_comm *comm, const char *f,
				const char *name, const void *at, size_t bytes);

/* Pin and map what neighbours have allocated or offered meanwhile, and let go
 * of the rest, unless a stream is held. */
void neighbour_refresh(struct dicomm_comm *comm);

#endif
