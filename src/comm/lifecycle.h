/* SPDX-License-Identifier: BSD-3-Clause */
/* From the init of a communicator to its end. */
#ifndef DICOMM_COMM_LIFECYCLE_H
#define DICOMM_COMM_LIFECYCLE_H

#include <stdint.h>

#include "dicomm.h"

struct dicomm_comm;

/*
 * How a communicator begins. comm_start_prepare() does all that can fail on
 * this rank alone: the object, its settings, what it inherits from a parent
 * (was[rank] is the rank there), and the helper thread if it is not blocking.
 * Then comm_start_join() meets the others by the id, or comm_start_refuse()
 * drops it; either ends the start. A blocking init ends early if its parent
 * breaks.
 */
struct comm_start;
dicomm_result_t comm_start_prepare(struct comm_start **out, int nranks,
				   int rank, const dicomm_config_t *config,
				   struct dicomm_comm *parent,
				   const uint32_t *was);
dicomm_result_t comm_start_join(struct comm_start *start, dicomm_comm_t *out,
				const dicomm_unique_id_t *id);
void comm_start_refuse(struct comm_start *start);

#endif
