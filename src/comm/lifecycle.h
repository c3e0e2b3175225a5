/* SPDX-License-Identifier: BSD-3-Clause */
/* From the init of a communicator to its end. */
#ifndef DICOMM_COMM_LIFECYCLE_H
#define DICOMM_COMM_LIFECYCLE_H

#include <stdint.h>

#include "dicomm.h"

struct dicomm_comm;

/*
 * How a communicator begins. All that may fail at this rank alone comes first:
 * the object, its settings, what it has from its parent if there is one
 * (was[rank]: the rank there), and the thread if it is not blocking. Then it
 * meets the others by the id, or is refused; either ends the start. A blocking
 * one ends when its parent breaks. */
struct comm_start;
dicomm_result_t comm_start_prepare(struct comm_start **out, int nranks,
				   int rank, const dicomm_config_t *config,
				   struct dicomm_comm *parent,
				   const uint32_t *was);
dicomm_result_t comm_start_join(struct comm_start *start, dicomm_comm_t *out,
				const dicomm_unique_id_t *id);
void comm_start_refuse(struct comm_start *start);

#endif
