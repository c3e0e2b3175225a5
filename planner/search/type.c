/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The space of types: pipelines are alike, each of their stages is of one type,
 * and stages of a type follow each other. All of it is looked at: which types
 * take part, in which order, the degree of each, how many pipelines, which
 * micro-batch; what a lower bound rules out is not estimated.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/search/search.h"

#define GROUPS_MOST 16
/* More orders and degrees than this are not all looked at. */
#define ORDERS_MOST 4096
/* Rates that differ by so much are one rate, measured twice. */
#define ALIKE 1.1

/* Nodes that stages are made of as if they were of one kind. */
struct group {
	int kind;       /* the first one; stands for all */
	uint32_t *node; /* [nodes]; owned */
	int nodes;
	int degree[SEARCH_DEGREES], degrees;
	double speed, memory; /* of all, of one device */
};

struct types {
	struct search_worker *w;
	struct group group[GROUPS_MOST];
	int groups;
	int micro_batch;
	int order[GROUPS_MOST], tp[GROUPS_MOST], n; /* chosen so far */
	double best;
	long number;
	int want; /* groups that take part */
};

static int ranks_of(const struct types *t, int group)
{
	const struct fleet *f = &t->w->s->job->fleet;

	return (int)f->kind[t->group[group].kind].ranks;
}

/* Teams of a group, if each has tp ranks of one node. */
static int teams_of(const struct types *t, int group, int tp)
{
	return t->group[group].nodes * (ranks_of(t, group) / tp);
}

/* Its team number i: node by node. */
static struct draft_team team_at(const struct types *t, int group, int tp,
				 int i)
{
	const struct fleet *f = &t->w->s->job->fleet;
	int each = ranks_of(t, group) / tp;
	uint32_t node = t->group[group].node[i / each];

	return (struct draft_team){f->first[node] + (uint32_t)(i % each * tp),
				   tp};
}

/* No draft can be faster: all stages busy with layers of their fastest share,
 * nothing else to do. */
static double bound(const struct types *t, int lines)
{
	struct job *j = t->w->s->job;
	double speed = 0;
	int m = j->global_batch / t->micro_batch;

	for (int i = 0; i < t->n; i++) {
		const struct table *x = table_of(j, t->group[t->order[i]].kind,
						 t->tp[i], t->micro_batch, 1);
		int stages = teams_of(t, t->order[i], t->tp[i]) / lines;
		double all;

		if (!x || x->missing)
			return INFINITY;
		all = x->forward[model_units(&j->model)] +
		      x->backward[model_units(&j->model)];
		speed += stages / all;
	}
	return (m + lines - 1) / lines / speed;
}

/* Of each kind, stages in turn: those of one stage are neighbours (their
 * gradients meet within a node), or those of one pipeline are. Only some of the
 * pipelines are laid out. */
static bool lay_out(struct types *t, struct draft *d, int lines, int some,
		    bool stagewise)
{
	draft_init(d, t->micro_batch);
	for (int l = 0; l < some; l++)
		if (!draft_add_line(d))
			return false;
	for (int i = 0; i < t->n; i++) {
		int stages = teams_of(t, t->order[i], t->tp[i]) / lines;

		for (int s = 0; s < stages; s++) {
			for (int l = 0; l < some; l++) {
				int at = stagewise ? s * lines + l
						   : l * stages + s;

				if (!draft_add_team(&d->line[l],
						    d->line[l].teams,
						    team_at(t, t->order[i],
							    t->tp[i], at)))
					return false;
			}
		}
	}
	return true;
}

static void try_lines(struct types *t, int lines)
{
	struct search_worker *w = t->w;
	int stages = 0;

	for (int i = 0; i < t->n; i++) {
		int own = teams_of(t, t->order[i], t->tp[i]) / lines;

		if (own < 1)
			return;
		stages += own;
	}
	if (stages > model_units(&w->s->job->model) ||
	    lines * t->micro_batch > w->s->job->global_batch)
		return;
	t->number++;
	if (t->number % w->workers != w->index || bound(t, lines) > t->best)
		return;
	for (int k = 0; k < 2; k++) {
		struct draft d = {0};
		bool good = lay_out(t, &d, lines, 1, k);

		if (good &&
		    draft_first_line(&w->g, &d, lines, t->best) > t->best) {
			draft_free(&d);
			continue;
		}
		draft_free(&d);
		if (good && lay_out(t, &d, lines, lines, k)) {
			search_look(w, &d, t->number * 2 + k);
			/* A margin, as estimates are not the last word. */
			t->best = fmin(t->best, d.seconds * SEARCH_MARGIN_TYPE);
		} else {
			w->bad = true;
		}
		draft_free(&d);
	}
}

/* All numbers of pipelines. */
static void try_order(struct types *t)
{
	int most = 1 << 30;

	if (t->w->bad || search_over(t->w))
		return;
	for (int i = 0; i < t->n; i++) {
		int teams = teams_of(t, t->order[i], t->tp[i]);

		most = teams < most ? teams : most;
	}
	for (int lines = 1; lines <= most; lines++) {
		/* Beyond a few, those that use all teams of some group. */
		bool whole = lines <= 8;

		for (int i = 0; i < t->n; i++)
			whole |=
				teams_of(t, t->order[i], t->tp[i]) % lines == 0;
		if (whole)
			try_lines(t, lines);
	}
}

static void try_degrees(struct types *t, int at)
{
	const struct group *g;

	if (at == t->n) {
		try_order(t);
		return;
	}
	g = &t->group[t->order[at]];
	for (int i = 0; i < g->degrees; i++) {
		t->tp[at] = g->degree[i];
		try_degrees(t, at + 1);
	}
}

static void try_orders(struct types *t, unsigned used)
{
	if (t->n == t->want) {
		try_degrees(t, 0);
		return;
	}
	for (int k = 0; k < t->groups; k++) {
		if (used & 1u << k)
			continue;
		t->order[t->n++] = k;
		try_orders(t, used | 1u << k);
		t->n--;
	}
}

/* ---- where there are too many to look at all ---- */

static void set_degrees(struct types *t, int cap)
{
	for (int i = 0; i < t->n; i++) {
		const struct group *g = &t->group[t->order[i]];

		for (int k = 0; k < g->degrees && g->degree[k] <= cap; k++)
			t->tp[i] = g->degree[k];
	}
}

/* One cap for the degrees of all; and one group after the other with each of
 * its own, beside that. */
static void try_some_degrees(struct types *t, bool each)
{
	for (int cap = 1; cap <= 64; cap *= 2) {
		set_degrees(t, cap);
		try_order(t);
		for (int i = 0; i < t->n && each; i++) {
			const struct group *g = &t->group[t->order[i]];

			for (int k = 0; k < g->degrees; k++) {
				set_degrees(t, cap);
				if (g->degree[k] == t->tp[i])
					continue;
				t->tp[i] = g->degree[k];
				try_order(t);
			}
		}
	}
}

enum sort { BY_MEMORY, BY_MEMORY_BACK, BY_SPEED, BY_SPEED_BACK, SORTS };

static double rank_by(const struct group *g, enum sort sort)
{
	double x = sort < BY_SPEED ? g->memory : g->speed;

	return sort == BY_MEMORY_BACK || sort == BY_SPEED_BACK ? -x : x;
}

static void sort_order(struct types *t, enum sort sort)
{
	for (int i = 1; i < t->n; i++)
		for (int k = i;
		     k > 0 && rank_by(&t->group[t->order[k]], sort) >
				      rank_by(&t->group[t->order[k - 1]], sort);
		     k--) {
			int x = t->order[k];

			t->order[k] = t->order[k - 1];
			t->order[k - 1] = x;
		}
}

/* All groups but one (-1: all), and of what is left the fastest so many. */
static void choose(struct types *t, int without, int most)
{
	t->n = 0;
	for (int k = 0; k < t->groups; k++)
		if (k != without)
			t->order[t->n++] = k;
	sort_order(t, BY_SPEED);
	if (t->n > most)
		t->n = most;
}

/* In the orders of memory and speed: all, all but one, the fastest few. */
static void try_some(struct types *t)
{
	for (int sort = 0; sort < SORTS; sort++) {
		choose(t, -1, t->groups);
		sort_order(t, (enum sort)sort);
		try_some_degrees(t, true);
		for (int k = 0; k < t->groups; k++) {
			choose(t, k, t->groups);
			sort_order(t, (enum sort)sort);
			try_some_degrees(t, false);
		}
		for (int most = t->groups - 2; most > 0; most--) {
			choose(t, -1, most);
			sort_order(t, (enum sort)sort);
			try_some_degrees(t, most == 1);
		}
	}
}

/* ---- groups ---- */

static bool is_near(uint64_t a, uint64_t b)
{
	double x = (double)a, y = (double)b;

	return x <= ALIKE * y && y <= ALIKE * x;
}

static bool is_alike(const struct fleet_kind *a, const struct fleet_kind *b)
{
	const struct links_class *x = &a->class, *y = &b->class;

	return a->type == b->type && a->ranks == b->ranks &&
	       is_near(x->nic.up, y->nic.up) &&
	       is_near(x->nic.down, y->nic.down) && is_near(x->rank, y->rank) &&
	       is_near(x->inside, y->inside);
}

static bool fill_group(struct types *t, struct group *g)
{
	const struct fleet *f = &t->w->s->job->fleet;
	const struct fleet_kind *kind = &f->kind[g->kind];
	const struct fleet_type *type = &f->type[kind->type];

	g->node = calloc(f->nodes, sizeof(*g->node));
	for (uint32_t i = 0; g->node && i < f->nodes; i++)
		if (is_alike(kind, &f->kind[f->kind_of[i]]) &&
		    fleet_usable(f, i, f->first[i]) == kind->ranks)
			g->node[g->nodes++] = i;
	g->degrees = search_degrees(t->w->s->job, g->kind, g->degree);
	g->memory = type->memory - type->reserved;
	g->speed = type->flops * type->efficiency * kind->ranks * g->nodes;
	return g->node;
}

/* False: more than there is room for, or no memory. */
static bool find_groups(struct types *t)
{
	const struct fleet *f = &t->w->s->job->fleet;

	for (int k = 0; k < f->kinds; k++) {
		bool known = false;

		for (int i = 0; i < t->groups; i++)
			known |= is_alike(&f->kind[t->group[i].kind],
					  &f->kind[k]);
		if (known)
			continue;
		if (t->groups == GROUPS_MOST)
			return false;
		t->group[t->groups].kind = k;
		if (!fill_group(t, &t->group[t->groups++])) {
			t->w->bad = true;
			return false;
		}
		/* None of its nodes is whole. */
		if (!t->group[t->groups - 1].nodes)
			free(t->group[--t->groups].node);
	}
	return true;
}

/* Orders of all subsets, each with all degrees. */
static double count_orders(const struct types *t)
{
	double n = 0, one = 1;

	for (int k = 0; k < t->groups; k++) {
		one *= (k + 1.0) * t->group[k].degrees;
		n += one;
	}
	return n;
}

void search_type(struct search_worker *w)
{
	struct types t = {.w = w, .best = INFINITY};
	int batch[SEARCH_SIZES], batches = search_batches(w->s, batch);
	bool good = find_groups(&t);

	for (int i = 0; i < batches && good; i++) {
		t.micro_batch = batch[i];
		if (count_orders(&t) > ORDERS_MOST) {
			try_some(&t);
			continue;
		}
		/* All first: what they reach rules out most of the rest. */
		for (t.want = t.groups; t.want > 0; t.want--)
			try_orders(&t, 0);
	}
	for (int k = 0; k < t.groups; k++)
		free(t.group[k].node);
}
