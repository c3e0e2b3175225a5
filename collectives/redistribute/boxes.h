/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Boxes: n-dimensional intervals of a tensor that a rank holds or wants, and
 * where the rank has them in memory.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_BOXES_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_BOXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

/* Terms of a sum, at most. */
#define BOXES_TERMS (1 << 20)

/* Fills in one box for each rank of a mesh. Returns
 * DICOMM_ERR_INVALID_ARGUMENT, and logs the reason, if an argument is
 * invalid. */
dicomm_result_t boxes_of_mesh(const dicomm_mesh_t *mesh, int axes,
			      const int64_t *shape, int first_term,
			      dicomm_box_t *boxes);

/* Computes the distance in memory between neighbours along each axis, in
 * elements. */
void boxes_strides(const dicomm_box_t *box, int axes, int64_t *stride);
bool boxes_empty(const dicomm_box_t *box, int axes);
/* Returns the number of elements of [lo, hi). */
uint64_t boxes_elements(const int64_t *lo, const int64_t *hi, int axes);
/* Writes an interval, such as "[0:4, 8:16]". */
void boxes_text(const int64_t *lo, const int64_t *hi, int axes, char *text,
		size_t len);
/* Writes the name of a tensor, such as "tensor 3 (layers.0.weight)". */
void boxes_name(const dicomm_tensor_t *tensors, size_t index, char *text,
		size_t len);

#endif
