/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All there is, for a few devices: each way to make teams of neighbours on a
 * node, to leave some idle, to spread them over pipelines, and each order in
 * these. What the other spaces are compared with.
 */
#include <math.h>
#include <string.h>

#include "planner/search/search.h"

#define RANKS_MOST 8

struct every {
	struct search_worker *w;
	struct draft_team team[RANKS_MOST];
	int teams, micro_batch;
	struct draft d;
	long number;
};

static void look(struct every *e)
{
	struct search_worker *w = e->w;

	e->number++;
	if (e->number % w->workers != w->index)
		return;
	search_look(w, &e->d, e->number);
}

/* Team i into any place of any pipeline, a new one, or none. Pipelines are
 * numbered by their first comer, so that no spread comes twice. */
static void place(struct every *e, int i)
{
	struct draft *d = &e->d;

	if (e->w->bad)
		return;
	if (i == e->teams) {
		if (d->lines > 0)
			look(e);
		return;
	}
	for (int l = 0; l < d->lines; l++) {
		for (int at = 0; at <= d->line[l].teams; at++) {
			e->w->bad |=
				!draft_add_team(&d->line[l], at, e->team[i]);
			place(e, i + 1);
			draft_take_team(&d->line[l], at);
		}
	}
	if (!draft_add_line(d) ||
	    !draft_add_team(&d->line[d->lines - 1], 0, e->team[i])) {
		e->w->bad = true;
		return;
	}
	place(e, i + 1);
	d->lines--;
	place(e, i + 1); /* idle */
}

static void make_teams(struct every *e, uint32_t rank)
{
	const struct fleet *f = &e->w->s->job->fleet;
	int degree[SEARCH_DEGREES], n;
	uint32_t node, end;

	if (rank == f->ranks) {
		place(e, 0);
		return;
	}
	node = f->links->node_of[rank];
	end = rank + fleet_usable(f, node, rank);
	if (end == rank)
		make_teams(e, rank + 1);
	n = search_degrees(e->w->s->job, f->kind_of[node], degree);
	for (int i = 0; i < n; i++) {
		if (rank + (uint32_t)degree[i] > end)
			continue;
		e->team[e->teams++] = (struct draft_team){rank, degree[i]};
		make_teams(e, rank + (uint32_t)degree[i]);
		e->teams--;
	}
}

void search_every(struct search_worker *w)
{
	struct every e = {.w = w};
	int batch[SEARCH_SIZES], batches = search_batches(w->s, batch);

	if (w->s->job->fleet.ranks > RANKS_MOST)
		return;
	for (int i = 0; i < batches; i++) {
		draft_free(&e.d);
		draft_init(&e.d, batch[i]);
		make_teams(&e, 0);
	}
	draft_free(&e.d);
}
