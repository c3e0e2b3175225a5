/* SPDX-License-Identifier: BSD-3-Clause */
/* The last word on drafts: by simulation. */
#include <math.h>
#include <string.h>

#include "planner/search/search.h"

/* Operations that are simulated to make a plan better. */
#define POLISHED 2000000

long search_operations(const struct draft *d)
{
	long n = 0;

	for (int i = 0; i < d->lines; i++)
		n += 6L * d->line[i].teams * d->line[i].micro_batches;
	return n;
}

double search_step(const struct search *s, const struct drafting *g,
		   const struct draft *d)
{
	struct plan p;
	struct cost c;
	double step = NAN;

	if (draft_plan(g, d, &p) && cost_of(s->job, &p, NULL, NULL, &c)) {
		step = c.fits ? c.step : INFINITY;
		cost_free(&c);
	}
	plan_close(&p);
	return step;
}

/* Of plans that are as good, one is told of. */
#define AS_GOOD 1e-6

static void drop(struct search_other *k)
{
	plan_close(&k->plan);
	cost_free(&k->cost);
}

/* Into the list of so many others, sorted; takes k over. */
static void take_other(struct search_found *out, int most,
		       struct search_other *k)
{
	double step = k->cost.step;
	int at = out->others;
	bool known = step <= out->cost.step * (1 + AS_GOOD);

	for (int i = 0; i < out->others; i++)
		known |= fabs(step / out->other[i].cost.step - 1) <= AS_GOOD;
	while (at > 0 && out->other[at - 1].cost.step > step)
		at--;
	if (known || at >= most) {
		drop(k);
		return;
	}
	if (out->others == most)
		drop(&out->other[--out->others]);
	for (int i = out->others++; i > at; i--)
		out->other[i] = out->other[i - 1];
	out->other[at] = *k;
}

void search_take(const struct search *s, struct search_found *out,
		 struct plan *p, struct cost *c, const char *from)
{
	struct search_other k = {*p, *c, from};

	if (!out->plan.pipelines || c->step < out->cost.step) {
		k = (struct search_other){out->plan, out->cost, out->from};
		out->plan = *p;
		out->cost = *c;
		out->from = from;
	}
	if (k.plan.pipelines)
		take_other(out, s->keep - 1, &k);
}

/* ---- better plans nearby ---- */

struct polish {
	const struct search *s;
	struct plan *p;
	struct cost *c;
	long left; /* operations */
	bool bad;
};

/* True, and the cost is that of the plan as it is, if that is better. */
static bool is_better(struct polish *k)
{
	struct cost c;

	for (int i = 0; i < k->p->pipelines; i++)
		k->left -= 6L * k->p->pipeline[i].stages *
			   k->p->pipeline[i].micro_batches;
	if (k->left < 0 || k->bad)
		return false;
	if (!cost_of(k->s->job, k->p, NULL, NULL, &c)) {
		k->bad = true;
		return false;
	}
	if (c.fits && c.step < k->c->step * (1 - 1e-9)) {
		cost_free(k->c);
		*k->c = c;
		return true;
	}
	cost_free(&c);
	return false;
}

/* Pipelines that share experts change alike: l is the first of them. */
static void shift(const struct polish *k, struct plan_pipeline *l, int s,
		  int by)
{
	for (int e = 0; e < plan_experts(k->p); e++) {
		l[e].stage[s].last += by;
		l[e].stage[s + 1].first += by;
	}
}

/* One layer over a boundary. */
static bool move_layer(struct polish *k, struct plan_pipeline *l, int s, int by)
{
	const struct plan_stage *a = &l->stage[s], *b = a + 1;

	if (by > 0 ? b->first == b->last : a->first == a->last)
		return false;
	shift(k, l, s, by);
	if (is_better(k))
		return true;
	shift(k, l, s, -by);
	return false;
}

static void turn(const struct polish *k, struct plan_pipeline *l, int s)
{
	for (int e = 0; e < plan_experts(k->p); e++)
		l[e].stage[s].recompute = !l[e].stage[s].recompute;
}

static bool turn_recompute(struct polish *k, struct plan_pipeline *l, int s)
{
	turn(k, l, s);
	if (is_better(k))
		return true;
	turn(k, l, s);
	return false;
}

static void give(const struct polish *k, struct plan_pipeline *a,
		 struct plan_pipeline *b, int n)
{
	for (int e = 0; e < plan_experts(k->p); e++) {
		a[e].micro_batches -= n;
		b[e].micro_batches += n;
	}
}

static bool move_micro_batch(struct polish *k, struct plan_pipeline *a,
			     struct plan_pipeline *b)
{
	if (a == b || a->micro_batches < 2 || a->micro_batch != b->micro_batch)
		return false;
	give(k, a, b, 1);
	if (is_better(k))
		return true;
	give(k, a, b, -1);
	return false;
}

static bool polish_pipeline(struct polish *k, struct plan_pipeline *l)
{
	bool better = false;

	for (int s = 0; s < l->stages && k->left > 0; s++) {
		for (int by = -1; by <= 1 && s + 1 < l->stages; by += 2)
			better |= move_layer(k, l, s, by);
		better |= turn_recompute(k, l, s);
	}
	for (int i = 0; i < k->p->pipelines && k->left > 0;
	     i += plan_experts(k->p))
		better |= move_micro_batch(k, l, &k->p->pipeline[i]);
	return better;
}

static bool polish(const struct search *s, struct plan *p, struct cost *c)
{
	struct polish k = {.s = s, .p = p, .c = c, .left = POLISHED};
	bool better = !s->by_memory;

	while (better && k.left > 0 && !k.bad) {
		better = false;
		for (int i = 0; i < p->pipelines; i += plan_experts(p))
			better |= polish_pipeline(&k, &p->pipeline[i]);
	}
	return !k.bad;
}

/* Takes k over. */
static void take_better(struct search_other *best, struct search_other *k)
{
	if (k->cost.fits &&
	    (!best->plan.pipelines || k->cost.step < best->cost.step)) {
		drop(best);
		*best = *k;
	} else {
		drop(k);
	}
}

/* Simulates the plan of a draft, polished or as it is; *best is the better one
 * of that and what it was. */
static bool simulate(const struct search *s, const struct drafting *g,
		     const struct draft *d, bool polished,
		     struct search_other *best)
{
	struct search_other k = {.from = best->from};
	struct search_other chunks = {.from = best->from};
	bool good = draft_plan(g, d, &k.plan);

	good = good && cost_of(s->job, &k.plan, NULL, NULL, &k.cost);
	if (!good) {
		plan_close(&k.plan);
		return false;
	}
	if (polished &&
	    (!polish(s, &k.plan, &k.cost) ||
	     !search_chunks(s, &k.plan, &chunks.plan, &chunks.cost))) {
		drop(&k);
		return false;
	}
	take_better(best, &k);
	if (chunks.plan.pipelines)
		take_better(best, &chunks);
	return true;
}

bool search_finish(const struct search *s, struct drafting *g, struct draft *d,
		   const char *from, struct search_found *out)
{
	/* A slower slowest stage may make the way through shorter. */
	static const double slacks[] = {1, 1.02, 1.05, 1.1};
	struct drafting was = *g;
	double best = INFINITY, slack = 1;
	int zero = d->zero;
	struct search_other found = {.from = from};
	bool good = simulate(s, g, d, false, &found);

	for (int z = was.zero; z <= was.zero_most && good; z++) {
		for (size_t k = 0; k < 4 && good; k++) {
			double step;

			drafting_forget(g);
			g->slack = slacks[k];
			g->zero = g->zero_most = z;
			draft_estimate(g, d);
			if (isinf(d->seconds))
				continue;
			step = search_step(s, g, d);
			good = !isnan(step);
			if (good && step < best * (1 - 1e-6)) {
				best = step;
				slack = slacks[k];
				zero = z;
			}
		}
	}
	if (good && !isinf(best)) {
		drafting_forget(g);
		g->slack = slack;
		g->zero = g->zero_most = zero;
		draft_estimate(g, d);
		good = simulate(s, g, d, true, &found);
	}
	drafting_forget(g);
	g->slack = was.slack;
	g->zero = was.zero;
	g->zero_most = was.zero_most;
	/* One plan of each draft: more of them would be alike. */
	if (good && found.plan.pipelines)
		search_take(s, out, &found.plan, &found.cost, from);
	else
		drop(&found);
	return good;
}
