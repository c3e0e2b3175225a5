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

#define KINDS_MOST 6

struct types {
	struct search_worker *w;
	int degree[KINDS_MOST][SEARCH_DEGREES], degrees[KINDS_MOST];
	int micro_batch;
	int order[KINDS_MOST], tp[KINDS_MOST], n; /* chosen so far */
	double best;
	long number;
	uint32_t *node[KINDS_MOST]; /* those of each kind; owned */
	int want;                   /* kinds that take part */
};

/* Teams of a kind, if each has tp ranks of one node. */
static int teams_of(const struct fleet *f, int kind, int tp)
{
	return (int)f->kind[kind].nodes * ((int)f->kind[kind].ranks / tp);
}

/* Its team number i: node by node. */
static struct draft_team team_at(const struct types *t, int kind, int tp, int i)
{
	const struct fleet *f = &t->w->s->job->fleet;
	int each = (int)f->kind[kind].ranks / tp;
	uint32_t node = t->node[kind][i / each];
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
		const struct table *x =
			table_of(j, t->order[i], t->tp[i], t->micro_batch);
		int stages = teams_of(&j->fleet, t->order[i], t->tp[i]) / lines;
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
	const struct fleet *f = &t->w->s->job->fleet;

	draft_init(d, t->micro_batch);
	for (int l = 0; l < some; l++)
		if (!draft_add_line(d))
			return false;
	for (int i = 0; i < t->n; i++) {
		int stages = teams_of(f, t->order[i], t->tp[i]) / lines;

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
		int own = teams_of(&w->s->job->fleet, t->order[i], t->tp[i]) /
			  lines;

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
			t->best = fmin(t->best, d.seconds * SEARCH_MARGIN);
		} else {
			w->bad = true;
		}
		draft_free(&d);
	}
}

static void try_degrees(struct types *t, int at)
{
	const struct fleet *f = &t->w->s->job->fleet;
	int most = 1 << 30;

	if (t->w->bad || search_over(t->w))
		return;
	if (at < t->n) {
		int kind = t->order[at];

		for (int i = 0; i < t->degrees[kind]; i++) {
			t->tp[at] = t->degree[kind][i];
			try_degrees(t, at + 1);
		}
		return;
	}
	for (int i = 0; i < t->n; i++) {
		int teams = teams_of(f, t->order[i], t->tp[i]);

		most = teams < most ? teams : most;
	}
	for (int lines = 1; lines <= most; lines++) {
		/* Beyond a few, those that use all teams of some kind. */
		bool whole = lines <= 8;

		for (int i = 0; i < t->n; i++)
			whole |=
				teams_of(f, t->order[i], t->tp[i]) % lines == 0;
		if (whole)
			try_lines(t, lines);
	}
}

static void try_orders(struct types *t, unsigned used)
{
	int kinds = t->w->s->job->fleet.kinds;

	if (t->n == t->want) {
		try_degrees(t, 0);
		return;
	}
	for (int k = 0; k < kinds; k++) {
		if (used & 1u << k)
			continue;
		t->order[t->n++] = k;
		try_orders(t, used | 1u << k);
		t->n--;
	}
}

static bool find_nodes(struct types *t, int kind)
{
	const struct fleet *f = &t->w->s->job->fleet;
	int n = 0;

	t->node[kind] = calloc(f->kind[kind].nodes, sizeof(uint32_t));
	for (uint32_t i = 0; t->node[kind] && i < f->nodes; i++)
		if (f->kind_of[i] == kind)
			t->node[kind][n++] = i;
	return t->node[kind] != NULL;
}

void search_type(struct search_worker *w)
{
	struct types t = {.w = w, .best = INFINITY};
	int batch[SEARCH_SIZES], batches = search_batches(w->s, batch);

	/* More kinds are for the other space. */
	if (w->s->job->fleet.kinds > KINDS_MOST)
		return;
	for (int k = 0; k < w->s->job->fleet.kinds && !w->bad; k++)
		w->bad = !find_nodes(&t, k);
	for (int k = 0; k < w->s->job->fleet.kinds; k++)
		t.degrees[k] = search_degrees(w->s->job, k, t.degree[k]);
	for (int i = 0; i < batches; i++) {
		t.micro_batch = batch[i];
		/* All first: what they reach rules out most of the rest. */
		for (t.want = w->s->job->fleet.kinds; t.want > 0; t.want--)
			try_orders(&t, 0);
	}
	for (int k = 0; k < KINDS_MOST; k++)
		free(t.node[k]);
}
