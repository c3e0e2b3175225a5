/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the description of a tensor, and each of its boxes. */
#include "collectives/redistribute/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives/redistribute/boxes.h"
#include "collectives/redistribute/overlap.h"
#include "src/base/log.h"
#include "src/base/type.h"

#define BAD(...) FAIL(DICOMM_ERR_INVALID_ARGUMENT, __VA_ARGS__)
#define NAME_BYTES 160

/* The last place of a box that check_memory() has accepted. */
static uint64_t last_of(const dicomm_box_t *box, int axes)
{
	int64_t stride[DICOMM_AXES], last = box->offset;

	boxes_strides(box, axes, stride);
	for (int a = 0; a < axes; a++)
		last += (box->hi[a] - box->lo[a] - 1) * stride[a];
	return (uint64_t)last;
}

static dicomm_result_t check_memory(const char *name, const char *side,
				    size_t i, const dicomm_box_t *box, int axes,
				    size_t elem)
{
	int64_t stride[DICOMM_AXES], end = box->offset, step;

	if (box->offset < 0)
		return BAD("%s: %s box %zu of rank %d: offset %" PRId64
			   " is below 0",
			   name, side, i, box->rank, box->offset);
	for (int a = 0; a < axes; a++)
		if (box->stride[a] < 0)
			return BAD("%s: %s box %zu of rank %d: stride %" PRId64
				   " of axis %d is below 0",
				   name, side, i, box->rank, box->stride[a], a);
	if (boxes_empty(box, axes))
		return DICOMM_SUCCESS;
	boxes_strides(box, axes, stride);
	for (int a = 0; a < axes; a++)
		if (__builtin_mul_overflow(box->hi[a] - box->lo[a] - 1,
					   stride[a], &step) ||
		    __builtin_add_overflow(end, step, &end) ||
		    (uint64_t)end >= PTRDIFF_MAX / elem)
			return BAD("%s: %s box %zu of rank %d: axis %d, offset "
				   "%" PRId64 ", stride %" PRId64
				   ": more than can be addressed",
				   name, side, i, box->rank, a, box->offset,
				   stride[a]);
	return DICOMM_SUCCESS;
}

/* "[8, 1]" */
static void strides_text(const dicomm_box_t *box, int axes, char *text,
			 size_t len)
{
	int64_t stride[DICOMM_AXES];
	int n = 0;

	boxes_strides(box, axes, stride);
	for (int a = 0; a < axes; a++)
		n += snprintf(text + n, len - (size_t)n, "%s%" PRId64,
			      a ? ", " : "[", stride[a]);
	snprintf(text + n, len - (size_t)n, "]");
}

/* A target box that has elements, by where it is. */
struct placed {
	int rank;
	uint64_t first, last;
	const dicomm_box_t *box;
};

static int compare_placed(const void *p, const void *q)
{
	const struct placed *a = p, *b = q;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (a->first != b->first)
		return a->first < b->first ? -1 : 1;
	return (a->box > b->box) - (a->box < b->box);
}

static dicomm_result_t meet(const char *name, const dicomm_tensor_t *t,
			    const dicomm_box_t *a, const dicomm_box_t *b,
			    enum overlap found)
{
	char as[200], bs[200];
	const char *why = found == OVERLAP_SOME
				  ? "put several elements in one place"
				  : "interleave in too many ways to be checked";

	strides_text(a, t->axes, as, sizeof(as));
	strides_text(b, t->axes, bs, sizeof(bs));
	if (a == b)
		return BAD("%s: target box %zu of rank %d: strides %s %s", name,
			   (size_t)(a - t->target), a->rank, as, why);
	return BAD("%s: target boxes %zu and %zu of rank %d: offsets %" PRId64
		   " and %" PRId64 ", strides %s and %s %s",
		   name, (size_t)(a - t->target), (size_t)(b - t->target),
		   a->rank, a->offset, b->offset, as, bs, why);
}

/* Compares each box with itself, and with those after it of the same rank that
 * begin before it ends. */
static dicomm_result_t check_placed(const char *name, const dicomm_tensor_t *t,
				    const struct placed *p, size_t n)
{
	long steps = OVERLAP_STEPS;

	for (size_t i = 0; i < n; i++) {
		enum overlap found = overlap_within(p[i].box, t->axes, &steps);

		if (found != OVERLAP_NONE)
			return meet(name, t, p[i].box, p[i].box, found);
		for (size_t k = i + 1;
		     k < n && p[k].rank == p[i].rank && p[k].first <= p[i].last;
		     k++) {
			found = overlap_between(p[i].box, p[k].box, t->axes,
						&steps);
			if (found != OVERLAP_NONE)
				return meet(name, t, p[i].box, p[k].box, found);
		}
	}
	return DICOMM_SUCCESS;
}

/* Checks that no two elements of a target are in one place of a rank. */
static dicomm_result_t check_places(const char *name, const dicomm_tensor_t *t)
{
	struct placed *p = malloc((t->targets + 1) * sizeof(*p));
	dicomm_result_t status;
	bool sorted = true;
	size_t n = 0;

	if (!p)
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: no memory for %zu boxes",
			    name, t->targets);
	for (size_t i = 0; i < t->targets; i++) {
		const dicomm_box_t *b = &t->target[i];

		if (boxes_empty(b, t->axes))
			continue;
		p[n++] = (struct placed){b->rank, (uint64_t)b->offset,
					 last_of(b, t->axes), b};
		sorted &= n == 1 || compare_placed(&p[n - 2], &p[n - 1]) < 0;
	}
	if (!sorted)
		qsort(p, n, sizeof(*p), compare_placed);
	status = check_placed(name, t, p, n);
	free(p);
	return status;
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
		TRY(check_memory(name, side, i, b, t->axes,
				 type_bytes(t->type)));
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_weights(const char *name, const dicomm_tensor_t *t)
{
	if (t->terms < 0 || t->terms > BOXES_TERMS)
		return BAD("%s: terms %d: not in 0 .. %d", name, t->terms,
			   BOXES_TERMS);
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

dicomm_result_t check_tensor(const dicomm_tensor_t *tensors, size_t index,
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
	TRY(check_side(name, t, true, ranks));
	return check_places(name, t);
}
