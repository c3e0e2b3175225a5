/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes boxes from meshes with placements, and checks boxes. */
#include "collectives/redistribute/boxes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/type.h"

#define BAD(...) FAIL(DICOMM_ERR_INVALID_ARGUMENT, __VA_ARGS__)
#define NAME_BYTES 160

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
	int64_t n = *hi - *lo, each = (n + parts - 1) / parts;
	int64_t first = i * each < n ? i * each : n;
	int64_t end = first + each < n ? first + each : n;

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
	size_t n = 1;

	TRY(check_mesh(mesh, axes, shape, boxes));
	for (int d = 0; d < mesh->dims; d++)
		n *= (size_t)mesh->extent[d];
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

/* ---- checks ---- */

/* Returns true if two elements of a target have the same address, so that it
 * would be written twice. */
static bool folds_onto_itself(const dicomm_box_t *box, int axes,
			      const int64_t *stride)
{
	uint64_t reach = 1; /* number of elements that the axes so far span */
	bool taken[DICOMM_AXES] = {false};

	for (int k = 0; k < axes; k++) {
		int least = -1;

		for (int a = 0; a < axes; a++)
			if (!taken[a] && box->hi[a] - box->lo[a] > 1 &&
			    (least < 0 || stride[a] < stride[least]))
				least = a;
		if (least < 0)
			return false;
		taken[least] = true;
		if ((uint64_t)stride[least] < reach)
			return true;
		reach += (uint64_t)(box->hi[least] - box->lo[least] - 1) *
			 (uint64_t)stride[least];
	}
	return false;
}

static dicomm_result_t check_memory(const char *name, const char *side,
				    size_t i, const dicomm_box_t *box, int axes,
				    size_t elem, bool target)
{
	int64_t stride[DICOMM_AXES], end = box->offset, step;

	if (boxes_empty(box, axes))
		return DICOMM_SUCCESS;
	if (box->offset < 0)
		return BAD("%s: %s box %zu of rank %d: offset %" PRId64
			   " is below 0",
			   name, side, i, box->rank, box->offset);
	boxes_strides(box, axes, stride);
	for (int a = 0; a < axes; a++) {
		if (stride[a] < 0)
			return BAD("%s: %s box %zu of rank %d: stride %" PRId64
				   " of axis %d is below 0",
				   name, side, i, box->rank, stride[a], a);
		if (__builtin_mul_overflow(box->hi[a] - box->lo[a] - 1,
					   stride[a], &step) ||
		    __builtin_add_overflow(end, step, &end) ||
		    (uint64_t)end >= PTRDIFF_MAX / elem)
			return BAD("%s: %s box %zu of rank %d: axis %d, offset "
				   "%" PRId64 ", stride %" PRId64
				   ": more than can be addressed",
				   name, side, i, box->rank, a, box->offset,
				   stride[a]);
	}
	if (target && folds_onto_itself(box, axes, stride))
		return BAD("%s: target box %zu of rank %d: its strides put "
			   "several elements in one place",
			   name, i, box->rank);
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_side(const char *name, const dicomm_tensor_t *t,
				  bool target, int ranks)
{
	const dicomm_box_t *boxes = target ? t->target : t->source;
	size_t n = target ? t->targets : t->sources;
	const char *side = target ? "target" : "source";
	int terms = t->terms ? t->terms : 1;

	if (n > UINT32_MAX / 2)
		return BAD("%s: %zu %s boxes: too many", name, n, side);
	if (!boxes && n)
		return BAD("%s: %s is NULL, %ss is %zu", name, side, side, n);
	for (size_t i = 0; i < n; i++) {
		const dicomm_box_t *b = &boxes[i];

		if (b->rank < 0 || b->rank >= ranks)
			return BAD("%s: %s box %zu: rank %d: not in 0 .. %d",
				   name, side, i, b->rank, ranks - 1);
		if (!target && (b->term < 0 || b->term >= terms))
			return BAD("%s: source box %zu of rank %d: term %d: "
				   "not in 0 .. %d",
				   name, i, b->rank, b->term, terms - 1);
		for (int a = 0; a < t->axes; a++)
			if (b->lo[a] < 0 || b->lo[a] > b->hi[a] ||
			    b->hi[a] > t->shape[a])
				return BAD("%s: %s box %zu of rank %d: axis "
					   "%d, interval %" PRId64 ":%" PRId64
					   ": not in 0:%" PRId64,
					   name, side, i, b->rank, a, b->lo[a],
					   b->hi[a], t->shape[a]);
		TRY(check_memory(name, side, i, b, t->axes, type_bytes(t->type),
				 target));
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_weights(const char *name, const dicomm_tensor_t *t)
{
	if (t->terms < 0 || t->terms > (1 << 20))
		return BAD("%s: terms %d: not in 0 .. %d", name, t->terms,
			   1 << 20);
	if (t->terms > 1 && !op_fits(DICOMM_SUM, t->type))
		return BAD("%s: terms %d: type %s has no sum", name, t->terms,
			   type_name(t->type));
	for (int i = 0; t->weights && i < (t->terms ? t->terms : 1); i++) {
		double w = t->weights[i];

		if (w - w != 0) /* infinite or NaN */
			return BAD("%s: weight %d is %g", name, i, w);
		if (w != 1 && !type_is_float(t->type))
			return BAD("%s: weight %d is %g: type %s takes no "
				   "weights",
				   name, i, w, type_name(t->type));
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t boxes_check(const dicomm_tensor_t *tensors, size_t index,
			    int ranks)
{
	const dicomm_tensor_t *t = &tensors[index];
	char name[NAME_BYTES];
	size_t bytes;

	if (t->size != sizeof(*t))
		return BAD("tensor %zu: size %zu: begin with "
			   "DICOMM_TENSOR_INITIALIZER",
			   index, t->size);
	boxes_name(tensors, index, name, sizeof(name));
	if (!type_valid(t->type))
		return BAD("%s: type %d: no such datatype", name, (int)t->type);
	if (t->axes < 1 || t->axes > DICOMM_AXES)
		return BAD("%s: axes %d: not in 1 .. %d", name, t->axes,
			   DICOMM_AXES);
	bytes = type_bytes(t->type);
	for (int a = 0; a < t->axes; a++) {
		if (t->shape[a] < 0)
			return BAD("%s: shape of axis %d is %" PRId64, name, a,
				   t->shape[a]);
		if (__builtin_mul_overflow(
			    bytes, t->shape[a] ? (size_t)t->shape[a] : 1,
			    &bytes) ||
		    bytes > PTRDIFF_MAX)
			return BAD("%s: axis %d of %" PRId64 ": more than can "
				   "be addressed",
				   name, a, t->shape[a]);
	}
	TRY(check_weights(name, t));
	TRY(check_side(name, t, false, ranks));
	return check_side(name, t, true, ranks);
}
