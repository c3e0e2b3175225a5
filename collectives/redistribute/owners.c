/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds where a sum is made with the fewest bytes. */
#include "collectives/redistribute/owners.h"

#include <stdlib.h>

#include "src/base/log.h"

dicomm_result_t owners_make(struct owners *w, int ranks)
{
	size_t n = (size_t)ranks;

	*w = (struct owners){.list = calloc(n, sizeof(*w->list)),
			     .rank = calloc(n, sizeof(*w->rank)),
			     .counted = calloc(n, sizeof(*w->counted))};
	if (w->list && w->rank && w->counted)
		return DICOMM_SUCCESS;
	owners_free(w);
	return FAIL(DICOMM_ERR_NO_MEMORY,
		    "redistribute: no memory for sums of %d ranks", ranks);
}

void owners_free(struct owners *w)
{
	free(w->list);
	free(w->rank);
	free(w->counted);
	*w = (struct owners){.n = 0};
}

static struct owners_rank *count(struct owners *w, int rank)
{
	struct owners_rank *r = &w->rank[rank];

	if (!r->counted) {
		*r = (struct owners_rank){
			.last = -1, .box = OWNERS_NO_BOX, .counted = true};
		w->counted[w->ncounted++] = rank;
	}
	return r;
}

/* Counts the terms of each rank, each once: classes are sorted by term, and a
 * rank may have several boxes of one term. */
static void count_terms(struct owners *w, const struct overlay *o,
			const struct overlay_cell *cell)
{
	for (uint32_t i = 0; i < cell->sources; i++) {
		const struct overlay_class *c = &o->classes[cell->covers[i]];

		for (uint32_t h = c->first; h < c->first + c->n; h++) {
			struct owners_rank *r = count(w, o->holders[h].rank);

			r->held += r->last != c->box->term;
			r->last = c->box->term;
		}
	}
}

/* Takes the ranks that hold all terms out of the wanters. */
static void take_complete(struct owners *w, uint32_t terms,
			  struct overlay_holder *wanters, uint32_t *nwanters)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < *nwanters; i++)
		if (w->rank[wanters[i].rank].held == terms)
			w->list[w->n++] = wanters[i];
		else
			wanters[left++] = wanters[i];
	*nwanters = left;
	w->all_make = w->n;
}

/* Takes the ranks with which the fewest bytes move. Among these, the ones that
 * want the result come before ranks that would have to keep it in staging
 * memory. */
static void take_best(struct owners *w)
{
	uint32_t best = 0;

	for (uint32_t i = 0; i < w->ncounted; i++) {
		int rank = w->counted[i];
		const struct owners_rank *r = &w->rank[rank];
		bool wants = r->box != OWNERS_NO_BOX;
		uint32_t value = 2 * (r->held + wants) + wants;

		if (value > best)
			w->n = 0;
		if (value < best)
			continue;
		best = value;
		w->list[w->n++] = (struct overlay_holder){rank, r->box};
	}
}

void owners_find(struct owners *w, const struct overlay *o,
		 const struct overlay_cell *cell,
		 struct overlay_holder *wanters, uint32_t *nwanters)
{
	uint32_t terms = o->tensor->terms ? (uint32_t)o->tensor->terms : 1;

	w->n = 0;
	count_terms(w, o, cell);
	for (uint32_t i = 0; i < *nwanters; i++)
		count(w, wanters[i].rank)->box = wanters[i].box;
	take_complete(w, terms, wanters, nwanters);
	if (!w->all_make)
		take_best(w);
	while (w->ncounted)
		w->rank[w->counted[--w->ncounted]].counted = false;
}
