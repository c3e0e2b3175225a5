/* SPDX-License-Identifier: BSD-3-Clause */
/* Drafts of plans: how they are made. */
#include "planner/search/draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool drafting_open(struct drafting *g, struct job *j)
{
	*g = (struct drafting){.job = j, .slack = 1};
	g->memo = calloc(DRAFT_MEMOS, sizeof(*g->memo));
	g->stage = calloc(MODEL_UNITS_MOST, sizeof(*g->stage));
	g->scratch = calloc(MODEL_UNITS_MOST, sizeof(*g->scratch));
	g->route = calloc(MODEL_UNITS_MOST, sizeof(*g->route));
	g->experts = 1;
	g->node_first = calloc(j->fleet.nodes, sizeof(*g->node_first));
	g->routes = calloc(j->fleet.nodes, sizeof(*g->routes));
	g->sums = calloc(j->fleet.nodes, 2 * sizeof(*g->sums));
	g->at = calloc(j->fleet.ranks, sizeof(*g->at));
	g->carried = calloc(j->fleet.nodes, 4 * sizeof(*g->carried));
	if (g->memo && g->stage && g->scratch && g->route && g->node_first &&
	    g->routes && g->sums && g->at && g->carried)
		return true;
	drafting_close(g);
	return false;
}

void drafting_close(struct drafting *g)
{
	for (int i = 0; g->memo && i < DRAFT_MEMOS; i++) {
		free(g->memo[i].last);
		free(g->memo[i].recompute);
	}
	free(g->memo);
	free(g->stage);
	free(g->scratch);
	free(g->route);
	free(g->node_first);
	free(g->routes);
	free(g->sums);
	free(g->at);
	free(g->carried);
	*g = (struct drafting){0};
}

void drafting_forget(struct drafting *g)
{
	for (int i = 0; i < DRAFT_MEMOS; i++)
		g->memo[i].key = 0;
}

/* ---- making them ---- */

void draft_init(struct draft *d, int micro_batch)
{
	*d = (struct draft){
		.micro_batch = micro_batch, .experts = 1, .seconds = INFINITY};
}

void draft_free(struct draft *d)
{
	for (int i = 0; i < d->room; i++) {
		free(d->line[i].team);
		free(d->line[i].last);
		free(d->line[i].recompute);
	}
	free(d->line);
	*d = (struct draft){0};
}

static bool grow_lines(struct draft *d, int room)
{
	struct draft_line *line;

	if (room <= d->room)
		return true;
	line = realloc(d->line, (size_t)room * sizeof(*line));
	if (!line)
		return false;
	memset(line + d->room, 0, (size_t)(room - d->room) * sizeof(*line));
	d->line = line;
	d->room = room;
	return true;
}

static bool grow_line(struct draft_line *l, int room)
{
	struct draft_team *team;
	int *last;
	bool *recompute;

	if (room <= l->room)
		return true;
	room = room < 8 ? 8 : room * 2;
	team = realloc(l->team, (size_t)room * sizeof(*team));
	if (team)
		l->team = team;
	last = realloc(l->last, (size_t)room * sizeof(*last));
	if (last)
		l->last = last;
	recompute = realloc(l->recompute, (size_t)room * sizeof(*recompute));
	if (recompute)
		l->recompute = recompute;
	if (!team || !last || !recompute)
		return false;
	l->room = room;
	return true;
}

bool draft_add_line(struct draft *d)
{
	if (d->lines == d->room && !grow_lines(d, d->room * 2 + 1))
		return false;
	d->line[d->lines].teams = 0;
	d->line[d->lines++].micro_batch = d->micro_batch;
	return true;
}

bool draft_add_team(struct draft_line *l, int at, struct draft_team team)
{
	if (!grow_line(l, l->teams + 1))
		return false;
	memmove(l->team + at + 1, l->team + at,
		(size_t)(l->teams - at) * sizeof(team));
	l->team[at] = team;
	l->teams++;
	return true;
}

struct draft_team draft_take_team(struct draft_line *l, int at)
{
	struct draft_team team = l->team[at];

	l->teams--;
	memmove(l->team + at, l->team + at + 1,
		(size_t)(l->teams - at) * sizeof(team));
	return team;
}

bool draft_copy(struct draft *to, const struct draft *from)
{
	if (!grow_lines(to, from->lines))
		return false;
	for (int i = 0; i < from->lines; i++) {
		const struct draft_line *a = &from->line[i];
		struct draft_line *b = &to->line[i];
		size_t n = (size_t)a->teams;

		if (!grow_line(b, a->teams))
			return false;
		memcpy(b->team, a->team, n * sizeof(*a->team));
		memcpy(b->last, a->last, n * sizeof(*a->last));
		memcpy(b->recompute, a->recompute, n * sizeof(*a->recompute));
		b->teams = a->teams;
		b->micro_batch = a->micro_batch;
		b->micro_batches = a->micro_batches;
		b->fill = a->fill;
		b->cycle = a->cycle;
	}
	to->lines = from->lines;
	to->micro_batch = from->micro_batch;
	to->thin = from->thin;
	to->zero = from->zero;
	to->experts = from->experts;
	to->seconds = from->seconds;
	return true;
}

/* ---- the plan ---- */

bool draft_plan(const struct drafting *g, const struct draft *d,
		struct plan *out)
{
	*out = (struct plan){.seq = g->job->seq,
			     .global_batch = g->job->global_batch,
			     .schedule = g->schedule,
			     .overlap = g->overlap,
			     .zero = d->zero,
			     .experts = d->experts,
			     .capacity = g->job->capacity,
			     .ahead = g->ahead};
	snprintf(out->model, sizeof(out->model), "%s", g->job->model.name);
	for (int i = 0; i < d->lines; i++) {
		const struct draft_line *l = &d->line[i];
		struct plan_pipeline *p = plan_add_pipeline(out);
		int first = 0;

		if (!p)
			return false;
		p->micro_batch = l->micro_batch;
		p->micro_batches = l->micro_batches;
		for (int s = 0; s < l->teams; s++) {
			struct plan_stage *st =
				plan_add_stage(p, l->team[s].tp);

			if (!st)
				return false;
			for (int r = 0; r < st->tp; r++)
				st->rank[r] = l->team[s].rank + (uint32_t)r;
			st->first = first;
			st->last = l->last[s];
			st->recompute = l->recompute[s];
			first = st->last + 1;
		}
	}
	return true;
}
