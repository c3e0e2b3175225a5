/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The space of devices: any team anywhere. Starts differ in the degree of each
 * type, the micro-batch, the number of pipelines, and how teams are spread over
 * these: dealt out so that each pipeline gets some of each type (fast links
 * join pipelines), cut in the order of ranks (fast links stay inside), or by a
 * multilevel partition in both directions.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/search/partition.h"
#include "planner/search/search.h"

#define FEW_RANKS 64 /* so few that all degrees of all types are tried */

struct starts {
	struct search_worker *w;
	struct draft_team *team; /* [teams] */
	double *weight;          /* [teams] */
	int *part, *order;       /* [teams] */
	int *sorted[2];          /* [teams]; much memory first, last */
	int teams;
	int *tp;                       /* [types]: degree in work; 0: none */
	int (*degree)[SEARCH_DEGREES]; /* [types] */
	int *degrees;                  /* [types] */
	int micro_batch;
	double least; /* nodes with slower ways are left out; 0: none */
	long number;
	uint64_t random;
};

/* ---- teams ---- */

static double team_weight(struct starts *s, struct draft_team t)
{
	struct job *j = s->w->s->job;
	const struct table *x =
		table_of(j, j->fleet.kind_of[j->fleet.links->node_of[t.rank]],
			 t.tp, s->micro_batch, 1);
	int units = model_units(&j->model);

	if (!x || x->missing)
		return 0;
	return 1 / (x->forward[units] + x->backward[units]);
}

static int type_of(const struct starts *s, struct draft_team t)
{
	return fleet_kind(&s->w->s->job->fleet, t.rank)->type;
}

static double memory_of_team(const struct starts *s, struct draft_team t)
{
	return fleet_type(&s->w->s->job->fleet, t.rank)->memory * t.tp;
}

static void add_team(struct starts *s, uint32_t rank, int tp)
{
	s->team[s->teams] = (struct draft_team){rank, tp};
	s->weight[s->teams] = team_weight(s, s->team[s->teams]);
	if (s->weight[s->teams] > 0)
		s->teams++;
}

/* By type, those of much memory first (or last); else by rank. */
static bool comes_before(const struct starts *s, int a, int b, bool back)
{
	double x = memory_of_team(s, s->team[a]);
	double y = memory_of_team(s, s->team[b]);

	if (x != y)
		return back ? x < y : x > y;
	if (type_of(s, s->team[a]) != type_of(s, s->team[b]))
		return type_of(s, s->team[a]) < type_of(s, s->team[b]);
	return s->team[a].rank < s->team[b].rank;
}

static void sort_teams(struct starts *s, int *order, int n, bool back)
{
	/* Shell's sort: lists are mostly in order, and short. */
	for (int gap = n / 2; gap > 0; gap /= 2) {
		for (int i = gap; i < n; i++) {
			int x = order[i], k = i;

			for (; k >= gap &&
			       comes_before(s, x, order[k - gap], back);
			     k -= gap)
				order[k] = order[k - gap];
			order[k] = x;
		}
	}
}

/* Out of a node and into it. */
static double way_of(const struct fleet_kind *k)
{
	const struct links_pipe *nic = &k->class.nic;

	return fmin(nic->up ? (double)nic->up : INFINITY,
		    nic->down ? (double)nic->down : INFINITY);
}

/* What is left goes to the next smaller teams, and so on. */
static void cut_run(struct starts *s, uint32_t rank, int left, int tp)
{
	while (left > 0 && tp > 0) {
		for (; left >= tp; left -= tp) {
			add_team(s, rank, tp);
			rank += (uint32_t)tp;
		}
		for (tp--; tp > 0 && s->w->s->job->model.heads % tp;)
			tp--;
	}
}

static void make_teams(struct starts *s)
{
	const struct fleet *f = &s->w->s->job->fleet;

	s->teams = 0;
	for (uint32_t n = 0; n < f->nodes; n++) {
		const struct fleet_kind *k = &f->kind[f->kind_of[n]];
		uint32_t rank = f->first[n], end = rank + k->ranks;

		for (; rank < end && way_of(k) >= s->least; rank++) {
			uint32_t run = fleet_usable(f, n, rank);

			cut_run(s, rank, (int)run, s->tp[k->type]);
			rank += run;
		}
	}
	for (int back = 0; back < 2; back++) {
		for (int i = 0; i < s->teams; i++)
			s->sorted[back][i] = i;
		sort_teams(s, s->sorted[back], s->teams, back);
	}
}

/* ---- how they are spread ---- */

enum style { DEAL, DEAL_BACK, CUT, CUT_BACK, LINKS_IN, LINKS_ACROSS, STYLES };

static void cut(struct starts *s, int lines)
{
	double sum = 0, before = 0;

	for (int i = 0; i < s->teams; i++)
		sum += s->weight[s->order[i]];
	for (int i = 0; i < s->teams; i++) {
		int at = s->order[i];
		int p = (int)((before + s->weight[at] / 2) / sum * lines);

		/* None is left empty. */
		if (p > i)
			p = i;
		if (p < lines - (s->teams - i))
			p = lines - (s->teams - i);
		s->part[at] = p < lines ? p : lines - 1;
		before += s->weight[at];
	}
}

static double edge(int a, int b, void *ctx)
{
	struct starts *s = ctx;

	return wire_rate(&s->w->s->job->wire, s->team[a].rank, s->team[b].rank);
}

static bool spread(struct starts *s, int lines, enum style style)
{
	struct partition p = {.vertices = s->teams,
			      .parts = lines,
			      .weight = s->weight,
			      .edge = edge,
			      .ctx = s,
			      .inside = style == LINKS_IN,
			      .balance = 1.15};

	for (int i = 0; i < s->teams; i++)
		s->order[i] = i;
	if (style == LINKS_IN || style == LINKS_ACROSS)
		return partition_run(&p, s->part);
	if (style == DEAL || style == DEAL_BACK) {
		for (int i = 0; i < s->teams; i++)
			s->part[s->sorted[style == DEAL_BACK][i]] = i % lines;
		return true;
	}
	if (style == CUT_BACK)
		memcpy(s->order, s->sorted[0],
		       (size_t)s->teams * sizeof(*s->order));
	cut(s, lines);
	return true;
}

/* ---- drafts ---- */

static bool lay_out(struct starts *s, struct draft *d, int lines, bool back)
{
	draft_init(d, s->micro_batch);
	d->thin = s->least > 0;
	for (int l = 0; l < lines; l++)
		if (!draft_add_line(d))
			return false;
	for (int i = 0; i < s->teams; i++) {
		int at = s->sorted[back][i];
		struct draft_line *l = &d->line[s->part[at]];

		if (!draft_add_team(l, l->teams, s->team[at]))
			return false;
	}
	return true;
}

/* More stages than layers: teams that are too many stay idle. */
static void trim(struct draft *d, int units)
{
	for (int i = 0; i < d->lines; i++)
		while (d->line[i].teams > units)
			draft_take_team(&d->line[i], d->line[i].teams - 1);
}

static void try_spread(struct starts *s, int lines, enum style style)
{
	struct search_worker *w = s->w;

	s->number++;
	if (s->number % w->workers != w->index || w->bad || search_over(w))
		return;
	if (!spread(s, lines, style)) {
		w->bad = true;
		return;
	}
	for (int back = 0; back < 2; back++) {
		struct draft d = {0};

		if (lay_out(s, &d, lines, back)) {
			trim(&d, model_units(&w->s->job->model));
			search_look(w, &d,
				    SEARCH_DEVICE_FIRST + s->number * 2 + back);
		} else {
			w->bad = true;
		}
		draft_free(&d);
	}
}

/* All up to 16, then in steps of about a fifth that are good divisors. */
static int next_lines(int lines)
{
	static const int list[] = {20,  24,  28,  32,  40,  48,  56,  64,
				   80,  96,  112, 128, 160, 192, 224, 256,
				   320, 384, 448, 512, 640, 768, 896, 1024};

	if (lines < 16)
		return lines + 1;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (list[i] > lines)
			return list[i];
	return 1 << 30;
}

static void try_teams(struct starts *s)
{
	const struct job *j = s->w->s->job;
	int few = j->fleet.ranks <= FEW_RANKS;

	make_teams(s);
	for (int lines = 1; lines <= s->teams; lines = next_lines(lines)) {
		if (lines * s->micro_batch > j->global_batch)
			break;
		for (int k = 0; k < STYLES; k++) {
			/* Quadratic in the number of teams. */
			if (k >= LINKS_IN && s->teams > 256)
				continue;
			if (k == LINKS_ACROSS && !few)
				continue;
			try_spread(s, lines, (enum style)k);
		}
	}
}

/* Most work for each device. */
static double worth(struct starts *s, int type, int tp)
{
	struct job *j = s->w->s->job;
	double best = 0;

	for (int k = 0; k < j->fleet.kinds; k++) {
		const struct table *t;
		int u = model_units(&j->model);

		if (j->fleet.kind[k].type != type ||
		    (int)j->fleet.kind[k].ranks < tp)
			continue;
		t = table_of(j, k, tp, s->micro_batch, 1);
		if (t && !t->missing)
			best = fmax(best,
				    1 / (t->forward[u] + t->backward[u]) / tp);
	}
	return best;
}

static void keep_two(struct starts *s, int type)
{
	int *d = s->degree[type], n = s->degrees[type];

	for (int i = 1; i < n; i++)
		for (int k = i;
		     k > 0 && worth(s, type, d[k]) > worth(s, type, d[k - 1]);
		     k--) {
			int t = d[k];

			d[k] = d[k - 1];
			d[k - 1] = t;
		}
	s->degrees[type] = n < 2 ? n : 2;
}

static void try_degrees(struct starts *s, int type)
{
	if (type == s->w->s->job->fleet.types) {
		try_teams(s);
		return;
	}
	for (int i = 0; i < s->degrees[type]; i++) {
		s->tp[type] = s->degree[type][i];
		try_degrees(s, type + 1);
	}
	if (!s->degrees[type]) {
		s->tp[type] = 0;
		try_degrees(s, type + 1);
	}
}

static void find_degrees(struct starts *s)
{
	const struct job *j = s->w->s->job;

	for (int t = 0; t < j->fleet.types; t++) {
		s->degrees[t] = 0;
		for (int k = 0; k < j->fleet.kinds; k++) {
			int list[SEARCH_DEGREES],
				n = search_degrees(j, k, list);

			if (j->fleet.kind[k].type == t && n > s->degrees[t]) {
				memcpy(s->degree[t], list, sizeof(list));
				s->degrees[t] = n;
			}
		}
	}
}

static bool starts_open(struct starts *s, struct search_worker *w)
{
	size_t n = w->s->job->fleet.ranks;
	size_t types = (size_t)w->s->job->fleet.types;

	*s = (struct starts){.w = w};
	s->tp = calloc(types, sizeof(*s->tp));
	s->degree = calloc(types, sizeof(*s->degree));
	s->degrees = calloc(types, sizeof(*s->degrees));
	s->team = calloc(n, sizeof(*s->team));
	s->weight = calloc(n, sizeof(*s->weight));
	s->part = calloc(n, sizeof(*s->part));
	s->order = calloc(n, sizeof(*s->order));
	s->sorted[0] = calloc(n, sizeof(*s->order));
	s->sorted[1] = calloc(n, sizeof(*s->order));
	return s->tp && s->degree && s->degrees && s->team && s->weight &&
	       s->part && s->order && s->sorted[0] && s->sorted[1];
}

static void starts_close(struct starts *s)
{
	free(s->tp);
	free(s->degree);
	free(s->degrees);
	free(s->team);
	free(s->weight);
	free(s->part);
	free(s->order);
	free(s->sorted[0]);
	free(s->sorted[1]);
}

/* The next higher way of a node, if any is by a tenth. */
static double next_way(const struct fleet *f, double way)
{
	double next = INFINITY;

	for (int k = 0; k < f->kinds; k++)
		if (way_of(&f->kind[k]) > 1.1 * way)
			next = fmin(next, way_of(&f->kind[k]));
	return next;
}

#define WAYS_MOST 8 /* of few ranks; of many, all nodes */

/* One degree for all; of all nodes, and without those that are slow to reach:
 * moves that take one device after the other away from a slow node make
 * nothing faster before the last of them. */
static void try_one_degree(struct starts *s)
{
	const struct job *j = s->w->s->job;

	int most = j->fleet.ranks <= FEW_RANKS ? WAYS_MOST : 1;

	for (int i = 0; i < most && !isinf(s->least); i++) {
		for (int tp = 1; tp <= 64; tp *= 2) {
			for (int t = 0; t < j->fleet.types; t++) {
				s->tp[t] = 0;
				for (int k = 0; k < s->degrees[t]; k++)
					if (s->degree[t][k] <= tp &&
					    s->degree[t][k] > s->tp[t])
						s->tp[t] = s->degree[t][k];
			}
			try_teams(s);
		}
		s->least = next_way(&j->fleet,
				    i ? s->least : next_way(&j->fleet, 0));
	}
	s->least = 0;
}

void search_device(struct search_worker *w)
{
	const struct job *j = w->s->job;
	int batch[SEARCH_SIZES], batches = search_batches(w->s, batch);
	struct starts s;

	if (!starts_open(&s, w))
		w->bad = true;
	for (int i = 0; i < batches && !w->bad; i++) {
		s.micro_batch = batch[i];
		/* One degree for all, each: always. */
		find_degrees(&s);
		try_one_degree(&s);
		if (j->fleet.types > 4)
			continue;
		if (j->fleet.ranks > FEW_RANKS)
			for (int t = 0; t < j->fleet.types; t++)
				keep_two(&s, t);
		try_degrees(&s, 0);
	}
	starts_close(&s);
}

/* ---- at random, to compare with ---- */

static int draw(struct starts *s, int n)
{
	s->random ^= s->random >> 12;
	s->random ^= s->random << 25;
	s->random ^= s->random >> 27;
	return (int)(((s->random * UINT64_C(2685821657736338717)) >> 33) %
		     (uint64_t)n);
}

/* One degree and micro-batch after the other, a number of pipelines each, and
 * teams thrown into them and shuffled. */
void search_random(struct search_worker *w)
{
	int batch[SEARCH_SIZES], batches = search_batches(w->s, batch);
	struct starts s;

	if (w->index || !starts_open(&s, w))
		return;
	s.random = (uint64_t)w->s->seed * 7919 + 1;
	find_degrees(&s);
	for (int r = 0; r < w->s->rounds; r++) {
		struct draft d = {0};
		int lines;

		s.micro_batch = batch[draw(&s, batches)];
		for (int t = 0; t < w->s->job->fleet.types; t++)
			s.tp[t] = s.degrees[t]
					  ? s.degree[t][draw(&s, s.degrees[t])]
					  : 0;
		make_teams(&s);
		if (!s.teams)
			continue;
		lines = 1 + draw(&s, s.teams);
		draft_init(&d, s.micro_batch);
		for (int i = 0; i < lines; i++)
			w->bad |= !draft_add_line(&d);
		for (int i = s.teams - 1; i > 0; i--) {
			int k = draw(&s, i + 1);
			struct draft_team t = s.team[i];

			s.team[i] = s.team[k];
			s.team[k] = t;
		}
		for (int i = 0; i < s.teams && !w->bad; i++) {
			struct draft_line *l =
				&d.line[i < lines ? i : draw(&s, lines)];

			w->bad |= !draft_add_team(l, l->teams, s.team[i]);
		}
		search_look(w, &d, r);
		draft_free(&d);
	}
	starts_close(&s);
}
