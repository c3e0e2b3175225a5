/* SPDX-License-Identifier: BSD-3-Clause */
/* The table that rank 0 makes for all: what links, copies and reductions
 * cost. */
#ifndef DICOMM_CORE_INIT_H
#define DICOMM_CORE_INIT_H

#include "src/core/comm.h"

/* Measured on this machine, within about a millisecond. */
void init_table(struct dicomm_comm *comm, struct select_table *table);
/* The same for ranks of which `here` share this machine, without them. */
dicomm_result_t init_table_for(int ranks, int here, struct select_table *table);

#endif
