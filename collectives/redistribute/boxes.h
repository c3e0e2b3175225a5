/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Boxes: n-dimensional intervals of a tensor that ranks hold or want, and where
 * a rank has them in memory.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_BOXES_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_BOXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

/* One box for each rank of a mesh. ERR_INVALID_ARGUMENT, logged. */
dicomm_result_t boxes_of_mesh(const dicomm_mesh_t *mesh, int axes,
			      const int64_t *shape, int first_term,
			      dicomm_box_t *boxes);

/* Check a tensor and each of its boxes by itself. ERR_INVALID_ARGUMENT; the
 * message names tensor, box, axis, interval and rank. */
dicomm_result_t boxes_check(const dicomm_tensor_t *tensors, size_t index,
			    int ranks);

/* Distance in memory, in elements, between neighbours along each axis */
void boxes_strides(const dicomm_box_t *box, int axes, int64_t *stride);
bool boxes_empty(const dicomm_box_t *box, int axes);
/* Elements of [lo, hi) */
uint64_t boxes_elements(const int64_t *lo, const int64_t *hi, int axes);
/* "[0:4, 8:16]" */
void boxes_text(const int64_t *lo, const int64_t *hi, int axes, char *text,
		size_t len);
/* "tensor 3 (layers.0.weight)" */
void boxes_name(const dicomm_tensor_t *tensors, size_t index, char *text,
		size_t len);

#endif
