/* SPDX-License-Identifier: BSD-3-Clause */
/* Sweeps the boxes of a tensor, axis by axis, into cells. */
#include "collectives/redistribute/overlay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/log.h"

struct entry {
	const dicomm_box_t *box;
	uint32_t index;
	bool target;
	int axes;
};

static int compare_numbers(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int compare_shapes(const struct entry *x, const struct entry *y)
{
	int c = x->target - y->target;

	if (!c && !x->target)
		c = compare_numbers(x->box->term, y->box->term);
	for (int a = 0; a < x->axes && !c; a++)
		c = compare_numbers(x->box->lo[a], y->box->lo[a]);
	for (int a = 0; a < x->axes && !c; a++)
		c = compare_numbers(x->box->hi[a], y->box->hi[a]);
	return c;
}

static int compare_entries(const void *p, const void *q)
{
	const struct entry *x = p, *y = q;
	int c = compare_shapes(x, y);

	if (!c)
		c = compare_numbers(x->box->rank, y->box->rank);
	return c ? c : compare_numbers(x->index, y->index);
}

static size_t gather(struct entry *e, const dicomm_tensor_t *t, bool target)
{
	const dicomm_box_t *boxes = target ? t->target : t->source;
	size_t boxes_n = target ? t->targets : t->sources, n = 0;

	for (size_t i = 0; i < boxes_n; i++)
		if (!boxes_empty(&boxes[i], t->axes))
			e[n++] = (struct entry){&boxes[i], (uint32_t)i, target,
						t->axes};
	return n;
}

/* Returns the most bounds of one axis for n classes. */
static size_t room_of(uint32_t n)
{
	return 2 * (size_t)n + 2;
}

dicomm_result_t overlay_make(struct overlay *o, const dicomm_tensor_t *t)
{
	size_t most = t->sources + t->targets, n;
	struct entry *e = malloc((most + 1) * sizeof(*e));

	*o = (struct overlay){.tensor = t};
	o->classes = malloc((most + 1) * sizeof(*o->classes));
	o->holders = malloc((most + 1) * sizeof(*o->holders));
	if (!e || !o->classes || !o->holders)
		goto memory;
	n = gather(e, t, false);
	n += gather(e + n, t, true);
	qsort(e, n, sizeof(*e), compare_entries);
	for (size_t i = 0; i < n; i++) {
		if (!i || compare_shapes(&e[i - 1], &e[i]))
			o->classes[o->nclasses++] = (struct overlay_class){
				e[i].box, e[i].target, (uint32_t)i, 0};
		o->classes[o->nclasses - 1].n++;
		o->holders[i] =
			(struct overlay_holder){e[i].box->rank, e[i].index};
	}
	o->room = malloc((size_t)t->axes * room_of(o->nclasses) *
				 sizeof(*o->room) +
			 ((size_t)o->nclasses + 1) * sizeof(uint32_t));
	if (!o->room)
		goto memory;
	free(e);
	return DICOMM_SUCCESS;

memory:
	free(e);
	overlay_free(o);
	return FAIL(DICOMM_ERR_NO_MEMORY,
		    "redistribute: no memory for %zu boxes of a tensor", most);
}

void overlay_free(struct overlay *o)
{
	free(o->classes);
	free(o->holders);
	free(o->room);
	*o = (struct overlay){.tensor = NULL};
}

/* ---- the sweep ---- */

struct sweep {
	const struct overlay *o;
	overlay_fn *fn;
	void *ctx;
	struct overlay_cell cell;
};

static int compare_bounds(const void *p, const void *q)
{
	return compare_numbers(*(const int64_t *)p, *(const int64_t *)q);
}

static size_t find_bounds(const struct sweep *s, int axis, const uint32_t *list,
			  uint32_t n, int64_t *bounds)
{
	const struct overlay *o = s->o;
	size_t k = 0, kept = 1;

	bounds[k++] = 0;
	bounds[k++] = o->tensor->shape[axis];
	for (uint32_t i = 0; i < n; i++) {
		const dicomm_box_t *b = o->classes[list[i]].box;

		/* Adjacent classes often have the same bounds, so leave out
		 * repeated ones. */
		if (b->lo[axis] != bounds[k - 2] || k == 2)
			bounds[k++] = b->lo[axis];
		if (b->hi[axis] != bounds[k - 1])
			bounds[k++] = b->hi[axis];
	}
	qsort(bounds, k, sizeof(*bounds), compare_bounds);
	for (size_t i = 1; i < k; i++)
		if (bounds[i] != bounds[kept - 1])
			bounds[kept++] = bounds[i];
	return kept;
}

/* A class, to be sorted by where it begins. */
struct begin {
	int64_t lo;
	uint32_t class, place;
};

static int compare_begins(const void *p, const void *q)
{
	const struct begin *x = p, *y = q;
	int c = compare_numbers(x->lo, y->lo);

	return c ? c : compare_numbers(x->place, y->place);
}

static int compare_classes(const void *p, const void *q)
{
	return compare_numbers(*(const uint32_t *)p, *(const uint32_t *)q);
}

static dicomm_result_t leaf(struct sweep *s, const uint32_t *list, uint32_t n)
{
	s->cell.covers = list;
	s->cell.sources = 0;
	while (s->cell.sources < n &&
	       !s->o->classes[list[s->cell.sources]].target)
		s->cell.sources++;
	s->cell.targets = n - s->cell.sources;
	return s->fn(s->ctx, s->o, &s->cell);
}

/* Returns true if each class of the list covers the whole axis. */
static bool is_whole(const struct sweep *s, int axis, const uint32_t *list,
		     uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const dicomm_box_t *b = s->o->classes[list[i]].box;

		if (b->lo[axis] || b->hi[axis] != s->o->tensor->shape[axis])
			return false;
	}
	return true;
}

static dicomm_result_t sweep_axis(struct sweep *s, int axis,
				  const uint32_t *list, uint32_t n)
{
	const struct overlay *o = s->o;
	int64_t *bounds = o->room + (size_t)axis * room_of(o->nclasses);
	struct begin *begins;
	uint32_t *active, nactive = 0, next = 0;
	size_t nbounds;

	if (axis == o->tensor->axes)
		return leaf(s, list, n);
	if (is_whole(s, axis, list, n)) {
		s->cell.lo[axis] = 0;
		s->cell.hi[axis] = o->tensor->shape[axis];
		return sweep_axis(s, axis + 1, list, n);
	}
	nbounds = find_bounds(s, axis, list, n, bounds);
	begins = malloc((size_t)n * (sizeof(*begins) + sizeof(*active)));
	if (!begins)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "redistribute: no memory to sweep %u boxes", n);
	active = (uint32_t *)(begins + n);
	for (uint32_t i = 0; i < n; i++)
		begins[i] = (struct begin){o->classes[list[i]].box->lo[axis],
					   list[i], i};
	qsort(begins, n, sizeof(*begins), compare_begins);
	for (size_t i = 0; i + 1 < nbounds; i++) {
		uint32_t kept = 0, before;
		dicomm_result_t status;

		for (uint32_t k = 0; k < nactive; k++)
			if (o->classes[active[k]].box->hi[axis] > bounds[i])
				active[kept++] = active[k];
		before = nactive = kept;
		while (next < n && begins[next].lo == bounds[i])
			active[nactive++] = begins[next++].class;
		if (before && nactive > before)
			qsort(active, nactive, sizeof(*active),
			      compare_classes);
		s->cell.lo[axis] = bounds[i];
		s->cell.hi[axis] = bounds[i + 1];
		status = sweep_axis(s, axis + 1, active, nactive);
		if (status != DICOMM_SUCCESS) {
			free(begins);
			return status;
		}
	}
	free(begins);
	return DICOMM_SUCCESS;
}

dicomm_result_t overlay_walk(const struct overlay *o, overlay_fn *fn, void *ctx)
{
	struct sweep s = {.o = o, .fn = fn, .ctx = ctx};
	uint32_t *all = (uint32_t *)(o->room + (size_t)o->tensor->axes *
						       room_of(o->nclasses));

	for (int a = 0; a < o->tensor->axes; a++)
		if (!o->tensor->shape[a])
			return DICOMM_SUCCESS;
	for (uint32_t i = 0; i < o->nclasses; i++)
		all[i] = i;
	return sweep_axis(&s, 0, all, o->nclasses);
}

/* ---- gaps ---- */

/* Returns an axis along which the cell is not the whole tensor, because that is
 * where the gap is. */
static int axis_of(const struct overlay *o, const struct overlay_cell *cell)
{
	for (int a = 0; a < o->tensor->axes; a++)
		if (cell->lo[a] || cell->hi[a] != o->tensor->shape[a])
			return a;
	return 0;
}

/* Writes the ranks that hold those classes: "2, 3, 5". */
static void ranks_text(const struct overlay *o, const uint32_t *classes,
		       uint32_t n, char *text, size_t len)
{
	int at = snprintf(text, len, "%s", n ? "" : "none");

	for (uint32_t i = 0; i < n; i++) {
		const struct overlay_class *c = &o->classes[classes[i]];

		for (uint32_t h = 0; h < c->n; h++) {
			if (at < 0 || (size_t)at + 16 > len) {
				snprintf(text + len - 5, 5, " ...");
				return;
			}
			at += snprintf(text + at, len - (size_t)at, "%s%d",
				       at ? ", " : "",
				       o->holders[c->first + h].rank);
		}
	}
}

static dicomm_result_t gap(const dicomm_tensor_t *tensors, size_t index,
			   const struct overlay *o,
			   const struct overlay_cell *cell, int term)
{
	const uint32_t *others = cell->covers;
	uint32_t n = cell->sources;
	char name[160], box[400], ranks[160];
	int a = axis_of(o, cell);

	boxes_name(tensors, index, name, sizeof(name));
	boxes_text(cell->lo, cell->hi, o->tensor->axes, box, sizeof(box));
	if (term >= 0) {
		others += cell->sources;
		n = cell->targets;
	}
	ranks_text(o, others, n, ranks, sizeof(ranks));
	if (term < 0)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "redistribute: %s: axis %d, interval %" PRId64
			    ":%" PRId64 " of %s: no rank wants it; it is on "
			    "ranks %s",
			    name, a, cell->lo[a], cell->hi[a], box, ranks);
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "redistribute: %s: axis %d, interval %" PRId64 ":%" PRId64
		    " of %s: no rank has term %d; ranks %s want it",
		    name, a, cell->lo[a], cell->hi[a], box, term, ranks);
}

dicomm_result_t overlay_check(const dicomm_tensor_t *tensors, size_t index,
			      const struct overlay *o,
			      const struct overlay_cell *cell, bool unwanted)
{
	int terms = o->tensor->terms ? o->tensor->terms : 1, expect = 0;

	if (!cell->targets)
		return unwanted ? DICOMM_SUCCESS
				: gap(tensors, index, o, cell, -1);
	for (uint32_t i = 0; i < cell->sources; i++) {
		int term = o->classes[cell->covers[i]].box->term;

		if (term > expect)
			return gap(tensors, index, o, cell, expect);
		if (term == expect)
			expect++;
	}
	return expect == terms ? DICOMM_SUCCESS
			       : gap(tensors, index, o, cell, expect);
}
