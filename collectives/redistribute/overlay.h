/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The overlay of the source and target boxes of one tensor: cells, between
 * whose neighbours the set of ranks that hold or want the elements changes.
 *
 * Boxes that are equal make one class, so a replicated tensor has few classes
 * on many ranks. An axis is swept from cut point to cut point, and the next
 * axis is swept within each interval by the classes that cover it.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_OVERLAY_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_OVERLAY_H

#include "collectives/redistribute/boxes.h"

struct overlay_holder {
	int rank;
	uint32_t box; /* index in the source or target of the tensor */
};

struct overlay_class {
	const dicomm_box_t *box; /* one of them */
	bool target;
	uint32_t first, n; /* in holders, by rank */
};

struct overlay {
	const dicomm_tensor_t *tensor;
	struct overlay_class *classes;
	uint32_t nclasses;
	struct overlay_holder *holders;
	int64_t *room; /* for the sweep */
};

struct overlay_cell {
	int64_t lo[DICOMM_AXES], hi[DICOMM_AXES];
	/* Classes that cover it: of sources by term, then of targets */
	const uint32_t *covers;
	uint32_t sources, targets;
};

/* Of a tensor that boxes_check() has accepted. ERR_NO_MEMORY. */
dicomm_result_t overlay_make(struct overlay *o, const dicomm_tensor_t *tensor);
void overlay_free(struct overlay *o);

/* Call fn for each cell in the same order on all ranks, also for cells that no
 * box covers; stop at the first status that is not SUCCESS. */
typedef dicomm_result_t overlay_fn(void *ctx, const struct overlay *o,
				   const struct overlay_cell *cell);
dicomm_result_t overlay_walk(const struct overlay *o, overlay_fn *fn,
			     void *ctx);

/* Does every target find each term, and, unless `unwanted`, every element a
 * target? ERR_INVALID_ARGUMENT; the message names tensor, axis, interval and
 * ranks. */
dicomm_result_t overlay_check(const dicomm_tensor_t *tensors, size_t index,
			      const struct overlay *o,
			      const struct overlay_cell *cell, bool unwanted);

#endif
