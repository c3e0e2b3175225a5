/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The overlay of the source and target boxes of one tensor. It consists of
 * cells: within a cell, all elements are held by the same ranks and wanted by
 * the same ranks.
 *
 * Equal boxes form one class, so a replicated tensor has few classes on many
 * ranks. An axis is swept from one cut point to the next. Within each interval,
 * the next axis is swept for the classes that cover the interval.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_OVERLAY_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_OVERLAY_H

#include "collectives/redistribute/boxes.h"

struct overlay_holder {
	int rank;
	uint32_t box; /* index in the source or target boxes of the tensor */
};

struct overlay_class {
	const dicomm_box_t *box; /* any of its boxes */
	bool target;
	uint32_t first, n; /* in holders, sorted by rank */
};

struct overlay {
	const dicomm_tensor_t *tensor;
	struct overlay_class *classes;
	uint32_t nclasses;
	struct overlay_holder *holders;
	int64_t *room; /* owned; memory for the sweep */
};

struct overlay_cell {
	int64_t lo[DICOMM_AXES], hi[DICOMM_AXES];
	/* The classes that cover the cell: sources, sorted by term, then
	 * targets. */
	const uint32_t *covers;
	uint32_t sources, targets;
};

/* Makes the overlay of a tensor that check_tensor() has accepted. Returns
 * DICOMM_ERR_NO_MEMORY if there is no memory. */
dicomm_result_t overlay_make(struct overlay *o, const dicomm_tensor_t *tensor);
void overlay_free(struct overlay *o);

/* Calls fn for each cell, in the same order on all ranks, also for cells that
 * no box covers. Stops at the first status that is not DICOMM_SUCCESS, and
 * returns it. */
typedef dicomm_result_t overlay_fn(void *ctx, const struct overlay *o,
				   const struct overlay_cell *cell);
dicomm_result_t overlay_walk(const struct overlay *o, overlay_fn *fn,
			     void *ctx);

/* Checks that every term of a wanted cell is on some rank. Unless `unwanted`,
 * also checks that some rank wants the cell. Returns
 * DICOMM_ERR_INVALID_ARGUMENT if not; the message names tensor, axis, interval
 * and ranks. */
dicomm_result_t overlay_check(const dicomm_tensor_t *tensors, size_t index,
			      const struct overlay *o,
			      const struct overlay_cell *cell, bool unwanted);

#endif
