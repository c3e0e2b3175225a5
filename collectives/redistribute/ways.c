/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds who reads, owns and passes on each cell of an overlay. */
#include "collectives/redistribute/ways.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/redistribute/owners.h"
#include "src/base/log.h"
#include "src/base/type.h"

/* Among this many copies, the best one is searched. */
#define COPIES_LOOKED 64
/* Bytes of a share, and shares of a cell: smaller ones cost more messages than
 * they save, and all shares are passed on to all. */
#define SHARE_BYTES 4096
#define SHARES 64
/* Parts of a cell, each of which has all shares. */
#define PARTS 65536
/* Number of overlays that are kept: tensors that follow each other often have
 * one layout, such as those of the layers of a model. */
#define OVERLAYS 16

struct walk {
	const struct ways_input *in;
	unsigned ways;
	dicomm_way_t way; /* the current way */
	bool check;
	const struct ways_fns *fns;
	void *ctx;
	size_t tensor;
	/* [rank]: bytes that it has to send so far, in the current way. */
	uint64_t *load, *loads[WAYS];
	uint64_t cells;
	/* [rank]: the last cell that the rank was seen to want, the last cell
	 * of which it was seen to have the first term, and the box that has
	 * it. */
	uint64_t *wants, *has;
	uint32_t *has_box;
	/* These have room for 2 * targets entries; from[] for one per term. */
	struct overlay_holder *wanters, *more, *from, *others;
	uint32_t nwanters, nmore;
	size_t room, terms_room;
	struct owners sums;
	/* The ranks that own the cell, or shares of it, in the current way. */
	const struct overlay_holder *owners;
	uint32_t nowners;
	bool all_make;
};

static int node_of(const struct walk *w, int rank)
{
	return w->in->links ? (int)w->in->links->node_of[rank] : 0;
}

/* Returns the holder of that rank, or NULL. */
static const struct overlay_holder *
holder_of(const struct overlay *o, const struct overlay_class *c, int rank)
{
	const struct overlay_holder *h = &o->holders[c->first];
	uint32_t n = c->n;

	while (n > 1) {
		uint32_t half = n / 2;

		if (h[half].rank <= rank)
			h += half;
		n -= half;
	}
	return h->rank == rank ? h : NULL;
}

/* Returns the best copy of a term for a rank: its own, or one on its node, or
 * any; among several, that of the rank that has to send the least so far. */
static struct overlay_holder pick(struct walk *w, const struct overlay *o,
				  const uint32_t *classes, uint32_t n, int to)
{
	struct overlay_holder best = {.rank = -1};
	bool best_far = true;

	for (uint32_t i = 0; i < n; i++) {
		const struct overlay_holder *own =
			holder_of(o, &o->classes[classes[i]], to);

		if (own)
			return *own;
	}

	for (uint32_t i = 0; i < n; i++) {
		const struct overlay_class *c = &o->classes[classes[i]];
		uint32_t looked = c->n < COPIES_LOOKED ? c->n : COPIES_LOOKED;
		uint32_t first = (uint32_t)((uint64_t)(unsigned)to * c->n /
					    (unsigned)w->in->ranks);

		for (uint32_t k = 0; k < looked; k++) {
			uint32_t at = (first + k) % c->n;
			const struct overlay_holder *h =
				&o->holders[c->first + at];
			bool far = node_of(w, h->rank) != node_of(w, to);

			if (best.rank < 0 || far < best_far ||
			    (far == best_far &&
			     w->load[h->rank] < w->load[best.rank])) {
				best = *h;
				best_far = far;
			}
		}
	}
	return best;
}

/* Returns how many classes, from position `at` on, are sources of this term. */
static uint32_t term_classes(const struct overlay *o,
			     const struct overlay_cell *cell, uint32_t at,
			     int term)
{
	uint32_t n = 0;

	while (at + n < cell->sources &&
	       o->classes[cell->covers[at + n]].box->term == term)
		n++;
	return n;
}

static void find_from(struct walk *w, const struct overlay *o,
		      const struct overlay_cell *cell, struct ways_delivery *d)
{
	uint64_t bytes = boxes_elements(d->lo, d->hi, o->tensor->axes) *
			 type_bytes(o->tensor->type);
	uint32_t at = 0;

	for (int t = 0; t < d->terms; t++) {
		uint32_t n = term_classes(o, cell, at, t);
		const struct overlay_class *c = &o->classes[cell->covers[at]];

		if (w->way == DICOMM_WAY_LEADER && !d->adds)
			w->from[t] = o->holders[c->first];
		else
			w->from[t] =
				pick(w, o, cell->covers + at, n, d->owner.rank);
		if (w->from[t].rank != d->owner.rank)
			w->load[w->from[t].rank] += bytes;
		at += n;
	}
	d->from = w->from;
}

static dicomm_result_t deliver(struct walk *w, const struct overlay *o,
			       const struct overlay_cell *cell,
			       struct ways_delivery *d)
{
	find_from(w, o, cell, d);
	return w->fns->deliver(w->ctx, d);
}

/* Delivers a part of the cell to one of the owners, which passes it on to the
 * other ranks that want it. */
static dicomm_result_t deliver_to_one(struct walk *w, const struct overlay *o,
				      const struct overlay_cell *cell,
				      struct ways_delivery *d, uint32_t owner)
{
	d->owner = w->owners[owner];
	d->nothers = 0;
	d->others = w->others;
	for (uint32_t i = 0; i < w->nwanters; i++)
		if (w->wanters[i].rank != d->owner.rank)
			w->others[d->nothers++] = w->wanters[i];
	w->load[d->owner.rank] +=
		boxes_elements(d->lo, d->hi, o->tensor->axes) *
		type_bytes(o->tensor->type) * d->nothers;
	TRY(deliver(w, o, cell, d));
	d->nothers = 0;
	for (uint32_t i = 0; i < w->nowners && w->all_make; i++) {
		d->owner = w->owners[i];
		if (i != owner)
			TRY(deliver(w, o, cell, d));
	}
	return DICOMM_SUCCESS;
}

/* Returns the share of a rank in what several ranks want, in proportion to the
 * rate at which it receives and sends. */
static uint64_t share(const struct walk *w, int rank)
{
	const struct links *l = w->in->links;
	uint64_t way;

	if (!links_matter(l))
		return 1;
	way = links_way(l, l->node_of[rank]) / l->ranks_of[l->node_of[rank]];
	way >>= 20; /* so that sums do not overflow */
	return way ? way : 1;
}

/* Returns the axis along which shares are cut. That is the outermost one that
 * is long enough, so that shares are long runs; otherwise the longest one. */
static int share_axis(const struct overlay_cell *cell, int axes, uint32_t n)
{
	int longest = 0;

	for (int a = 0; a < axes; a++) {
		int64_t len = cell->hi[a] - cell->lo[a];

		if (len >= (int64_t)n)
			return a;
		if (len > cell->hi[longest] - cell->lo[longest])
			longest = a;
	}
	return longest;
}

static uint32_t least_loaded(const struct walk *w)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < w->nowners; i++)
		if (w->load[w->owners[i].rank] < w->load[w->owners[best].rank])
			best = i;
	return best;
}

/* Delivers the part [lo, hi) of the axis in one share for each of n ranks. The
 * first rank changes from cell to cell. So if there are fewer shares than
 * ranks, it is not always the same ranks that get nothing. */
static dicomm_result_t scatter_part(struct walk *w, const struct overlay *o,
				    const struct overlay_cell *cell,
				    struct ways_delivery *d, uint32_t n,
				    int axis, int64_t lo, int64_t hi)
{
	uint64_t all = 0, sum = 0;

	for (uint32_t i = 0; i < n; i++)
		all += share(w, w->owners[(i + w->cells) % w->nowners].rank);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t me = (uint32_t)((i + w->cells) % w->nowners);
		uint64_t next = sum + share(w, w->owners[me].rank);

		d->lo[axis] = lo + (int64_t)((unsigned __int128)(hi - lo) *
					     sum / all);
		d->hi[axis] = lo + (int64_t)((unsigned __int128)(hi - lo) *
					     next / all);
		sum = next;
		if (d->lo[axis] != d->hi[axis])
			TRY(deliver_to_one(w, o, cell, d, me));
	}
	return DICOMM_SUCCESS;
}

/* Returns into how many parts a cell is cut, one after the other, such that
 * several fit into the staging memory of a rank: it receives a part, and sends
 * it on. Otherwise a round would have the shares of a few ranks only, and the
 * links of the others would be idle. A part keeps an index for each share. */
static int64_t parts(const struct walk *w, uint64_t bytes, int terms,
		     uint32_t n, int64_t len)
{
	uint64_t most = w->in->staging / (4 + 2 * (uint64_t)terms / n);
	int64_t k =
		most && most < bytes ? (int64_t)(1 + (bytes - 1) / most) : 1;

	if (k > PARTS)
		k = PARTS;
	return k <= len / n ? k : len < n ? 1 : len / n;
}

static dicomm_result_t scatter(struct walk *w, const struct overlay *o,
			       const struct overlay_cell *cell,
			       struct ways_delivery *d)
{
	uint64_t bytes = boxes_elements(cell->lo, cell->hi, o->tensor->axes) *
			 type_bytes(o->tensor->type);
	uint32_t n = w->nowners;
	int64_t lo, len, k;
	int axis;

	if (n > SHARES)
		n = SHARES;
	if (n > 1 + bytes / SHARE_BYTES)
		n = (uint32_t)(1 + bytes / SHARE_BYTES);
	if (n == 1)
		return deliver_to_one(w, o, cell, d, least_loaded(w));
	axis = share_axis(cell, o->tensor->axes, n);
	lo = cell->lo[axis];
	len = cell->hi[axis] - lo;
	k = parts(w, bytes, d->terms, n, len);
	for (int64_t i = 0; i < k; i++)
		TRY(scatter_part(w, o, cell, d, n, axis,
				 lo + (int64_t)((__int128)len * i / k),
				 lo + (int64_t)((__int128)len * (i + 1) / k)));
	return DICOMM_SUCCESS;
}

/* Finds the ranks that want the cell, each once. In a copy, ranks that hold the
 * cell already are left out; they keep it. */
static dicomm_result_t find_wanters(struct walk *w, const struct overlay *o,
				    const struct overlay_cell *cell,
				    struct ways_delivery *d)
{
	uint32_t keepers = 0;

	w->nwanters = w->nmore = 0;
	for (uint32_t i = 0; i < cell->sources && !d->adds; i++) {
		const struct overlay_class *c = &o->classes[cell->covers[i]];

		for (uint32_t h = c->first; h < c->first + c->n; h++) {
			w->has[o->holders[h].rank] = w->cells;
			w->has_box[o->holders[h].rank] = o->holders[h].box;
		}
	}
	for (uint32_t i = 0; i < cell->targets; i++) {
		const struct overlay_class *c =
			&o->classes[cell->covers[cell->sources + i]];

		for (uint32_t h = c->first; h < c->first + c->n; h++) {
			struct overlay_holder to = o->holders[h];

			if (w->wants[to.rank] == w->cells)
				w->more[w->nmore++] = to;
			else if (w->has[to.rank] == w->cells)
				w->others[keepers++] = to;
			else
				w->wanters[w->nwanters++] = to;
			w->wants[to.rank] = w->cells;
		}
	}
	d->more = w->more;
	d->nmore = w->nmore;
	for (uint32_t i = 0; i < keepers; i++) {
		struct overlay_holder from = {
			.rank = w->others[i].rank,
			.box = w->has_box[w->others[i].rank]};

		d->owner = w->others[i];
		d->from = &from;
		for (unsigned way = 1; way < WAYS; way++) {
			d->way = (dicomm_way_t)way;
			if (w->ways >> way & 1)
				TRY(w->fns->keep(w->ctx, d));
		}
	}
	return DICOMM_SUCCESS;
}

/* Returns true if it matters for time which links carry the bytes of a sum, not
 * only how many bytes there are. */
static bool links_are_unlike(const struct links *l)
{
	return links_matter(l) && (l->classes > 1 || l->islands > 1);
}

/* Sets the owners of the cell. A sum is made once for each element, or by ranks
 * that need nothing of others. This saves bytes, and it is necessary: in place,
 * the sum would overwrite terms that other ranks have yet to receive. */
static void set_owners(struct walk *w, const struct ways_delivery *d)
{
	bool shared = w->way == DICOMM_WAY_SCATTER && !w->sums.all_make &&
		      links_are_unlike(w->in->links);

	w->all_make = d->adds && w->sums.all_make;
	if (d->adds && !shared) {
		w->owners = w->sums.list;
		w->nowners = w->sums.n;
	} else {
		w->owners = w->wanters;
		w->nowners = w->nwanters;
	}
}

static dicomm_result_t take_way(struct walk *w, const struct overlay *o,
				const struct overlay_cell *cell,
				struct ways_delivery *d)
{
	set_owners(w, d);
	if (w->nowners > 1 && w->nwanters && w->way == DICOMM_WAY_SCATTER)
		return scatter(w, o, cell, d);
	if (w->way == DICOMM_WAY_LEADER)
		return deliver_to_one(w, o, cell, d, 0);
	if (d->adds)
		return deliver_to_one(w, o, cell, d, least_loaded(w));
	for (uint32_t i = 0; i < w->nwanters; i++) {
		d->owner = w->wanters[i];
		TRY(deliver(w, o, cell, d));
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t take_cell(void *ctx, const struct overlay *o,
				 const struct overlay_cell *cell)
{
	struct walk *w = ctx;
	const dicomm_tensor_t *t = &w->in->tensors[w->tensor];
	struct ways_delivery d = {.tensor = w->tensor,
				  .overlay = o,
				  .terms = t->terms ? t->terms : 1};

	if (w->check)
		TRY(overlay_check(w->in->tensors, w->tensor, o, cell,
				  w->in->unwanted));
	if (!cell->targets)
		return DICOMM_SUCCESS;
	w->cells++;
	memcpy(d.lo, cell->lo, sizeof(d.lo));
	memcpy(d.hi, cell->hi, sizeof(d.hi));
	d.adds = d.terms > 1 || (t->weights && t->weights[0] != 1);
	TRY(find_wanters(w, o, cell, &d));
	if (!w->nwanters)
		return DICOMM_SUCCESS;
	if (d.adds)
		owners_find(&w->sums, o, cell, w->wanters, &w->nwanters);
	for (unsigned way = 1; way < WAYS; way++) {
		struct ways_delivery of = d;

		if (!(w->ways >> way & 1))
			continue;
		of.way = w->way = (dicomm_way_t)way;
		w->load = w->loads[way];
		TRY(take_way(w, o, cell, &of));
	}
	return DICOMM_SUCCESS;
}

static void free_walk(struct walk *w)
{
	for (int i = 0; i < WAYS; i++)
		free(w->loads[i]);
	free(w->wants);
	free(w->has);
	free(w->has_box);
	free(w->wanters);
	free(w->more);
	free(w->from);
	free(w->others);
	owners_free(&w->sums);
}

static bool grow(struct overlay_holder **at, size_t n)
{
	free(*at);
	*at = malloc(n * sizeof(**at));
	return *at;
}

static dicomm_result_t make_room(struct walk *w, const dicomm_tensor_t *t)
{
	size_t terms = t->terms ? (size_t)t->terms : 1;
	bool good = true;

	if (t->targets >= w->room) {
		w->room = 2 * t->targets + 1;
		good = grow(&w->wanters, w->room) && grow(&w->more, w->room) &&
		       grow(&w->others, w->room);
	}
	if (terms > w->terms_room) {
		w->terms_room = terms;
		good = good && grow(&w->from, terms);
	}
	return good ? DICOMM_SUCCESS
		    : FAIL(DICOMM_ERR_NO_MEMORY,
			   "redistribute: no memory for %zu targets and %zu "
			   "terms",
			   t->targets, terms);
}

/* Returns true if an overlay of one tensor is valid for the other. */
static bool same_layout(const dicomm_tensor_t *a, const dicomm_tensor_t *b)
{
	return a->source == b->source && a->sources == b->sources &&
	       a->target == b->target && a->targets == b->targets &&
	       a->terms == b->terms && a->type == b->type &&
	       a->axes == b->axes &&
	       !memcmp(a->shape, b->shape, (size_t)a->axes * sizeof(*a->shape));
}

/* Finds the overlay of a tensor among those that are kept, or makes it. */
static dicomm_result_t find_overlay(struct overlay *kept, unsigned *next,
				    const dicomm_tensor_t *t,
				    struct overlay **out)
{
	for (unsigned i = 0; i < OVERLAYS; i++)
		if (kept[i].tensor && same_layout(kept[i].tensor, t)) {
			*out = &kept[i];
			return DICOMM_SUCCESS;
		}
	*out = &kept[*next];
	*next = (*next + 1) % OVERLAYS;
	overlay_free(*out);
	return overlay_make(*out, t);
}

dicomm_result_t ways_walk(const struct ways_input *in, unsigned ways,
			  bool check, const struct ways_fns *fns, void *ctx)
{
	struct walk w = {
		.in = in, .ways = ways, .check = check, .fns = fns, .ctx = ctx};
	struct overlay kept[OVERLAYS] = {{.tensor = NULL}}, *o;
	size_t ranks = (size_t)in->ranks;
	dicomm_result_t status = DICOMM_SUCCESS;
	bool good = true;
	unsigned next = 0;

	for (int i = 0; i < WAYS; i++) {
		w.loads[i] = calloc(ranks, sizeof(*w.loads[i]));
		good = good && w.loads[i];
	}
	w.wants = calloc(ranks, sizeof(*w.wants));
	w.has = calloc(ranks, sizeof(*w.has));
	w.has_box = calloc(ranks, sizeof(*w.has_box));
	if (!good || !w.wants || !w.has || !w.has_box)
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "redistribute: no memory for %zu ranks", ranks);
	if (status == DICOMM_SUCCESS)
		status = owners_make(&w.sums, in->ranks);
	for (size_t i = 0; i < in->n && status == DICOMM_SUCCESS; i++) {
		w.tensor = i;
		status = make_room(&w, &in->tensors[i]);
		if (status == DICOMM_SUCCESS)
			status = find_overlay(kept, &next, &in->tensors[i], &o);
		if (status == DICOMM_SUCCESS)
			status = overlay_walk(o, take_cell, &w);
	}
	for (unsigned i = 0; i < OVERLAYS; i++)
		overlay_free(&kept[i]);
	free_walk(&w);
	return status;
}
