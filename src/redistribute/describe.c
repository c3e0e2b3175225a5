/* SPDX-License-Identifier: BSD-3-Clause */
/* Goes through a description, which need not be a valid one. */
#include "src/redistribute/describe.h"

#include <stdio.h>
#include <string.h>

#include "collectives/redistribute/boxes.h"
#include "src/base/hash.h"

struct field {
	const char *name;
	size_t tensor;
	const char *side; /* NULL: not of a box */
	size_t box;
	int axis; /* -1: of none */
	bool weight;
};

struct walk {
	const struct description *d;
	struct field now;
	uint64_t i; /* number of numbers so far */
	uint64_t first, end, hash;
	/* Of the number before `end`. */
	struct field found;
	uint64_t value;
};

static void put(struct walk *w, const char *name, int axis, uint64_t value)
{
	w->now.name = name;
	w->now.axis = axis;
	if (w->i >= w->first && w->i < w->end) {
		w->hash = hash_bytes(w->hash, &value, sizeof(value));
		w->found = w->now;
		w->value = value;
	}
	w->i++;
}

static void put_axes(struct walk *w, const char *name, const int64_t *at,
		     int axes)
{
	for (int a = 0; a < axes; a++)
		put(w, name, a, (uint64_t)at[a]);
}

static void put_boxes(struct walk *w, const char *side, const dicomm_box_t *box,
		      size_t n, int axes)
{
	w->now.side = side;
	for (size_t i = 0; i < n; i++, box++) {
		w->now.box = i;
		put(w, "rank", -1, (uint64_t)box->rank);
		put(w, "term", -1, (uint64_t)box->term);
		put_axes(w, "lo", box->lo, axes);
		put_axes(w, "hi", box->hi, axes);
		put(w, "offset", -1, (uint64_t)box->offset);
		put_axes(w, "stride", box->stride, axes);
	}
	w->now.side = NULL;
}

static void put_weights(struct walk *w, const double *weights, int terms)
{
	w->now.weight = true;
	for (int i = 0; i < terms; i++) {
		uint64_t bits;

		memcpy(&bits, &weights[i], sizeof(bits));
		w->now.box = (size_t)i;
		put(w, "weight", -1, bits);
	}
	w->now.weight = false;
}

/* Returns false if what follows cannot be read. */
static bool put_tensor(struct walk *w, const dicomm_tensor_t *t)
{
	int terms = t->terms ? t->terms : 1;

	put(w, "size", -1, t->size);
	if (t->size != sizeof(*t))
		return false;
	put(w, "type", -1, (uint64_t)t->type);
	put(w, "axes", -1, (uint64_t)t->axes);
	put(w, "terms", -1, (uint64_t)terms);
	put(w, "sources", -1, t->sources);
	put(w, "targets", -1, t->targets);
	put(w, "source that is not NULL", -1, t->source != NULL);
	put(w, "target that is not NULL", -1, t->target != NULL);
	put(w, "weights that are not NULL", -1, t->weights != NULL);
	if (t->axes < 1 || t->axes > DICOMM_AXES ||
	    (t->sources && !t->source) || (t->targets && !t->target) ||
	    terms < 0 || terms > BOXES_TERMS)
		return false;
	put_axes(w, "shape", t->shape, t->axes);
	if (t->weights)
		put_weights(w, t->weights, terms);
	put_boxes(w, "source", t->source, t->sources, t->axes);
	put_boxes(w, "target", t->target, t->targets, t->axes);
	return true;
}

static void walk(struct walk *w)
{
	const struct description *d = w->d;
	const dicomm_redistribute_config_t *c = d->config;

	w->now.tensor = SIZE_MAX;
	put(w, "n", -1, d->n);
	put(w, "size of config", -1, c->size);
	if (c->size == sizeof(*c)) {
		put(w, "way of config", -1, (uint64_t)c->way);
		put(w, "staging_bytes of config", -1, c->staging_bytes);
		put(w, "allow_unwanted of config", -1,
		    (uint64_t)c->allow_unwanted);
	}
	put(w, "tensors that are not NULL", -1, d->tensors != NULL);
	for (size_t i = 0; i < d->n && d->tensors; i++) {
		w->now.tensor = i;
		if (!put_tensor(w, &d->tensors[i]))
			return;
	}
}

uint64_t describe(const struct description *d, uint64_t first, uint64_t end,
		  uint64_t *hash)
{
	struct walk w = {
		.d = d, .first = first, .end = end, .hash = HASH_START};

	walk(&w);
	*hash = w.hash;
	return w.i;
}

bool describe_field(const struct description *d, uint64_t i, uint64_t *value,
		    char *text, size_t len)
{
	struct walk w = {
		.d = d,
		.first = i,
		.end = i + 1,
		.found = {.name = "end", .tensor = SIZE_MAX, .axis = -1}};
	char tensor[180] = "", box[60] = "", axis[30] = "";
	const struct field *f = &w.found;

	walk(&w);
	if (f->tensor != SIZE_MAX) {
		boxes_name(d->tensors, f->tensor, tensor, sizeof(tensor) - 2);
		strcat(tensor, ": ");
	}
	if (f->side)
		snprintf(box, sizeof(box), "%s box %zu: ", f->side, f->box);
	if (f->weight)
		snprintf(axis, sizeof(axis), " %zu", f->box);
	if (f->axis >= 0)
		snprintf(axis, sizeof(axis), " of axis %d", f->axis);
	snprintf(text, len, "%s%s%s%s", tensor, box, f->name, axis);
	*value = w.value;
	return f->weight;
}
