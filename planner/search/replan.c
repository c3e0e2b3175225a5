/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Of the plans that are about as fast as the fastest one, that for which least
 * moves: those that a search finds, and the old one without what was lost.
 * Teams of alike nodes take each other's place where they then have more of
 * what they need.
 */
#include "planner/search/replan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cost/check.h"
#include "planner/input/input.h"

/* ---- what is lost ---- */

static bool lose_host(struct job *j, const char *name)
{
	struct fleet *f = &j->fleet;
	bool found = false;

	for (uint32_t n = 0; n < f->nodes; n++) {
		const char *host = fleet_host(f, n);

		if (!*host ||
		    (strcmp(host, name) && (strncmp(host, name, strlen(name)) ||
					    host[strlen(name)] != '/')))
			continue;
		found = true;
		memset(f->off + f->first[n], true,
		       f->kind[f->kind_of[n]].ranks * sizeof(*f->off));
	}
	return found;
}

static bool lose_ranks(struct job *j, const char *text)
{
	char *end;
	unsigned long first = strtoul(text, &end, 10), last = first;

	if (end == text)
		return false;
	if (*end == '-') {
		text = end + 1;
		last = strtoul(text, &end, 10);
		if (end == text)
			return false;
	}
	if (*end || first > last || last >= j->fleet.ranks)
		return false;
	memset(j->fleet.off + first, true,
	       (last - first + 1) * sizeof(*j->fleet.off));
	return true;
}

bool replan_lose(struct job *j, const char *text)
{
	char *copy = strdup(text), *next = copy, *part;
	bool good = copy;

	while (good && (part = strsep(&next, ","))) {
		good = lose_host(j, part) || lose_ranks(j, part);
		if (!good)
			input_complain("--lost: %s: wanted the name of a host, "
				       "or ranks from 0 to %u",
				       part, j->fleet.ranks - 1);
	}
	free(copy);
	return good;
}

/* ---- what moves ---- */

/* A stage that a rank had in the old plan; tp 0: none. */
struct place {
	int first, last, at, tp;
};

struct places {
	struct place *of; /* [rank * each + chunk]; owned */
	int each;
};

static bool find_places(const struct job *j, const struct plan *p,
			struct places *out)
{
	out->each = 1;
	for (int i = 0; i < p->pipelines; i++)
		if (plan_chunks(&p->pipeline[i]) > out->each)
			out->each = plan_chunks(&p->pipeline[i]);
	out->of = calloc((size_t)j->fleet.ranks * (size_t)out->each,
			 sizeof(*out->of));
	for (int i = 0; out->of && i < p->pipelines; i++) {
		const struct plan_pipeline *l = &p->pipeline[i];

		for (int s = 0; s < l->stages; s++) {
			const struct plan_stage *st = &l->stage[s];
			size_t chunk = (size_t)(s / plan_teams(l));

			for (int r = 0; r < st->tp; r++)
				out->of[st->rank[r] * (size_t)out->each +
					chunk] = (struct place){
					st->first, st->last, r, st->tp};
		}
	}
	return out->of;
}

/* Where a rank had a unit; NULL: nowhere. */
static const struct place *place_of(const struct places *p, uint32_t rank,
				    int unit)
{
	const struct place *o = &p->of[rank * (size_t)p->each];

	for (int c = 0; c < p->each; c++)
		if (o[c].tp && unit >= o[c].first && unit <= o[c].last)
			return &o[c];
	return NULL;
}

/* Bytes of a unit that a restart needs: gradients are none of these. */
static double unit_bytes(const struct job *j, int unit)
{
	double state[3];

	table_state_bytes(j, state);
	return model_params(&j->model, unit) * (state[0] + state[2]);
}

static double stage_moves(const struct job *j, const struct places *old,
			  const struct plan_stage *st)
{
	double sum = 0;

	for (int r = 0; r < st->tp; r++) {
		double low = (double)r / st->tp, high = (r + 1.0) / st->tp;

		for (int u = st->first; u <= st->last; u++) {
			const struct place *o = place_of(old, st->rank[r], u);
			double has = 0;

			if (o)
				has = fmin(high, (o->at + 1.0) / o->tp) -
				      fmax(low, (double)o->at / o->tp);
			sum += (high - low - fmax(0, has)) * unit_bytes(j, u);
		}
	}
	return sum;
}

static double moves(const struct job *j, const struct places *old,
		    const struct plan *new)
{
	double sum = 0;

	for (int i = 0; i < new->pipelines; i++)
		for (int s = 0; s < new->pipeline[i].stages; s++)
			sum += stage_moves(j, old, &new->pipeline[i].stage[s]);
	return sum;
}

double replan_moves(const struct job *j, const struct plan *old,
		    const struct plan *new)
{
	struct places places;
	double sum =
		find_places(j, old, &places) ? moves(j, &places, new) : NAN;

	free(places.of);
	return sum;
}

#define PARTS 840 /* most degrees divide it */

/* What ZeRO spreads over those that have a part is gone with each of them. */
static double find_gone(const struct job *j, const struct plan *plan,
			const struct places *old)
{
	double state[3], gone = 0;

	table_state_bytes(j, state);
	for (int u = 0; u < model_units(&j->model); u++) {
		int had[PARTS] = {0}, has[PARTS] = {0};
		double missing = 0, spread = 0;

		for (uint32_t r = 0; r < j->fleet.ranks; r++) {
			const struct place *o = place_of(old, r, u);

			if (!o)
				continue;
			for (int k = 0; k < PARTS; k++) {
				if (k * o->tp / PARTS != o->at)
					continue;
				had[k]++;
				has[k] += !j->fleet.off[r];
			}
		}
		for (int k = 0; k < PARTS; k++) {
			missing += !has[k];
			spread += had[k] ? 1 - (double)has[k] / had[k] : 1;
		}
		gone += model_params(&j->model, u) / PARTS *
			(state[0] * (plan->zero >= 3 ? spread : missing) +
			 state[2] * (plan->zero >= 1 ? spread : missing));
	}
	return gone;
}

/* ---- candidates ---- */

#define CANDIDATES 8

struct replanning {
	const struct search *s;
	const struct plan *old;
	struct places places;
	struct plan plan[CANDIDATES];
	struct cost cost[CANDIDATES];
	int n, searched; /* the first so many were found by a search */
};

static void ignore(const char *text, void *ctx)
{
	(void)text;
	(void)ctx;
}

/* Takes the plan over. */
static bool add(struct replanning *k, struct plan *p)
{
	struct cost *c = &k->cost[k->n];

	if (k->n == CANDIDATES || check_plan(k->s->job, p, ignore, NULL)) {
		plan_close(p);
		return true;
	}
	if (!cost_of(k->s->job, p, NULL, NULL, c)) {
		plan_close(p);
		return false;
	}
	k->plan[k->n++] = *p;
	return true;
}

/* What is left of a team: all of it, or the longest part of it that may be a
 * team. False: nothing. */
static bool find_rest(const struct job *j, const struct plan_stage *st,
		      struct draft_team *out)
{
	const struct fleet *f = &j->fleet;

	*out = (struct draft_team){0};
	for (int r = 0; r < st->tp; r++) {
		uint32_t node = f->links->node_of[st->rank[r]];
		int run = (int)fleet_usable(f, node, st->rank[r]);

		/* Drafts have neighbours in teams. */
		for (int i = 1; i < run && r + i < st->tp; i++)
			if (st->rank[r + i] != st->rank[r] + (uint32_t)i)
				run = i;
		if (run > st->tp - r)
			run = st->tp - r;
		while (run > 0 && j->model.heads % run)
			run--;
		if (run > out->tp)
			*out = (struct draft_team){st->rank[r], run};
	}
	return out->tp > 0;
}

enum repair { PIPELINES, TEAMS, RESTS, REPAIRS };

static bool lay_out(const struct replanning *k, enum repair how,
		    struct draft *d)
{
	draft_init(d, k->old->pipeline[0].micro_batch);
	for (int i = 0; i < k->old->pipelines; i++) {
		const struct plan_pipeline *l = &k->old->pipeline[i];
		struct draft_line *line;
		bool whole = true;

		if (!draft_add_line(d))
			return false;
		line = &d->line[d->lines - 1];
		line->micro_batch = l->micro_batch;
		line->teams = 0;
		for (int s = 0; s < plan_teams(l); s++) {
			struct draft_team rest;
			bool some = find_rest(k->s->job, &l->stage[s], &rest);

			whole &= some && rest.tp == l->stage[s].tp;
			if (!some ||
			    (how != RESTS && rest.tp != l->stage[s].tp))
				continue;
			if (!draft_add_team(line, line->teams, rest))
				return false;
		}
		if (!line->teams || (how == PIPELINES && !whole))
			d->lines--;
	}
	return true;
}

/* As it was, but for its micro-batches. False: no memory. */
static bool keep_pipeline(struct plan *p, struct plan_pipeline *to,
			  const struct plan_pipeline *l)
{
	if (plan_chunks(l) > 1) {
		to->interleave = plan_chunks(l);
		p->schedule = PLAN_INTERLEAVED;
	}
	for (int s = 0; s < l->stages; s++) {
		const struct plan_stage *from = &l->stage[s];

		if (s >= to->stages) {
			struct plan_stage *st = plan_add_stage(to, from->tp);

			if (!st)
				return false;
			memcpy(st->rank, from->rank,
			       (size_t)from->tp * sizeof(*st->rank));
		}
		to->stage[s].first = from->first;
		to->stage[s].last = from->last;
		to->stage[s].recompute = from->recompute;
	}
	return true;
}

/* The layers that the pipelines that are whole had. */
static bool keep_layers(const struct replanning *k, struct plan *p)
{
	for (int i = 0, n = 0; i < k->old->pipelines && n < p->pipelines; i++) {
		const struct plan_pipeline *l = &k->old->pipeline[i];
		struct plan_pipeline *to = &p->pipeline[n];

		if (plan_teams(l) != to->stages ||
		    l->stage[0].rank[0] != to->stage[0].rank[0])
			continue;
		n++;
		if (plan_chunks(l) > 1 && to->micro_batches % to->stages)
			continue;
		if (!keep_pipeline(p, to, l))
			return false;
	}
	return true;
}

/* Takes the plan over; and adds the one that it becomes with chunks, if they
 * are asked for. */
static bool add_both(struct replanning *k, struct plan *p)
{
	struct plan chunks = {0};
	struct cost c = {0};
	bool good = p->schedule == PLAN_INTERLEAVED ||
		    search_chunks(k->s, p, &chunks, &c);

	cost_free(&c);
	if (!good)
		plan_close(p);
	good = good && add(k, p);
	if (!good || !chunks.pipelines) {
		plan_close(&chunks);
		return good;
	}
	return add(k, &chunks);
}

static bool repair(struct replanning *k, enum repair how)
{
	struct drafting g;
	struct draft d = {0};
	struct plan p = {0};
	bool good = drafting_open(&g, k->s->job);

	if (!good)
		return false;
	g.schedule = k->s->schedule;
	g.overlap = k->s->overlap;
	g.ahead = k->s->ahead;
	g.experts_asked = 1;
	g.zero = g.zero_most = k->old->zero;
	good = lay_out(k, how, &d);
	if (good && d.lines)
		draft_estimate(&g, &d);
	if (good && d.lines && !isinf(d.seconds)) {
		good = draft_plan(&g, &d, &p);
		if (good && how == PIPELINES)
			good = keep_layers(k, &p);
		if (good)
			good = add_both(k, &p);
		else
			plan_close(&p);
	}
	draft_free(&d);
	drafting_close(&g);
	return good;
}

/* ---- teams that take each other's place ---- */

/* A team of a plan, and all stages that it has. */
struct team {
	struct plan_pipeline *l;
	int at;
};

static bool is_alike(const struct job *j, struct team a, struct team b)
{
	const struct fleet *f = &j->fleet;
	const struct plan_stage *x = &a.l->stage[a.at], *y = &b.l->stage[b.at];

	return x->tp == y->tp &&
	       f->kind_of[f->links->node_of[x->rank[0]]] ==
		       f->kind_of[f->links->node_of[y->rank[0]]];
}

/* What is in its first stage is in all of them. */
static void spread(struct team t)
{
	const struct plan_stage *from = &t.l->stage[t.at];

	for (int s = t.at + plan_teams(t.l); s < t.l->stages;
	     s += plan_teams(t.l))
		memcpy(t.l->stage[s].rank, from->rank,
		       (size_t)from->tp * sizeof(*from->rank));
}

static void swap(struct team a, struct team b)
{
	struct plan_stage *x = &a.l->stage[a.at], *y = &b.l->stage[b.at];
	uint32_t *rank = x->rank;

	x->rank = y->rank;
	y->rank = rank;
	spread(a);
	spread(b);
}

static double team_moves(const struct replanning *k, struct team t)
{
	double sum = 0;

	for (int s = t.at; s < t.l->stages; s += plan_teams(t.l))
		sum += stage_moves(k->s->job, &k->places, &t.l->stage[s]);
	return sum;
}

/* True, and done, if less moves and no step takes longer than most_s. */
static bool try_swap(struct replanning *k, int n, struct team a, struct team b,
		     double most_s)
{
	double was = team_moves(k, a) + team_moves(k, b);
	struct cost c;

	if (!is_alike(k->s->job, a, b))
		return false;
	swap(a, b);
	if (team_moves(k, a) + team_moves(k, b) < was * (1 - 1e-9) &&
	    cost_of(k->s->job, &k->plan[n], NULL, NULL, &c)) {
		if (c.step <= most_s) {
			cost_free(&k->cost[n]);
			k->cost[n] = c;
			return true;
		}
		cost_free(&c);
	}
	swap(a, b);
	return false;
}

static bool settle_team(struct replanning *k, int n, struct team a,
			double most_s)
{
	struct plan *p = &k->plan[n];
	bool better = false;

	for (int i = 0; i < p->pipelines; i++) {
		struct team b = {&p->pipeline[i], 0};

		for (; b.at < plan_teams(b.l); b.at++)
			if (b.l != a.l || b.at != a.at)
				better |= try_swap(k, n, a, b, most_s);
	}
	return better;
}

static void settle(struct replanning *k, int n, double most_s)
{
	struct plan *p = &k->plan[n];
	bool better = true;

	while (better) {
		better = false;
		for (int i = 0; i < p->pipelines; i++) {
			struct team a = {&p->pipeline[i], 0};

			for (; a.at < plan_teams(a.l); a.at++)
				better |= settle_team(k, n, a, most_s);
		}
	}
}

/* ---- all of it ---- */

static void choose(struct replanning *k, struct search_found *out,
		   struct replan *r)
{
	int fastest = 0, best;

	for (int n = 1; n < k->n; n++)
		if (k->cost[n].step < k->cost[fastest].step)
			fastest = n;
	r->fastest_s = k->cost[fastest].step;
	r->fastest_moved = moves(k->s->job, &k->places, &k->plan[fastest]);
	best = fastest;
	for (int n = 0; n < k->n; n++)
		settle(k, n,
		       fmax(k->cost[n].step, r->fastest_s * REPLAN_SLOWER));
	for (int n = 0; n < k->n; n++)
		if (k->cost[n].step <= r->fastest_s * REPLAN_SLOWER &&
		    moves(k->s->job, &k->places, &k->plan[n]) <
			    moves(k->s->job, &k->places, &k->plan[best]))
			best = n;
	r->moved = moves(k->s->job, &k->places, &k->plan[best]);
	plan_close(&out->plan);
	cost_free(&out->cost);
	out->plan = k->plan[best];
	out->cost = k->cost[best];
	if (best >= k->searched)
		out->from = "the old plan";
	k->plan[best] = k->plan[--k->n];
	k->cost[best] = k->cost[k->n];
}

bool replan_run(const struct search *s, const struct plan *old,
		struct search_found *out, struct replan *r)
{
	struct replanning k = {.s = s, .old = old};
	bool good = search_run(s, out);

	if (!good)
		return false;
	good = find_places(s->job, old, &k.places);
	if (good)
		r->gone = find_gone(s->job, old, &k.places);
	if (good) {
		good = add(&k, &out->plan);
		out->plan = (struct plan){0};
	}
	for (int i = 0; i < out->others && good; i++) {
		good = add(&k, &out->other[i].plan);
		out->other[i].plan = (struct plan){0};
	}
	k.searched = k.n;
	for (int how = 0; how < REPAIRS && good; how++)
		good = repair(&k, (enum repair)how);
	if (good && k.n)
		choose(&k, out, r);
	else
		good = false;
	for (int n = 0; n < k.n; n++) {
		plan_close(&k.plan[n]);
		cost_free(&k.cost[n]);
	}
	free(k.places.of);
	if (!good)
		search_free(out);
	return good;
}
