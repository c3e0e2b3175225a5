/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is sought beside time, and limits of it. Devices that are in use cost;
 * so sets of them are looked at, so many of each type: from all of them, each
 * type alone, and what is within the limits, to whichever neighbour is best. A
 * set is judged by a short search; the last one has all the rounds. The short
 * ones go by the clock on large clusters, so the best set may be another one
 * the next time.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/input/input.h"
#include "planner/search/search.h"

#define SETS_MOST 128
/* Of large clusters each search takes long. */
#define RANKS_LARGE 256
#define EACH_S 0.5

struct choosing {
	const struct search *s;
	struct search probe;
	int *total, *node; /* [types]: devices; of the largest node */
	uint32_t *order;   /* [nodes]: those that are fast to reach first */
	int *tried;        /* [SETS_MOST][types] */
	double *value;     /* [SETS_MOST] */
	int sets, types;
	int best; /* of tried */
	struct search_found *out;
	double out_value;
};

bool search_is_plain(const struct search *s)
{
	return s->objective == SEARCH_TIME && !s->devices_most &&
	       s->price_most <= 0 && s->watts_most <= 0 && s->step_most_s <= 0;
}

/* ---- what sets and plans are worth ---- */

struct use {
	double devices, price, watts;
};

static void add_use(struct use *u, const struct fleet_type *t, double n)
{
	u->devices += n;
	u->price += n * (isnan(t->price) ? 0 : t->price);
	u->watts += n * (isnan(t->watts) ? 0 : t->watts);
}

/* What reaches the limit exactly is not beyond it for having been rounded. */
static bool is_at_most(double value, double most)
{
	return most <= 0 || value <= most * (1 + 1e-9);
}

static bool is_within(const struct search *s, const struct use *u)
{
	return (!s->devices_most || u->devices <= s->devices_most) &&
	       is_at_most(u->price, s->price_most) &&
	       is_at_most(u->watts, s->watts_most);
}

double search_value(const struct search *s, const struct plan *p,
		    const struct cost *c)
{
	struct use u = {0};

	for (int i = 0; i < p->pipelines; i++)
		for (int k = 0; k < plan_teams(&p->pipeline[i]); k++) {
			const struct plan_stage *st = &p->pipeline[i].stage[k];

			for (int r = 0; r < st->tp; r++)
				add_use(&u,
					fleet_type(&s->job->fleet, st->rank[r]),
					1);
		}
	if (!is_within(s, &u) || !is_at_most(c->step, s->step_most_s))
		return INFINITY;
	switch (s->objective) {
	case SEARCH_PRICE:
		/* Of those that cost the same, the fastest. */
		return u.price * (1 + 1e-9 * c->step) + 1e-15 * c->step;
	case SEARCH_TOKENS_PER_PRICE:
		return u.price * c->step;
	default:
		return c->step;
	}
}

static bool is_allowed(const struct choosing *c, const int *n)
{
	struct use u = {0};

	for (int t = 0; t < c->types; t++)
		add_use(&u, &c->s->job->fleet.type[t], n[t]);
	return u.devices > 0 && is_within(c->s, &u);
}

/* ---- one set ---- */

/* Whole nodes first, then a part of one. */
static void use_only(const struct choosing *c, const int *n)
{
	struct fleet *f = &c->s->job->fleet;

	memset(f->off, true, f->ranks * sizeof(*f->off));
	for (int t = 0; t < c->types; t++) {
		int left = n[t];

		for (int whole = 1; whole >= 0; whole--) {
			for (uint32_t i = 0; i < f->nodes && left > 0; i++) {
				uint32_t node = c->order[i];
				const struct fleet_kind *k =
					&f->kind[f->kind_of[node]];
				int use = (int)k->ranks;

				if (k->type != t || !f->off[f->first[node]] ||
				    (whole && use > left))
					continue;
				use = use < left ? use : left;
				memset(f->off + f->first[node], false,
				       (size_t)use * sizeof(*f->off));
				left -= use;
			}
		}
	}
}

/* False: no memory. */
static bool judge(struct choosing *c, const struct search *s, double *value)
{
	struct search_found found;

	*value = INFINITY;
	if (!search_spaces(s, &found)) {
		search_free(&found);
		return false;
	}
	if (found.plan.pipelines)
		*value = search_value(s, &found.plan, &found.cost);
	if (*value < c->out_value) {
		search_free(c->out);
		*c->out = found;
		c->out_value = *value;
	} else {
		search_free(&found);
	}
	return true;
}

static bool try(struct choosing *c, const int *n)
{
	size_t size = (size_t)c->types * sizeof(*n);

	if (c->sets == SETS_MOST || !is_allowed(c, n))
		return true;
	for (int i = 0; i < c->sets; i++)
		if (!memcmp(c->tried + i * c->types, n, size))
			return true;
	memcpy(c->tried + c->sets * c->types, n, size);
	use_only(c, n);
	if (!judge(c, &c->probe, &c->value[c->sets]))
		return false;
	if (c->best < 0 || c->value[c->sets] < c->value[c->best])
		c->best = c->sets;
	c->sets++;
	return true;
}

/* ---- neighbours ---- */

/* So many, or as many more as the limits allow; 0: less than none. */
static int reach(const struct choosing *c, int *n, int t, int want)
{
	int was = n[t];

	want = want < 0 ? 0 : want > c->total[t] ? c->total[t] : want;
	for (n[t] = want; n[t] > was && !is_allowed(c, n);)
		n[t]--;
	want = n[t];
	n[t] = was;
	return want;
}

static bool try_change(struct choosing *c, int *n, int t, int want)
{
	int was = n[t];
	bool good;

	n[t] = reach(c, n, t, want);
	good = try(c, n);
	n[t] = was;
	return good;
}

/* Twice as many and half as many, a node more and less, of one type, and a node
 * of one type for all that another one may then have. */
static bool try_neighbours(struct choosing *c, int *n)
{
	bool good = true;

	for (int t = 0; t < c->types && good; t++) {
		int was = n[t], node = c->node[t];

		good = try_change(c, n, t, was ? 2 * was : 1) &&
		       try_change(c, n, t, was + node) &&
		       try_change(c, n, t, was / 2) &&
		       try_change(c, n, t, was - node) &&
		       try_change(c, n, t, was - 1);
		for (int k = 0; k < c->types && good && was; k++) {
			if (k == t)
				continue;
			n[t] = was > node ? was - node : 0;
			good = try_change(c, n, k, c->total[k]) &&
			       try_change(c, n, k, n[k] + c->node[k]);
			n[t] = was;
		}
	}
	return good;
}

/* All; of each type alone; and all but what is too much, the slowest for what
 * they cost first. */
static bool try_starts(struct choosing *c, int *n)
{
	const struct fleet *f = &c->s->job->fleet;
	bool good;

	for (int t = 0; t < c->types; t++) {
		memset(n, 0, (size_t)c->types * sizeof(*n));
		if (!try_change(c, n, t, c->total[t]))
			return false;
	}
	memcpy(n, c->total, (size_t)c->types * sizeof(*n));
	good = try(c, n);
	while (good && !is_allowed(c, n)) {
		double least = INFINITY;
		int worst = -1;

		for (int t = 0; t < c->types; t++) {
			double worth = f->type[t].flops * f->type[t].efficiency;

			if (c->s->objective != SEARCH_TIME ||
			    c->s->price_most > 0)
				worth /= f->type[t].price > 0 ? f->type[t].price
							      : 1e-9;
			else if (c->s->watts_most > 0)
				worth /= f->type[t].watts > 0 ? f->type[t].watts
							      : 1e-9;
			if (n[t] && worth < least) {
				least = worth;
				worst = t;
			}
		}
		if (worst < 0)
			return true;
		n[worst]--;
	}
	return good && try(c, n);
}

/* ---- all of it ---- */

bool search_has_prices(const struct search *s)
{
	const struct fleet *f = &s->job->fleet;
	bool price = s->objective != SEARCH_TIME || s->price_most > 0;

	for (int t = 0; t < f->types; t++) {
		const struct fleet_type *type = &f->type[t];
		bool watts = s->watts_most > 0 && isnan(type->watts);

		if (!watts && !(price && isnan(type->price)))
			continue;
		input_complain("%s: devices.%s.%s: missing: wanted with %s",
			       f->file, type->name, watts ? "watts" : "price",
			       watts ? "--max-power"
				     : "--objective or "
				       "--max-price");
		return false;
	}
	return true;
}

static double way_of(const struct fleet *f, uint32_t node)
{
	uint64_t up = f->kind[f->kind_of[node]].class.nic.up;

	return up ? (double)up : INFINITY;
}

static bool open(struct choosing *c)
{
	const struct fleet *f = &c->s->job->fleet;
	size_t types = (size_t)f->types;

	c->types = f->types;
	c->total = calloc(types, sizeof(*c->total));
	c->node = calloc(types, sizeof(*c->node));
	c->order = calloc(f->nodes, sizeof(*c->order));
	c->tried = calloc(SETS_MOST * types, sizeof(*c->tried));
	c->value = calloc(SETS_MOST, sizeof(*c->value));
	if (!c->total || !c->node || !c->order || !c->tried || !c->value)
		return false;
	for (uint32_t i = 0; i < f->nodes; i++) {
		const struct fleet_kind *k = &f->kind[f->kind_of[i]];
		uint32_t at = i;

		c->total[k->type] += (int)k->ranks;
		if (c->node[k->type] < (int)k->ranks)
			c->node[k->type] = (int)k->ranks;
		for (; at > 0 && way_of(f, c->order[at - 1]) < way_of(f, i);
		     at--)
			c->order[at] = c->order[at - 1];
		c->order[at] = i;
	}
	return true;
}

static bool choose(struct choosing *c)
{
	int *n = calloc((size_t)c->types, sizeof(*n)), from = -1;
	struct search last = *c->s;
	double value;
	bool good = n && try_starts(c, n);

	while (good && c->best >= 0 && c->best != from) {
		from = c->best;
		memcpy(n, c->tried + from * c->types,
		       (size_t)c->types * sizeof(*n));
		good = try_neighbours(c, n);
	}
	if (good && c->best >= 0 && !isinf(c->value[c->best])) {
		last.budget_s /= 2;
		use_only(c, c->tried + c->best * c->types);
		good = judge(c, &last, &value);
	}
	free(n);
	return good;
}

bool search_objective(const struct search *s, struct search_found *out)
{
	struct choosing c = {.s = s,
			     .probe = *s,
			     .best = -1,
			     .out = out,
			     .out_value = INFINITY};
	struct fleet *f = &s->job->fleet;
	double begin = search_now();
	bool good;

	*out = (struct search_found){0};
	c.probe.rounds = 1;
	c.probe.progress = NULL;
	if (s->budget_s > 0)
		c.probe.budget_s = s->budget_s / 2 / SETS_MOST;
	else if (f->ranks > RANKS_LARGE)
		c.probe.budget_s = EACH_S;
	good = open(&c) && choose(&c);
	memset(f->off, false, f->ranks * sizeof(*f->off));
	out->sets = c.sets;
	out->all_s = search_now() - begin;
	free(c.total);
	free(c.node);
	free(c.order);
	free(c.tried);
	free(c.value);
	return good;
}
