/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of costs by which algorithms are selected. Rank 0 makes it, and all
 * ranks use it. */
#ifndef DICOMM_LINKS_COST_TABLE_H
#define DICOMM_LINKS_COST_TABLE_H

#include "collectives/select/select.h"

/*
 * Measures this machine, within about a millisecond, and applies DICOMM_ALGO.
 * node_ranks ranks share the cores of this machine. Fails only if DICOMM_ALGO
 * is invalid.
 */
dicomm_result_t cost_table_make(int node_ranks, uint32_t slot_bytes,
				bool deterministic, struct select_table *table);

/* On ranks that need no table of their own: fails if DICOMM_ALGO is invalid. */
dicomm_result_t cost_table_check(void);

/* Sets the costs for ranks that are in one process, on one device, and read
 * each other's buffers in slices of slice_bytes. */
void cost_table_in_process(struct select_table *table, int ranks,
			   uint32_t slice_bytes);

#endif
