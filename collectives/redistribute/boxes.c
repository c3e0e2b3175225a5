/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes boxes from meshes with placements. */
#include "collectives/redistribute/boxes.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"

#define BAD(...) FAIL(DICOMM_ERR_INVALID_ARGUMENT, __VA_ARGS__)

bool boxes_empty(const dicomm_box_t *box, int axes)
{
	for (int a = 0; a < axes; a++)
		if (box->lo[a] >= box->hi[a])
			return true;
	return false;
}

uint64_t boxes_elements(const int64_t *lo, const int64_t *hi, int axes)
{
	uint64_t n = 1;

	for (int a = 0; a < axes; a++)
		n *= (uint64_t)(hi[a] - lo[a]);
	return n;
}

void boxes_strides(const dicomm_box_t *box, int axes, int64_t *stride)
{
	bool given = false;
	int64_t dense = 1;

	for (int a = 0; a < axes; a++)
		given |= box->stride[a] != 0;
	for (int a = axes - 1; a >= 0; a--) {
		stride[a] = given ? box->stride[a] : dense;
		dense *= box->hi[a] - box->lo[a];
	}
}

void boxes_text(const int64_t *lo, const int64_t *hi, int axes, char *text,
		size_t len)
{
	int n = snprintf(text, len, "[");

	for (int a = 0; a < axes && n >= 0 && (size_t)n < len; a++)
		n += snprintf(text + n, len - (size_t)n,
			      "%s%" PRId64 ":%" PRId64, a ? ", " : "", lo[a],
			      hi[a]);
	if (n >= 0 && (size_t)n < len)
		snprintf(text + n, len - (size_t)n, "]");
}

void boxes_name(const dicomm_tensor_t *tensors, size_t index, char *text,
		size_t len)
{
	if (tensors[index].name)
		snprintf(text, len, "tensor %zu (%s)", index,
			 tensors[index].name);
	else
		snprintf(text, len, "tensor %zu", index);
}

/* ---- meshes ---- */

/* Narrows [lo, hi) to part i of `parts` even ones. Like torch.chunk(), so the
 * last parts may be shorter or empty. */
static void even_part(int64_t *lo, int64_t *hi, int64_t i, int64_t parts)
{
	int64_t n = *hi - *lo, each = n / parts + (n % parts != 0);
	int64_t first = each && i <= n / each ? i * each : n;
	int64_t end = each < n - first ? first + each : n;

	*hi = *lo + end;
	*lo += first;
}

/* Narrows [lo, hi) to part i of the given extents. The extents are those of the
 * whole axis, so only one placement may cut an axis that has extents. */
static void given_part(int64_t *lo, int64_t *hi, int i, const int64_t *extents)
{
	for (int k = 0; k < i; k++)
		*lo += extents[k];
	*hi = *lo + extents[i];
}

static dicomm_result_t check_extents(const dicomm_mesh_t *mesh, int d,
				     const int64_t *shape)
{
	const dicomm_placement_t *p = &mesh->placements[d];
	int64_t sum = 0;

	for (int k = 0; k < d; k++)
		if (mesh->placements[k].kind == DICOMM_SHARD &&
		    mesh->placements[k].axis == p->axis)
			return BAD("mesh_boxes: placement %d: extents of axis "
				   "%d, which placement %d shards too",
				   d, p->axis, k);
	for (int i = 0; i < mesh->extent[d]; i++) {
		if (p->extents[i] < 0 || p->extents[i] > shape[p->axis] - sum)
			return BAD("mesh_boxes: placement %d: extent %d of "
				   "axis %d is %" PRId64 ": axis has %" PRId64
				   ", of which %" PRId64 " are left",
				   d, i, p->axis, p->extents[i], shape[p->axis],
				   shape[p->axis] - sum);
		sum += p->extents[i];
	}
	if (sum != shape[p->axis])
		return BAD("mesh_boxes: placement %d: extents of axis %d are "
			   "%" PRId64 " together, the axis has %" PRId64,
			   d, p->axis, sum, shape[p->axis]);
	return DICOMM_SUCCESS;
}

static int compare_ranks(const void *p, const void *q)
{
	int a = *(const int *)p, b = *(const int *)q;

	return (a > b) - (a < b);
}

static dicomm_result_t repeated(const int *ranks, int rank)
{
	size_t first = 0, second;

	while (ranks[first] != rank)
		first++;
	second = first + 1;
	while (ranks[second] != rank)
		second++;
	return BAD("mesh_boxes: ranks %zu and %zu of the mesh are both %d",
		   first, second, rank);
}

static dicomm_result_t check_ranks(const int *ranks, size_t n)
{
	int *sorted = malloc(n * sizeof(*sorted));
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!sorted)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "mesh_boxes: no memory for %zu ranks", n);
	for (size_t i = 0; i < n && status == DICOMM_SUCCESS; i++) {
		sorted[i] = ranks[i];
		if (ranks[i] < 0)
			status = BAD("mesh_boxes: rank %zu of the mesh is %d: "
				     "below 0",
				     i, ranks[i]);
	}
	if (status == DICOMM_SUCCESS)
		qsort(sorted, n, sizeof(*sorted), compare_ranks);
	for (size_t i = 1; i < n && status == DICOMM_SUCCESS; i++)
		if (sorted[i] == sorted[i - 1])
			status = repeated(ranks, sorted[i]);
	free(sorted);
	return status;
}

/* Finds the number of ranks, and checks that it, and the number of terms, are
 * what a rank and a term can have. */
static dicomm_result_t check_extent(const dicomm_mesh_t *mesh, int first_term,
				    size_t *ranks)
{
	size_t n = 1, terms = 1;

	for (int d = 0; d < mesh->dims; d++) {
		size_t extent = (size_t)mesh->extent[d];

		if (n > INT_MAX / extent)
			return BAD("mesh_boxes: extent %d of mesh dim %d: more "
				   "than %d ranks, with %zu of the dims before",
				   mesh->extent[d], d, INT_MAX, n);
		n *= extent;
		if (mesh->placements[d].kind == DICOMM_PARTIAL)
			terms *= extent;
	}
	if (first_term < 0 || terms > BOXES_TERMS ||
	    (size_t)first_term > BOXES_TERMS - terms)
		return BAD("mesh_boxes: first_term %d, with %zu terms of the "
			   "mesh: not in 0 .. %d",
			   first_term, terms, BOXES_TERMS - 1);
	*ranks = n;
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_mesh(const dicomm_mesh_t *mesh, int axes,
				  const int64_t *shape, const void *boxes)
{
	if (!mesh || !shape || !boxes)
		return BAD("mesh_boxes: %s is NULL", !mesh    ? "mesh"
						     : !shape ? "shape"
							      : "boxes");
	if (axes < 1 || axes > DICOMM_AXES)
		return BAD("mesh_boxes: axes %d: not in 1 .. %d", axes,
			   DICOMM_AXES);
	if (mesh->dims < 1 || mesh->dims > DICOMM_AXES)
		return BAD("mesh_boxes: mesh has %d dims: not in 1 .. %d",
			   mesh->dims, DICOMM_AXES);
	if (!mesh->ranks)
		return BAD("mesh_boxes: ranks of the mesh is NULL");
	for (int a = 0; a < axes; a++)
		if (shape[a] < 0)
			return BAD("mesh_boxes: shape of axis %d is %" PRId64,
				   a, shape[a]);
	for (int d = 0; d < mesh->dims; d++) {
		const dicomm_placement_t *p = &mesh->placements[d];

		if (mesh->extent[d] < 1)
			return BAD("mesh_boxes: extent %d of mesh dim %d: "
				   "below 1",
				   mesh->extent[d], d);
		if (p->kind != DICOMM_REPLICATE && p->kind != DICOMM_SHARD &&
		    p->kind != DICOMM_PARTIAL)
			return BAD("mesh_boxes: placement %d is %d: no such "
				   "placement",
				   d, (int)p->kind);
		if (p->kind != DICOMM_SHARD)
			continue;
		if (p->axis < 0 || p->axis >= axes)
			return BAD("mesh_boxes: placement %d: axis %d: not in "
				   "0 .. %d",
				   d, p->axis, axes - 1);
		if (p->extents)
			TRY(check_extents(mesh, d, shape));
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t boxes_of_mesh(const dicomm_mesh_t *mesh, int axes,
			      const int64_t *shape, int first_term,
			      dicomm_box_t *boxes)
{
	size_t n;

	TRY(check_mesh(mesh, axes, shape, boxes));
	TRY(check_extent(mesh, first_term, &n));
	TRY(check_ranks(mesh->ranks, n));
	for (size_t i = 0; i < n; i++) {
		dicomm_box_t *b = &boxes[i];
		size_t below = n;

		memset(b, 0, sizeof(*b));
		b->rank = mesh->ranks[i];
		for (int a = 0; a < axes; a++)
			b->hi[a] = shape[a];
		for (int d = 0; d < mesh->dims; d++) {
			const dicomm_placement_t *p = &mesh->placements[d];
			int at;

			below /= (size_t)mesh->extent[d];
			at = (int)(i / below % (size_t)mesh->extent[d]);
			if (p->kind == DICOMM_PARTIAL)
				b->term = b->term * mesh->extent[d] + at;
			else if (p->kind == DICOMM_SHARD && p->extents)
				given_part(&b->lo[p->axis], &b->hi[p->axis], at,
					   p->extents);
			else if (p->kind == DICOMM_SHARD)
				even_part(&b->lo[p->axis], &b->hi[p->axis], at,
					  mesh->extent[d]);
		}
		b->term += first_term;
	}
	return DICOMM_SUCCESS;
}
