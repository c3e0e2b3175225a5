/* SPDX-License-Identifier: BSD-3-Clause */
/* The table by which algorithms are selected: rank 0 makes it, all use it. */
#ifndef DICOMM_LINKS_COST_TABLE_H
#define DICOMM_LINKS_COST_TABLE_H

#include "collectives/select/select.h"

/*
 * What this machine can do, measured within about a millisecond, and what the
 * user decided. node_ranks share the cores of this machine. Fails only on a
 * bad DICOMM_ALGO.
 */
dicomm_result_t cost_table_make(int node_ranks, uint32_t slot_bytes,
				bool deterministic, struct select_table *table);

/* All ranks are of one process and on one device, and read each other's buffers
 * in slices of so many bytes. */
void cost_table_in_process(struct select_table *table, int ranks,
			   uint32_t slice_bytes);

#endif
