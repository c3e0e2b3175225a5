/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps the memory of a rank of this machine; memory_ref.h says what for. */
#ifndef DICOMM_DEVICE_NEIGHBOUR_H
#define DICOMM_DEVICE_NEIGHBOUR_H

#include "src/core/comm.h"

/* Map the memory of a neighbour. `board` is NULL if it is no host rank. The
 * reason of a failure is logged. */
dicomm_result_t neighbour_open(struct dicomm_comm *comm, int rank,
			       const struct accel_export *board);
void neighbour_close(struct dicomm_comm *comm, int rank);

/* Can each neighbour that refuses staging reach this memory? If not, the reason
 * is logged. */
dicomm_result_t neighbour_check(const struct dicomm_comm *comm, const char *f,
				const char *name, const void *at, size_t bytes);

/* Map what neighbours have allocated or offered since, and unmap the rest,
 * unless a stream is blocked. */
void neighbour_refresh(struct dicomm_comm *comm);

#endif
