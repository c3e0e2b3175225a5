/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a communicator, from its initialization to its end. */
#ifndef DICOMM_COMM_LIFECYCLE_H
#define DICOMM_COMM_LIFECYCLE_H

#include <stdint.h>

#include "dicomm.h"

struct dicomm_comm;

/*
 * How a communicator begins. comm_start_prepare() does everything that can fail
 * on this rank alone: it makes the object with its settings, takes over what
 * the parent passes on (was[rank] is the rank in the parent), and starts the
 * helper thread if the initialization is non-blocking. If `was` is NULL,
 * nothing is passed on. Then either comm_start_join() connects to the other
 * ranks by the id, or comm_start_refuse() drops the communicator; each of them
 * ends the start. A blocking initialization ends early if its parent breaks.
 */
struct comm_start;
dicomm_result_t comm_start_prepare(struct comm_start **out, int nranks,
				   int rank, const dicomm_config_t *config,
				   struct dicomm_comm *parent,
				   const uint32_t *was);
/* Returns the time that the other ranks have to come, in milliseconds; 0: no
 * limit. */
int comm_start_patience(const struct comm_start *start);
dicomm_result_t comm_start_join(struct comm_start *start, dicomm_comm_t *out,
				const dicomm_unique_id_t *id);
void comm_start_refuse(struct comm_start *start);

#endif
