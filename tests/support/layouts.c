/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/layouts.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/arithmetic.h"
#include "tests/support/element.h"
#include "tests/support/storm.h"

#define BOXES 256
#define TERMS 4
#define MARK 0xa5

/* ---- layouts ---- */

struct drawing {
	unsigned *state;
	int axes;
	int64_t shape[DICOMM_AXES];
	int ranks[LAYOUTS_RANKS], n;
	dicomm_box_t *boxes;
	size_t nboxes;
};

static unsigned roll(struct drawing *d, unsigned below)
{
	return storm_random(d->state, below);
}

static void add_box(struct drawing *d, int rank, int term, const int64_t *lo,
		    const int64_t *hi)
{
	dicomm_box_t *b = &d->boxes[d->nboxes];

	if (d->nboxes == BOXES)
		abort();
	d->nboxes++;
	memset(b, 0, sizeof(*b));
	b->rank = rank;
	b->term = term;
	memcpy(b->lo, lo, sizeof(b->lo));
	memcpy(b->hi, hi, sizeof(b->hi));
}

/* Cut [lo, hi) at random until a rank, or several, take what is left. */
static void cut(struct drawing *d, int term, int64_t *lo, int64_t *hi,
		int depth)
{
	int axis = (int)roll(d, (unsigned)d->axes);
	int64_t middle, was;

	if (!depth || !roll(d, 4)) {
		unsigned copies = 1 + !roll(d, 4);

		while (copies--)
			add_box(d, d->ranks[roll(d, (unsigned)d->n)], term, lo,
				hi);
		return;
	}
	middle = lo[axis] +
		 (int64_t)roll(d, (unsigned)(hi[axis] - lo[axis] + 1));
	was = hi[axis];
	hi[axis] = middle;
	cut(d, term, lo, hi, depth - 1);
	hi[axis] = was;
	was = lo[axis];
	lo[axis] = middle;
	cut(d, term, lo, hi, depth - 1);
	lo[axis] = was;
}

static void any_box(struct drawing *d, int term)
{
	int64_t lo[DICOMM_AXES] = {0}, hi[DICOMM_AXES] = {0};

	for (int a = 0; a < d->axes; a++) {
		lo[a] = (int64_t)roll(d, (unsigned)d->shape[a] + 1);
		hi[a] = lo[a] +
			(int64_t)roll(d, (unsigned)(d->shape[a] - lo[a] + 1));
	}
	add_box(d, d->ranks[roll(d, (unsigned)d->n)], term, lo, hi);
}

static void draw_boxes(struct drawing *d, int terms)
{
	for (int t = 0; t < terms; t++) {
		int64_t lo[DICOMM_AXES] = {0}, hi[DICOMM_AXES] = {0};

		memcpy(hi, d->shape, sizeof(hi));
		cut(d, t, lo, hi, 4);
		for (unsigned i = roll(d, 3); i; i--)
			any_box(d, t);
	}
}

/* Extents that are the axis together, at random, some 0 */
static void draw_extents(struct drawing *d, int64_t n, int parts,
			 int64_t *extents)
{
	for (int i = 0; i < parts; i++) {
		extents[i] =
			i == parts - 1 ? n : (int64_t)roll(d, (unsigned)n + 1);
		n -= extents[i];
	}
}

/* A mesh of all ranks; returns the terms. */
static int draw_mesh(struct drawing *d, bool sums)
{
	int64_t extents[DICOMM_AXES][LAYOUTS_RANKS];
	dicomm_mesh_t mesh = {.ranks = d->ranks};
	int left = d->n, terms = 1;
	bool used[DICOMM_AXES] = {false};

	/* Some dims have one rank only. */
	while (left > 1 || !mesh.dims ||
	       (mesh.dims < DICOMM_AXES && !roll(d, 6))) {
		int k = mesh.dims++, extent = left;
		dicomm_placement_t *p = &mesh.placements[k];

		while (k < DICOMM_AXES - 1 && extent % 2 == 0 && roll(d, 2))
			extent /= 2;
		if (k < DICOMM_AXES - 1 && !roll(d, 6))
			extent = 1;
		mesh.extent[k] = extent;
		left /= extent;
		p->kind = (dicomm_placement_kind_t)roll(d, 3);
		if (p->kind == DICOMM_PARTIAL &&
		    (!sums || terms * extent > TERMS))
			p->kind = DICOMM_SHARD;
		if (p->kind == DICOMM_PARTIAL)
			terms *= extent;
		if (p->kind != DICOMM_SHARD)
			continue;
		p->axis = (int)roll(d, (unsigned)d->axes);
		if (!used[p->axis] && roll(d, 2)) {
			draw_extents(d, d->shape[p->axis], extent, extents[k]);
			p->extents = extents[k];
		}
		used[p->axis] = true;
	}
	if (dicomm_mesh_boxes(&mesh, d->axes, d->shape, 0, d->boxes) !=
	    DICOMM_SUCCESS)
		abort();
	d->nboxes = (size_t)d->n;
	return terms;
}

static bool coprime(int64_t a, int64_t b)
{
	return b ? coprime(b, a % b) : a == 1;
}

/* Strides of the last two axes such that neither spans the other one, and yet
 * each element has a place of its own: for 6 x 8, 9 and 7. */
static void interleave(const struct drawing *d, dicomm_box_t *b)
{
	int a = d->axes - 2;
	int64_t rows = b->hi[a] - b->lo[a],
		columns = b->hi[a + 1] - b->lo[a + 1];
	int64_t p = columns + 1, q = rows + 1, stride;

	while (!coprime(p, q))
		p++;
	b->stride[a] = p;
	b->stride[a + 1] = q;
	stride = p * rows + q * columns;
	while (--a >= 0) {
		b->stride[a] = stride;
		stride *= b->hi[a] - b->lo[a];
	}
}

/* Boxes of one rank one after the other, some with gaps, or their axes in
 * another order. */
static void place_boxes(struct drawing *d)
{
	int64_t end[LAYOUTS_RANKS] = {0};

	for (size_t i = 0; i < d->nboxes; i++) {
		dicomm_box_t *b = &d->boxes[i];
		int order[DICOMM_AXES];
		int64_t stride = 1;

		b->offset = end[b->rank] + (int64_t)roll(d, 3);
		for (int a = 0; a < d->axes; a++)
			order[a] = d->axes - 1 - a;
		if (roll(d, 4) == 0) {
			int a = (int)roll(d, (unsigned)d->axes);
			int was = order[a];

			order[a] = order[0];
			order[0] = was;
		}
		for (int k = 0; k < d->axes; k++) {
			int a = order[k];

			b->stride[a] = stride;
			stride *= b->hi[a] - b->lo[a];
			if (stride && roll(d, 6) == 0)
				stride += (int64_t)roll(d, 3);
		}
		end[b->rank] = b->offset + stride;
		if (order[0] == d->axes - 1 && roll(d, 2)) {
			memset(b->stride, 0, sizeof(b->stride));
			end[b->rank] = b->offset + stride;
		}
		if (d->axes > 1 && !roll(d, 6)) {
			interleave(d, b);
			end[b->rank] = b->offset + 1;
			for (int a = 0; a < d->axes; a++)
				end[b->rank] +=
					b->stride[a] * (b->hi[a] - b->lo[a]);
		}
	}
}

/* Which ranks: the first, the last, or any */
static void draw_ranks(struct drawing *d, int ranks, int n)
{
	unsigned kind = roll(d, 3);

	d->n = n;
	for (int i = 0; i < ranks; i++)
		d->ranks[i] = i;
	for (int i = 0; i < n; i++) {
		int at = kind == 1 ? ranks - n + i : i, was;

		if (kind == 2)
			at = i + (int)roll(d, (unsigned)(ranks - i));
		was = d->ranks[i];
		d->ranks[i] = d->ranks[at];
		d->ranks[at] = was;
	}
}

static void draw_tensor(dicomm_tensor_t *t, unsigned *state, int ranks, int m,
			int n, unsigned most)
{
	static const double weights[] = {1, 0.5, 2, 0.25, 1.5};
	struct drawing d = {.state = state};
	bool sums = !roll(&d, 2);
	double *w;

	*t = (dicomm_tensor_t)DICOMM_TENSOR_INITIALIZER;
	t->type = element_types[roll(&d, (unsigned)element_ntypes)];
	t->axes = d.axes = (int)(roll(&d, 8) ? 1 + roll(&d, 4)
					     : 5 + roll(&d, DICOMM_AXES - 4));
	if (t->axes > 4 && most > 3)
		most = 3;
	for (int a = 0; a < d.axes; a++)
		t->shape[a] = d.shape[a] =
			(int64_t)(roll(&d, 30) ? 1 + roll(&d, most) : 0);
	d.boxes = calloc(BOXES, sizeof(*d.boxes));
	draw_ranks(&d, ranks, m);
	t->terms = sums ? 1 + (int)roll(&d, TERMS) : 1;
	if (roll(&d, 2))
		t->terms = draw_mesh(&d, sums);
	else
		draw_boxes(&d, t->terms);
	place_boxes(&d);
	t->source = d.boxes;
	t->sources = d.nboxes;
	if (sums && element_is_float(t->type) && roll(&d, 2)) {
		w = calloc((size_t)t->terms, sizeof(*w));
		for (int i = 0; i < t->terms; i++)
			w[i] = weights[roll(&d, 5)];
		t->weights = w;
	}
	d.boxes = calloc(BOXES, sizeof(*d.boxes));
	d.nboxes = 0;
	draw_ranks(&d, ranks, n);
	if (roll(&d, 2))
		draw_mesh(&d, false);
	else
		draw_boxes(&d, 1);
	for (size_t i = 0; i < d.nboxes; i++)
		d.boxes[i].term = 0;
	place_boxes(&d);
	t->target = d.boxes;
	t->targets = d.nboxes;
}

void layouts_draw(struct layouts *l, unsigned seed, int ranks, int m, int n,
		  unsigned most)
{
	unsigned state = seed * 7919 + 1;

	*l = (struct layouts){.ranks = ranks};
	l->n = 1 + storm_random(&state, LAYOUTS_TENSORS);
	for (size_t i = 0; i < l->n; i++)
		draw_tensor(&l->tensors[i], &state, ranks, m, n, most);
}

void layouts_free(struct layouts *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free((void *)l->tensors[i].source);
		free((void *)l->tensors[i].target);
		free((void *)l->tensors[i].weights);
	}
}

void layouts_text(const struct layouts *l, char *text, size_t len)
{
	int at = 0;

	for (size_t i = 0; i < l->n; i++) {
		const dicomm_tensor_t *t = &l->tensors[i];

		if (at < 0 || (size_t)at >= len)
			return;
		at += snprintf(text + at, len - (size_t)at, "%s%s [",
			       i ? "; " : "", element_name(t->type));
		for (int a = 0; a < t->axes && (size_t)at < len; a++)
			at += snprintf(text + at, len - (size_t)at,
				       "%s%" PRId64, a ? ", " : "",
				       t->shape[a]);
		if ((size_t)at < len)
			at += snprintf(text + at, len - (size_t)at,
				       "] from %zu boxes (%d terms%s) to %zu",
				       t->sources, t->terms,
				       t->weights ? ", weighted" : "",
				       t->targets);
	}
}

/* ---- elements ---- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static bool adds(const dicomm_tensor_t *t)
{
	return t->terms > 1 || (t->weights && t->weights[0] != 1);
}

/* So small that no sum is rounded */
static int number(size_t index, int term, uint64_t at)
{
	return (int)(mix(at * 31 + (uint64_t)term * 7 + index) % 3);
}

static void store(const dicomm_tensor_t *t, void *to, double x)
{
	int64_t i = (int64_t)x;

	if (element_is_float(t->type))
		arithmetic_store(t->type, to, x);
	else
		memcpy(to, &i, element_bytes(t->type));
}

/* Copies are of any bits, sums of numbers. */
static void put(const dicomm_tensor_t *t, size_t index, int term, uint64_t at,
		void *to)
{
	uint64_t bits = mix(at + index * 1000003);

	if (adds(t))
		store(t, to, number(index, term, at));
	else
		memcpy(to, &bits, element_bytes(t->type));
}

static void expect(const dicomm_tensor_t *t, size_t index, uint64_t at,
		   void *to)
{
	double sum = 0;

	if (!adds(t)) {
		put(t, index, 0, at, to);
		return;
	}
	for (int k = 0; k < t->terms; k++)
		sum += (t->weights ? t->weights[k] : 1) * number(index, k, at);
	store(t, to, sum);
}

/* Walks over the elements of a box: their index in the tensor, and where they
 * are in the memory of the rank. */
struct each {
	const dicomm_tensor_t *t;
	const dicomm_box_t *box;
	int64_t at[DICOMM_AXES];
	bool more;
};

static struct each each_begin(const dicomm_tensor_t *t, const dicomm_box_t *b)
{
	struct each e = {.t = t, .box = b, .more = true};

	for (int a = 0; a < t->axes; a++) {
		e.at[a] = b->lo[a];
		e.more &= b->lo[a] < b->hi[a];
	}
	return e;
}

static void each_next(struct each *e)
{
	int a = e->t->axes - 1;

	while (a >= 0 && ++e->at[a] == e->box->hi[a]) {
		e->at[a] = e->box->lo[a];
		a--;
	}
	e->more = a >= 0;
}

static uint64_t each_index(const struct each *e)
{
	uint64_t i = 0;

	for (int a = 0; a < e->t->axes; a++)
		i = i * (uint64_t)e->t->shape[a] + (uint64_t)e->at[a];
	return i;
}

static uint64_t each_place(const struct each *e)
{
	const dicomm_box_t *b = e->box;
	int64_t dense = 1, place = b->offset;
	bool given = false;

	for (int a = 0; a < e->t->axes; a++)
		given |= b->stride[a] != 0;
	for (int a = e->t->axes - 1; a >= 0; a--) {
		place += (e->at[a] - b->lo[a]) * (given ? b->stride[a] : dense);
		dense *= b->hi[a] - b->lo[a];
	}
	return (uint64_t)place;
}

size_t layouts_bytes(const dicomm_tensor_t *t, int rank, bool target)
{
	const dicomm_box_t *boxes = target ? t->target : t->source;
	size_t n = target ? t->targets : t->sources, most = 0;

	for (size_t i = 0; i < n; i++) {
		struct each e = each_begin(t, &boxes[i]);

		if (boxes[i].rank != rank || !e.more)
			continue;
		for (int a = 0; a < t->axes; a++)
			e.at[a] = boxes[i].hi[a] - 1;
		if (each_place(&e) + 1 > most)
			most = each_place(&e) + 1;
	}
	return most * element_bytes(t->type);
}

void *layouts_source(const dicomm_tensor_t *tensors, size_t index, int rank)
{
	const dicomm_tensor_t *t = &tensors[index];
	size_t elem = element_bytes(t->type);
	char *to = calloc(1, layouts_bytes(t, rank, false) + 1);

	for (size_t i = 0; i < t->sources; i++) {
		struct each e = each_begin(t, &t->source[i]);

		for (; e.more && e.box->rank == rank; each_next(&e))
			put(t, index, e.box->term, each_index(&e),
			    to + each_place(&e) * elem);
	}
	return to;
}

void *layouts_target(const dicomm_tensor_t *t, int rank)
{
	size_t bytes = layouts_bytes(t, rank, true);
	char *to = malloc(bytes + 1);

	memset(to, MARK, bytes + 1);
	return to;
}

static void bits_text(const void *at, size_t n, char *text)
{
	for (size_t i = 0; i < n; i++)
		sprintf(text + 2 * i, "%02x", ((const unsigned char *)at)[i]);
}

bool layouts_right(const dicomm_tensor_t *tensors, size_t index, int rank,
		   const void *target, char *text, size_t len)
{
	const dicomm_tensor_t *t = &tensors[index];
	size_t elem = element_bytes(t->type);
	size_t bytes = layouts_bytes(t, rank, true);
	unsigned char *left = malloc(bytes + 1);
	bool right = true;

	memcpy(left, target, bytes);
	for (size_t i = 0; i < t->targets; i++) {
		struct each e = each_begin(t, &t->target[i]);

		for (; e.more && e.box->rank == rank && right; each_next(&e)) {
			const char *at =
				(const char *)target + each_place(&e) * elem;
			char got[20] = "", want[20] = "", x[8];

			expect(t, index, each_index(&e), x);
			memset(left + each_place(&e) * elem, MARK, elem);
			if (!memcmp(x, at, elem))
				continue;
			right = false;
			bits_text(at, elem, got);
			bits_text(x, elem, want);
			snprintf(text, len,
				 "rank %d tensor %zu box %zu element %" PRIu64
				 ": %s, should be %s",
				 rank, index, i, each_index(&e), got, want);
		}
	}
	for (size_t i = 0; i < bytes && right; i++)
		if (left[i] != MARK) {
			right = false;
			snprintf(text, len,
				 "rank %d tensor %zu: byte %zu between the "
				 "boxes was written",
				 rank, index, i);
		}
	free(left);
	return right;
}
