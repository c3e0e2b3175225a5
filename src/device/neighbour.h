/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps the memory of a rank of this machine, for the references of
 * memory_ref.h. */
#ifndef DICOMM_DEVICE_NEIGHBOUR_H
#define DICOMM_DEVICE_NEIGHBOUR_H

#include "src/core/comm.h"

/* Map the memory of a neighbour. `board` is the neighbour's list of host
 * memory, or NULL if it is no host rank. A failure is logged with its
 * reason. */
dicomm_result_t neighbour_open(struct dicomm_comm *comm, int rank,
			       const struct accel_export *board);
void neighbour_close(struct dicomm_comm *comm, int rank);
void neighbour_close_all(struct dicomm_comm *comm);

/* Check whether each neighbour that refuses staging can reach this memory. If
 * one cannot, the reason is logged. f and name are the function and the
 * argument for the message. */
dicomm_result_t neighbour_check(const struct dicomm_comm *comm, const char *f,
				const char *name, const void *at, size_t bytes);

/* Map what neighbours have allocated or offered since the last call, and unmap
 * what they have withdrawn. Does nothing while a stream is blocked. */
void neighbour_refresh(struct dicomm_comm *comm);

#endif
