/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why nothing fits. With more memory something would: the least that is enough,
 * each type having so many times its own, is bracketed and halved, and what
 * that plan lacks is told. Where no memory is enough, something else is wrong.
 */
#include <math.h>
#include <stdlib.h>

#include "planner/input/input.h"
#include "planner/search/search.h"

#define TIMES_MOST 0x1p40
#define HALVINGS 5
/* Of large clusters, so long each: better a guess than a wait. */
#define RANKS_LARGE 256
#define EACH_S 0.5

static bool try(const struct search *s, const double *memory, double times,
		struct search_found *out)
{
	struct fleet *f = &s->job->fleet;
	struct search more = *s;
	struct search_found found;
	bool good;

	more.rounds = 1;
	more.budget_s = f->ranks > RANKS_LARGE ? EACH_S : 0;
	more.progress = NULL;
	for (int t = 0; t < f->types; t++)
		f->type[t].memory = memory[t] * times;
	good = search_spaces(&more, &found) && found.plan.pipelines;
	for (int t = 0; t < f->types; t++)
		f->type[t].memory = memory[t];
	if (good) {
		search_free(out);
		*out = found;
	} else {
		search_free(&found);
	}
	return good;
}

static bool find_nearest(const struct search *s, struct search_found *out)
{
	const struct fleet *f = &s->job->fleet;
	double *memory = calloc((size_t)f->types, sizeof(*memory));
	double low = 1, high = 2;

	for (int t = 0; memory && t < f->types; t++)
		memory[t] = f->type[t].memory;
	while (memory && high <= TIMES_MOST && !try(s, memory, high, out)) {
		low = high;
		high *= high;
	}
	for (int i = 0; i < HALVINGS && out->plan.pipelines; i++) {
		double middle = sqrt(low * high);

		if (try(s, memory, middle, out))
			high = middle;
		else
			low = middle;
	}
	free(memory);
	return out->plan.pipelines > 0;
}

/* The stage that lacks most. */
static const struct memory *find_fullest(const struct plan *p,
					 const struct cost *c,
					 const struct plan_pipeline **pipeline,
					 const struct plan_stage **stage)
{
	const struct memory *most = &c->pipeline[0].stage[0].memory;

	*pipeline = &p->pipeline[0];
	*stage = &p->pipeline[0].stage[0];
	for (int i = 0; i < c->pipelines; i++) {
		for (int s = 0; s < p->pipeline[i].stages; s++) {
			const struct memory *m =
				&c->pipeline[i].stage[s].memory;

			if (most &&
			    m->total - m->limit <= most->total - most->limit)
				continue;
			most = m;
			*pipeline = &p->pipeline[i];
			*stage = &p->pipeline[i].stage[s];
		}
	}
	return most;
}

static void tell_nearest(const struct search *s, const struct plan *p)
{
	const struct plan_pipeline *l;
	const struct plan_stage *st;
	const struct memory *m;
	struct cost c;

	if (!cost_of(s->job, p, NULL, NULL, &c))
		return;
	m = find_fullest(p, &c, &l, &st);
	input_complain(
		"the nearest plan needs %.2f GiB on each %s that has layers %d "
		"to %d (tensor-parallel %d, micro-batch %d, %d in flight): "
		"%.2f of weights, %.2f of gradients, %.2f of the optimizer, "
		"%.2f of activations%s, %.2f beside them, %.2f reserved; each "
		"has %.2f GiB: %.2f "
		"are missing",
		m->total / 0x1p30, fleet_type(&s->job->fleet, *st->rank)->name,
		st->first, st->last, st->tp, l->micro_batch, m->in_flight,
		m->weights / 0x1p30, m->gradients / 0x1p30,
		m->optimizer / 0x1p30, m->activations / 0x1p30,
		st->recompute ? ", recomputed" : "", m->work / 0x1p30,
		m->reserved / 0x1p30, m->limit / 0x1p30,
		(m->total - m->limit) / 0x1p30);
	cost_free(&c);
}

/* Something that the profile does not tell of all. */
static const struct table *find_missing(const struct search *s)
{
	struct job *j = s->job;
	int batch[SEARCH_SIZES], n = search_batches(s, batch);

	for (int k = 0; k < j->fleet.kinds && n; k++) {
		const struct table *t = table_of(j, k, 1, batch[0], 1);

		if (t && t->missing)
			return t;
	}
	return NULL;
}

void search_why(const struct search *s)
{
	struct search_found found = {0};
	const struct job *j = s->job;
	const struct table *missing;

	input_complain("no %splan fits: %s on the devices of %s with global "
		       "batch %d, sequence %d",
		       s->space == SEARCH_SYMMETRIC ? "symmetric " : "",
		       j->model.name, j->fleet.file, j->global_batch, j->seq);
	if (find_nearest(s, &found)) {
		tell_nearest(s, &found.plan);
		search_free(&found);
		return;
	}
	missing = find_missing(s);
	if (missing)
		input_complain("of the profile: %s", missing->why);
	else if (s->space == SEARCH_SYMMETRIC)
		input_complain("no memory is enough: the %u devices, %d heads, "
			       "%d layers and the batch have no divisors of "
			       "which such a plan can be made",
			       j->fleet.ranks, j->model.heads, j->model.layers);
	else
		input_complain("no memory is enough: there is no plan of %d "
			       "layers on %u devices",
			       j->model.layers, j->fleet.ranks);
}
