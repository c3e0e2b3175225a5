/* SPDX-License-Identifier: BSD-3-Clause */
/* What drafts are worth: layers, batch shares, and the time of a step. */
#include "planner/search/draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cost/route.h"
#include "src/base/hash.h"

/* ---- a line ---- */

static int kind_of(const struct drafting *g, uint32_t rank)
{
	const struct fleet *f = &g->job->fleet;

	return f->kind_of[f->links->node_of[rank]];
}

/* Kinds and degrees, how near each is to the next, and which share a node. */
static uint64_t line_key(struct drafting *g, const struct draft_line *l,
			 int zero, int lines)
{
	const struct links *links = g->job->fleet.links;
	int head[5] = {l->micro_batch, zero, zero ? lines : 0, l->teams,
		       g->experts};
	uint64_t h = hash_bytes(HASH_START, head, sizeof(head));

	for (int i = l->teams - 1; i >= 0; i--)
		g->node_first[links->node_of[l->team[i].rank]] = i;
	for (int i = 0; i < l->teams; i++) {
		uint32_t a = links->node_of[l->team[i].rank];
		uint32_t b = i ? links->node_of[l->team[i - 1].rank] : a;
		int x[4] = {kind_of(g, l->team[i].rank), l->team[i].tp,
			    g->node_first[a], 0};

		/* Between islands it depends on which. */
		if (links->island_of[a] != links->island_of[b])
			x[3] = 1 + (int)(links->island_of[a] * 4096 +
					 links->island_of[b]);
		h = hash_bytes(h, x, sizeof(x));
	}
	if (g->experts > 1 && l->teams <= MODEL_UNITS_MOST)
		h = hash_bytes(h, g->route,
			       (size_t)l->teams * sizeof(*g->route));
	return h ? h : 1;
}

static struct wire_transfer transfer(const struct drafting *g,
				     struct draft_team a, struct draft_team b,
				     double bytes)
{
	return wire_boundary(&g->job->wire, &a.rank, a.tp, &b.rank, b.tp,
			     bytes);
}

static double state_bytes(const double *state, int zero, int replicas)
{
	return state[0] / (zero >= 3 ? replicas : 1) +
	       state[1] / (zero >= 2 ? replicas : 1) +
	       state[2] / (zero >= 1 ? replicas : 1);
}

static void set_stage(struct drafting *g, struct layers_stage *s,
		      const struct draft_line *l, int at, int zero, int lines,
		      int most)
{
	struct draft_team team = l->team[at];
	const struct fleet_type *type = fleet_type(&g->job->fleet, team.rank);
	double state[3];

	table_state_bytes(g->job, state);
	s->table = table_of(g->job, kind_of(g, team.rank), team.tp,
			    l->micro_batch, g->experts);
	s->memory = type->memory - type->reserved;
	s->state = state_bytes(state, zero, lines);
	s->expert_state = state_bytes(state, zero, lines / g->experts);
	s->route = g->experts > 1 ? g->route[at] : 0;
	s->in_flight =
		memory_in_flight(at, l->teams, most, g->schedule, g->ahead);
	s->again = memory_again(at, s->in_flight, g->schedule);
	s->extra = 0;
}

/* ---- what the ways of nodes and islands carry ---- */

static double *way_out(const struct drafting *g, uint32_t node)
{
	return &g->carried[4 * node];
}

/* No island has a higher number than nodes have. */
static double *island_out(const struct drafting *g, uint32_t island)
{
	return &g->carried[4 * island + 2];
}

static void clear_line(struct drafting *g, const struct draft_line *l)
{
	const struct links *links = g->job->fleet.links;

	for (int i = 0; i < l->teams; i++) {
		uint32_t n = links->node_of[l->team[i].rank];
		double *way = way_out(g, n);
		double *island = island_out(g, links->island_of[n]);

		way[0] = way[1] = island[0] = island[1] = 0;
	}
}

/* So many messages from one to another; how long the busiest way of these is
 * taken in all. Messages that hold their sides do not overlap in one, anyway.
 */
static double carry(struct drafting *g, struct draft_team from,
		    struct draft_team to, const struct wire_transfer *t,
		    double times)
{
	const struct links *links = g->job->fleet.links;
	uint32_t a = links->node_of[from.rank], b = links->node_of[to.rank];
	double *up = way_out(g, a), *down = way_out(g, b) + 1, most;

	if (a == b)
		return 0;
	*up += times * t->way;
	*down += times * t->way;
	most = fmax(*up, *down);
	if (t->out > 0 || t->in > 0) {
		double *out = island_out(g, links->island_of[a]);
		double *in = island_out(g, links->island_of[b]) + 1;

		*out += times * t->out;
		*in += times * t->in;
		most = fmax(most, fmax(*out, *in));
	}
	return most;
}

/* All pipelines: no step is shorter than the busiest way is taken. */
static double ways_seconds(struct drafting *g, const struct draft *d)
{
	double most = 0;

	for (int i = 0; i < d->lines; i++)
		clear_line(g, &d->line[i]);
	for (int i = 0; i < d->lines; i++) {
		const struct draft_line *l = &d->line[i];
		double bytes = table_boundary_bytes(g->job, l->micro_batch);

		for (int s = 0; s + 1 < l->teams; s++) {
			struct draft_team a = l->team[s], b = l->team[s + 1];
			struct wire_transfer t = transfer(g, a, b, bytes);

			most = fmax(most, carry(g, a, b, &t, l->micro_batches));
			t = transfer(g, b, a, bytes);
			most = fmax(most, carry(g, b, a, &t, l->micro_batches));
		}
	}
	return most;
}

/* Blocking messages hold both sides, eager ones who sends; others only take the
 * ways of nodes. */
static double charge(struct drafting *g, const struct draft_line *l,
		     double *through)
{
	double bytes = table_boundary_bytes(g->job, l->micro_batch), ways = 0;
	bool holds = g->overlap == PLAN_BLOCKING || g->overlap == PLAN_EAGER;
	double sides = holds ? 2 * g->job->profile.side_s : 0;

	*through = 0;
	clear_line(g, l);
	for (int i = 0; i + 1 < l->teams; i++) {
		struct wire_transfer a =
			transfer(g, l->team[i], l->team[i + 1], bytes);
		struct wire_transfer b =
			transfer(g, l->team[i + 1], l->team[i], bytes);

		double room = table_send_room(g->job, l->micro_batch,
					      l->team[i].tp, l->team[i + 1].tp);

		g->scratch[i] = a.seconds + b.seconds + 2 * sides;
		*through += g->scratch[i];
		ways = fmax(ways, carry(g, l->team[i], l->team[i + 1], &a, 1));
		ways = fmax(ways, carry(g, l->team[i + 1], l->team[i], &b, 1));
		g->stage[i].extra += sides;
		g->stage[i + 1].extra += sides;
		if (g->overlap == PLAN_BLOCKING) {
			g->stage[i].extra += a.seconds + b.seconds;
			g->stage[i + 1].extra += a.seconds + b.seconds;
		}
		if (g->overlap == PLAN_EAGER) {
			g->stage[i].extra += (1 - room) * a.seconds;
			g->stage[i + 1].extra += (1 - room) * b.seconds;
		}
	}
	g->scratch[l->teams - 1] = 0;
	return ways;
}

/* From a line's split: how long until its first micro-batch is through, and how
 * much each further one adds: the slowest stage, or the round trip from a stage
 * to the last one, shared by those in flight. */
static void time_line(struct drafting *g, struct draft_line *l, double ways,
		      double through)
{
	double trip = 0;

	l->cycle = ways;
	l->fill = through;
	for (int i = l->teams - 1; i >= 0; i--) {
		double own = layers_seconds(&g->stage[i]);
		int held = 1 + (l->teams - 1 - i) * (1 + g->ahead);

		l->fill += own - g->stage[i].extra;
		trip += own - g->stage[i].extra + g->scratch[i];
		l->cycle = fmax(l->cycle, own);
		if (g->schedule == PLAN_1F1B)
			l->cycle = fmax(l->cycle, trip / held);
	}
}

static void keep_split(struct drafting *g, struct draft_line *l)
{
	for (int i = 0; i < l->teams; i++) {
		l->last[i] = g->stage[i].last;
		l->recompute[i] = g->stage[i].recompute;
	}
}

static void find_line(struct drafting *g, struct draft_line *l, int zero,
		      int lines)
{
	int units = model_units(&g->job->model);
	int most = g->job->global_batch / l->micro_batch;
	double ways, through, slowest;

	l->fill = l->cycle = INFINITY;
	g->tight = true;
	if (l->teams < 1 || l->teams > units)
		return;
	for (int i = 0; i < l->teams; i++) {
		set_stage(g, &g->stage[i], l, i, zero, lines, most);
		if (!g->stage[i].table || g->stage[i].table->missing)
			return;
	}
	ways = charge(g, l, &through);
	if (g->by_memory) {
		double memory[MODEL_UNITS_MOST];

		for (int i = 0; i < l->teams; i++)
			memory[i] = g->stage[i].memory * l->team[i].tp;
		slowest = layers_by_memory(g->stage, l->teams, units, memory);
	} else {
		slowest = layers_split(g->stage, l->teams, units, g->slack,
				       g->limit_s);
	}
	if (isinf(slowest))
		return;
	time_line(g, l, ways, through);
	keep_split(g, l);
	g->tight = false;
	for (int i = 0; i < l->teams; i++)
		g->tight |= g->stage[i].tight || g->stage[i].recompute;
}

static void remember(struct draft_memo *m, const struct draft_line *l,
		     uint64_t key, bool tight)
{
	size_t n = (size_t)l->teams;

	if (m->room < l->teams) {
		free(m->last);
		free(m->recompute);
		m->last = malloc(n * sizeof(*m->last));
		m->recompute = malloc(n * sizeof(*m->recompute));
		m->room = m->last && m->recompute ? l->teams : 0;
		if (!m->room) {
			m->key = 0;
			return;
		}
	}
	m->key = key;
	m->teams = l->teams;
	m->fill = l->fill;
	m->cycle = l->cycle;
	m->tight = tight;
	memcpy(m->last, l->last, n * sizeof(*l->last));
	memcpy(m->recompute, l->recompute, n * sizeof(*l->recompute));
}

static void estimate_line(struct drafting *g, struct draft_line *l, int zero,
			  int lines)
{
	uint64_t key = line_key(g, l, zero, lines);
	struct draft_memo *m = &g->memo[key % DRAFT_MEMOS];

	if (m->key == key && m->teams == l->teams) {
		l->fill = m->fill;
		l->cycle = m->cycle;
		g->tight = m->tight;
		memcpy(l->last, m->last, (size_t)l->teams * sizeof(*l->last));
		memcpy(l->recompute, m->recompute,
		       (size_t)l->teams * sizeof(*l->recompute));
		return;
	}
	find_line(g, l, zero, lines);
	if (l->teams > 0 && (g->limit_s <= 0 || !isinf(l->cycle)))
		remember(m, l, key, g->tight);
}

/* ---- batch shares ---- */

static long within(const struct draft_line *l, double seconds)
{
	double m = floor((seconds - l->fill) / l->cycle * (1 + 1e-12)) + 1;

	return m < 1 ? 1 : m > 1e9 ? (long)1e9 : (long)m;
}

static double end_of(const struct draft_line *l, int micro_batches)
{
	return l->fill + (micro_batches - 1) * l->cycle;
}

/* Who would be done last gives back what is too much: sequences left over,
 * where sizes of micro-batches differ. */
static long give_back(struct draft *d, long over)
{
	while (over > 0) {
		struct draft_line *last = NULL;
		double most = -1;

		for (int i = 0; i < d->lines; i++) {
			struct draft_line *l = &d->line[i];
			double t = end_of(l, l->micro_batches);

			if (l->micro_batches > 1 && l->micro_batch <= over &&
			    t > most) {
				most = t;
				last = l;
			}
		}
		if (!last)
			break;
		last->micro_batches--;
		over -= last->micro_batch;
	}
	return over;
}

enum { EXCHANGED_MOST = 4 };

/* One gives back a few micro-batches too many, another one takes smaller ones
 * for them. False: no two can. */
static bool exchange(struct draft *d, long over)
{
	struct draft_line *giver = NULL, *taker = NULL;
	int given = 0, taken = 0;
	double least = INFINITY;

	for (int a = 0; a < d->lines; a++) {
		for (int b = 0; b < d->lines; b++) {
			struct draft_line *x = &d->line[a], *y = &d->line[b];

			for (int i = 1;
			     i <= EXCHANGED_MOST && i < x->micro_batches; i++) {
				long more = (long)i * x->micro_batch - over;
				int k = (int)(more / y->micro_batch);
				double t = end_of(y, y->micro_batches + k);

				if (a == b || more < 0 ||
				    more % y->micro_batch || t >= least)
					continue;
				least = t;
				giver = x;
				taker = y;
				given = i;
				taken = k;
			}
		}
	}
	if (!giver)
		return false;
	giver->micro_batches -= given;
	taker->micro_batches += taken;
	return true;
}

/* So that all end at about the same time: the least time in which all sequences
 * are done. */
static double share_lines(struct draft *d, int total)
{
	double low = 0, high = 0, end = 0;
	long sum = 0, each = 0;

	for (int i = 0; i < d->lines; i++) {
		high = fmax(high, d->line[i].fill + total * d->line[i].cycle);
		each += d->line[i].micro_batch;
	}
	if (isinf(high) || total < each)
		return INFINITY;
	for (int k = 0; k < 50 && high - low > 1e-7 * high; k++) {
		double middle = (low + high) / 2;

		sum = 0;
		for (int i = 0; i < d->lines; i++)
			sum += within(&d->line[i], middle) *
			       d->line[i].micro_batch;
		if (sum >= total)
			high = middle;
		else
			low = middle;
	}
	sum = 0;
	for (int i = 0; i < d->lines; i++) {
		struct draft_line *l = &d->line[i];

		l->micro_batches = (int)within(l, high);
		sum += (long)l->micro_batches * l->micro_batch;
	}
	sum = give_back(d, sum - total);
	if (sum && !exchange(d, sum))
		return INFINITY;
	for (int i = 0; i < d->lines; i++)
		end = fmax(end, end_of(&d->line[i], d->line[i].micro_batches));
	return end;
}

/* Pipelines that share experts take as much each: they are one. */
static double share(const struct drafting *g, struct draft *d, int total)
{
	struct draft groups = {.lines = d->lines / g->experts};
	double seconds;

	if (g->experts == 1)
		return share_lines(d, total);
	groups.line = calloc((size_t)groups.lines, sizeof(*groups.line));
	if (!groups.line)
		return INFINITY;
	for (int i = 0; i < groups.lines; i++) {
		groups.line[i] = d->line[i * g->experts];
		groups.line[i].micro_batch *= g->experts;
	}
	seconds = share_lines(&groups, total);
	for (int i = 0; i < d->lines; i++)
		d->line[i].micro_batches =
			groups.line[i / g->experts].micro_batches;
	free(groups.line);
	return seconds;
}

/* ---- experts ---- */

/* Of the same types; rates that were measured differ by any digit. */
static bool is_alike(const struct drafting *g, const struct draft_line *a,
		     const struct draft_line *b)
{
	const struct fleet *f = &g->job->fleet;

	if (a->teams != b->teams || a->micro_batch != b->micro_batch)
		return false;
	for (int s = 0; s < a->teams; s++)
		if (a->team[s].tp != b->team[s].tp ||
		    fleet_type(f, a->team[s].rank) !=
			    fleet_type(f, b->team[s].rank))
			return false;
	return true;
}

/* May so many lines, one after the other, share experts? */
static bool may_share(const struct drafting *g, const struct draft *d,
		      int experts)
{
	if (g->job->measured || d->lines % experts ||
	    g->job->model.experts.count % experts)
		return false;
	for (int i = 0; i < d->lines; i++)
		if (!is_alike(g, &d->line[i - i % experts], &d->line[i]))
			return false;
	return true;
}

/* Stages whose experts are on several nodes share the ways of these. */
static void crowd_routes(struct drafting *g, const struct draft *d)
{
	const struct fleet *f = &g->job->fleet;
	const uint32_t *node_of = f->links->node_of;
	int *seen = g->sums, n = 0;

	memset(g->routes, 0, f->nodes * sizeof(*g->routes));
	memset(seen, 0, f->nodes * sizeof(*seen));
	for (int i = 0; i < d->lines; i += g->experts) {
		const struct draft_line *l = &d->line[i];

		for (int s = 0; s < l->teams; s++) {
			uint32_t home = node_of[l->team[s].rank];
			bool apart = false;

			n++;
			for (int e = 1; e < g->experts; e++)
				apart |= node_of[l[e].team[s].rank] != home;
			for (int e = 0; apart && e < g->experts; e++) {
				uint32_t node = node_of[l[e].team[s].rank];

				g->routes[node] += seen[node] != n;
				seen[node] = n;
			}
		}
	}
}

/* Of the lines from l on that share experts: how long their tokens travel. */
static bool find_routes(struct drafting *g, const struct draft_line *l)
{
	int n = g->experts;
	struct route_team *team = calloc((size_t)n, sizeof(*team));
	int *others = calloc((size_t)n, sizeof(*others));
	uint32_t *rank = NULL;
	bool good = team && others && l->teams <= MODEL_UNITS_MOST;

	for (int s = 0; good && s < l->teams; s++) {
		int tp = l->team[s].tp;
		uint32_t *more =
			realloc(rank, (size_t)(n * tp) * sizeof(*rank));

		good = more;
		if (!good)
			break;
		rank = more;
		for (int e = 0; e < n; e++) {
			for (int r = 0; r < tp; r++)
				rank[e * tp + r] =
					l[e].team[s].rank + (uint32_t)r;
			team[e] = (struct route_team){rank + e * tp, tp};
			others[e] = g->routes[g->job->fleet.links
						      ->node_of[rank[e * tp]]];
		}
		g->route[s] =
			route_seconds(g->job, team, others, n, l->micro_batch);
		good = !isnan(g->route[s]);
	}
	free(rank);
	free(team);
	free(others);
	return good;
}

/* They go in step: each as long as the slowest, with the layers of the first.
 */
static bool estimate_group(struct drafting *g, struct draft_line *l, int zero,
			   int lines, bool *tight)
{
	if (!find_routes(g, l))
		return false;
	for (int e = 0; e < g->experts; e++) {
		estimate_line(g, &l[e], zero, lines);
		*tight |= g->tight;
		if (isinf(l[e].cycle))
			return false;
		l->fill = fmax(l->fill, l[e].fill);
		l->cycle = fmax(l->cycle, l[e].cycle);
	}
	for (int e = 1; e < g->experts; e++) {
		l[e].fill = l->fill;
		l[e].cycle = l->cycle;
		memcpy(l[e].last, l->last, (size_t)l->teams * sizeof(*l->last));
		memcpy(l[e].recompute, l->recompute,
		       (size_t)l->teams * sizeof(*l->recompute));
	}
	return true;
}

/* ---- gradients ---- */

static double way_of(const struct fleet *f, struct draft_team team, int crowd)
{
	const struct links_class *c = &fleet_kind(f, team.rank)->class;
	double nic = c->nic.up ? (double)c->nic.up : INFINITY;
	double own = c->rank ? (double)c->rank * team.tp : INFINITY;

	return fmin(nic / crowd, own);
}

static double inside_of(const struct fleet *f, struct draft_team team)
{
	const struct links_class *c = &fleet_kind(f, team.rank)->class;

	return c->inside ? (double)c->inside * team.tp : INFINITY;
}

/* Stages on the node of a line's stage that begin with other units. */
static void count_crowds(struct drafting *g, const struct draft *d)
{
	const struct fleet *f = &g->job->fleet;

	memset(g->node_first, 0, f->nodes * sizeof(*g->node_first));
	for (int i = 0; i < d->lines; i++) {
		const struct draft_line *l = &d->line[i];

		for (int s = 0; s < l->teams; s++) {
			uint32_t n = f->links->node_of[l->team[s].rank];
			bool same = false;

			/* Neighbours in the line; those of other lines with
			 * the same place count once. */
			for (int k = i > 8 ? i - 8 : 0; k < i && !same; k++) {
				const struct draft_line *o = &d->line[k];

				same = s < o->teams &&
				       f->links->node_of[o->team[s].rank] ==
					       n &&
				       (!s || o->last[s - 1] == l->last[s - 1]);
			}
			g->node_first[n] += !same;
		}
	}
}

/* Where each line holds a unit: g->at. False: all are where they were. */
static bool find_stages(struct drafting *g, const struct draft *d, int unit)
{
	bool moved = !unit;

	for (int i = 0; i < d->lines; i++) {
		if (!unit)
			g->at[i] = 0;
		while (d->line[i].last[g->at[i]] < unit) {
			g->at[i]++;
			moved = true;
		}
	}
	return moved;
}

static uint32_t node_at(const struct drafting *g, const struct draft *d, int i)
{
	return g->job->fleet.links->node_of[d->line[i].team[g->at[i]].rank];
}

/* On how many nodes are lines that have the same experts as line `at`? Each of
 * them is counted in crowd, if there are several; seen has no `mark` yet. */
static int spread_of(const struct drafting *g, const struct draft *d, int at,
		     int *seen, int mark, int *crowd)
{
	int nodes = 0;

	for (int i = at; i < d->lines; i += g->experts) {
		uint32_t n = node_at(g, d, i);

		nodes += seen[n] != mark;
		seen[n] = mark;
	}
	for (int i = at; crowd && nodes > 1 && i < d->lines; i += g->experts) {
		uint32_t n = node_at(g, d, i);

		crowd[n] += seen[n] == mark;
		seen[n] = 0;
	}
	return nodes;
}

/* Of a unit's experts, summed by the lines that have the same ones: seconds of
 * a byte in the slowest of these sums. Those of any lines of a node share its
 * way, as in planner/cost/cost.c; of one sum, a node sends its part once. */
static double seconds_of_experts(struct drafting *g, const struct draft *d)
{
	const struct fleet *f = &g->job->fleet;
	int *crowd = g->sums, *seen = g->sums + f->nodes;
	double most = 0, own = d->lines / g->experts;

	memset(g->sums, 0, 2 * f->nodes * sizeof(*g->sums));
	for (int at = 0; at < g->experts; at++)
		spread_of(g, d, at, seen, at + 1, crowd);
	for (int at = 0; at < g->experts; at++) {
		double nodes =
			spread_of(g, d, at, seen, g->experts + at + 1, NULL);

		for (int i = at; i < d->lines; i += g->experts) {
			struct draft_team team = d->line[i].team[g->at[i]];
			uint32_t n = node_at(g, d, i);
			double s = (own - 1) / own / inside_of(f, team);

			if (nodes > 1)
				s = fmax(s, (nodes - 1) / nodes /
						    way_of(f, team,
							   g->node_first[n] *
								   crowd[n]));
			most = fmax(most, s);
		}
	}
	return most;
}

/* Of each unit: bytes per second of the slowest of its owners; and seconds of a
 * byte of experts that some of them have. */
struct sync {
	double rate[MODEL_UNITS_MOST], experts[MODEL_UNITS_MOST];
	bool apart[MODEL_UNITS_MOST];
};

static void find_rates(struct drafting *g, const struct draft *d,
		       struct sync *y)
{
	const struct fleet *f = &g->job->fleet;
	int units = model_units(&g->job->model);

	for (int u = 0; u < units; u++) {
		if (!find_stages(g, d, u)) {
			y->rate[u] = y->rate[u - 1];
			y->apart[u] = y->apart[u - 1];
			y->experts[u] = y->experts[u - 1];
			continue;
		}
		y->rate[u] = INFINITY;
		y->apart[u] = false;
		for (int i = 0; i < d->lines; i++) {
			uint32_t n = node_at(g, d, i);
			double way = way_of(f, d->line[i].team[g->at[i]],
					    g->node_first[n]);

			y->rate[u] = fmin(y->rate[u], way);
			y->apart[u] |= n != node_at(g, d, 0);
		}
		y->experts[u] = g->experts > 1 ? seconds_of_experts(g, d) : 0;
	}
}

/* Each unit is summed as fast as the slowest of its owners can. */
static double sync_seconds(struct drafting *g, const struct draft *d, int zero)
{
	const struct fleet *f = &g->job->fleet;
	int n = d->lines;
	const struct model *m = &g->job->model;
	/* There and back: gradients, or from ZeRO 1 on weights. */
	double back = zero ? m->element * (zero == 3 ? 2.0 : 1.0) : m->gradient;
	double size = m->gradient + back, most = 0;
	double all = size * (n - 1) / n;
	const struct table *t;
	struct sync y;

	if (n < 2)
		return 0;
	count_crowds(g, d);
	find_rates(g, d, &y);
	t = table_of(g->job, kind_of(g, d->line[0].team[0].rank),
		     d->line[0].team[0].tp, d->line[0].micro_batch, g->experts);
	if (!t)
		return INFINITY;
	for (int i = 0; i < n; i++) {
		const struct draft_line *l = &d->line[i];

		for (int s = 0, u = 0; s < l->teams; s++) {
			double inside = inside_of(f, l->team[s]), seconds = 0;

			for (; u <= l->last[s]; u++) {
				double rate = y.apart[u]
						      ? fmin(y.rate[u], inside)
						      : inside;
				double spread =
					g->experts > 1
						? table_experts_whole(t, u, u)
						: 0;

				seconds += (table_whole(t, u, u) - spread) *
						   all / rate +
					   spread * size * y.experts[u];
			}
			most = fmax(most, seconds);
		}
	}
	return most;
}

/* A matrix that embedding and head share: first and last stage of each line sum
 * its gradients, as many lines at once as there are on a node. */
static double shared_seconds(struct drafting *g, const struct draft *d)
{
	const struct fleet *f = &g->job->fleet;
	double bytes =
		model_shared_params(&g->job->model) * g->job->model.gradient;
	double most = 0;

	if (bytes <= 0)
		return 0;
	memset(g->node_first, 0, f->nodes * sizeof(*g->node_first));
	for (int i = 0; i < d->lines; i++) {
		const struct draft_line *l = &d->line[i];

		g->node_first[f->links->node_of[l->team[0].rank]]++;
		g->node_first[f->links->node_of[l->team[l->teams - 1].rank]]++;
	}
	for (int i = 0; i < d->lines; i++) {
		const struct draft_line *l = &d->line[i];
		struct draft_team a = l->team[0], b = l->team[l->teams - 1];
		uint32_t x = f->links->node_of[a.rank];
		uint32_t y = f->links->node_of[b.rank];
		double rate = fmin(way_of(f, a, g->node_first[x]),
				   way_of(f, b, g->node_first[y]));

		if (x == y)
			rate = wire_rate(&g->job->wire, a.rank, b.rank) *
			       fmin(a.tp, b.tp);
		if (l->teams > 1)
			most = fmax(most, bytes / rate);
	}
	return most;
}

static double update_seconds(struct drafting *g, const struct draft *d,
			     int zero)
{
	double most = 0;

	for (int i = 0; i < d->lines; i++) {
		const struct draft_line *l = &d->line[i];

		for (int s = 0, u = 0; s < l->teams; s++) {
			const struct table *t = table_of(
				g->job, kind_of(g, l->team[s].rank),
				l->team[s].tp, l->micro_batch, g->experts);
			double part = 1;

			if (t && zero)
				part = table_part(t, u, l->last[s], d->lines);
			if (t)
				most = fmax(
					most,
					part * table_update(t, u, l->last[s]));
			u = l->last[s] + 1;
		}
	}
	return most;
}

/* Is that a number of lines that share experts, of so many? */
static bool is_asked(const struct drafting *g, int lines, int experts)
{
	int count = g->job->model.experts.count;

	if (g->experts_asked && experts != g->experts_asked)
		return false;
	return experts == 1 || (count && !g->job->measured &&
				lines % experts == 0 && count % experts == 0);
}

double draft_first_line(struct drafting *g, struct draft *d, int lines,
			double most_s)
{
	struct draft_line *l = &d->line[0];
	int total = g->job->global_batch / l->micro_batch;
	int each = (total + lines - 1) / lines;

	double seconds = INFINITY;

	/* No memory is scarcer than with the last of them, and with the most
	 * that may share experts; tokens that travel only make it longer. */
	g->limit_s = isinf(most_s) ? 0 : most_s / each;
	memset(g->route, 0, MODEL_UNITS_MOST * sizeof(*g->route));
	for (int e = lines; e > 0; e = e > 1 ? 1 : 0) {
		while (e > 1 && !is_asked(g, lines, e))
			e--;
		if (e == 1 && !is_asked(g, lines, e))
			break;
		g->experts = e;
		estimate_line(g, l, g->zero_most, lines);
		seconds = fmin(seconds, l->fill + (each - 1) * l->cycle);
	}
	g->experts = 1;
	g->limit_s = 0;
	return seconds;
}

/* Without what follows the passes; tells if more memory might help. */
static double pipe_seconds(struct drafting *g, struct draft *d, int zero,
			   bool *tight)
{
	double seconds;

	*tight = false;
	if (g->experts > 1)
		crowd_routes(g, d);
	for (int i = 0; i < d->lines; i += g->experts) {
		bool good = true;

		if (g->experts > 1) {
			good = estimate_group(g, &d->line[i], zero, d->lines,
					      tight);
		} else {
			estimate_line(g, &d->line[i], zero, d->lines);
			*tight |= g->tight;
			good = !isinf(d->line[i].cycle);
		}
		if (!good) {
			*tight = true;
			return INFINITY;
		}
	}
	seconds = share(g, d, g->job->global_batch);
	if (isinf(seconds) || (g->give_up_s > 0 && seconds > g->give_up_s))
		return INFINITY;
	return fmax(seconds, ways_seconds(g, d));
}

static double after_seconds(struct drafting *g, const struct draft *d, int zero)
{
	double sync = sync_seconds(g, d, zero) + shared_seconds(g, d);

	if (g->overlap == PLAN_OVERLAP_FULL)
		sync /= 2;
	return sync + update_seconds(g, d, zero);
}

#define HARDLY 0.99

/* As little is spread over pipelines as is as good. */
static void estimate_zeros(struct drafting *g, struct draft *d)
{
	int at = g->zero, last = d->lines > 1 ? g->zero_most : g->zero;
	bool tight;
	double pipe = pipe_seconds(g, d, at, &tight);

	d->zero = at;
	d->seconds = pipe;
	if (!isinf(pipe))
		d->seconds += after_seconds(g, d, at);
	for (int zero = at + 1; zero <= last; zero++) {
		double seconds;

		/* The second one costs what the first one does, and the third
		 * one more; they have more memory. */
		if (!tight && zero > 1)
			break;
		if (tight) {
			double before = pipe;

			pipe = pipe_seconds(g, d, zero, &tight);
			at = zero;
			/* More memory that makes no difference: even more of
			 * it makes none. */
			tight &= !(pipe > HARDLY * before);
		}
		seconds = isinf(pipe) ? pipe : pipe + after_seconds(g, d, zero);
		if (seconds < d->seconds * (1 - 1e-6)) {
			d->seconds = seconds;
			d->zero = zero;
		}
	}
	/* What was found on the way is of the last one. */
	if (at > d->zero && !isinf(d->seconds))
		pipe_seconds(g, d, d->zero, &tight);
}

/* With each number of lines that may share experts; of those as fast, the
 * least. */
void draft_estimate(struct drafting *g, struct draft *d)
{
	double best = INFINITY;
	int least = 1, last = 1, most = g->job->model.experts.count;

	for (int e = 1; e == 1 || (e <= d->lines && e <= most); e++) {
		if (!is_asked(g, d->lines, e) || (e > 1 && !may_share(g, d, e)))
			continue;
		g->experts = last = e;
		estimate_zeros(g, d);
		if (d->seconds < best * (1 - 1e-6)) {
			best = d->seconds;
			least = e;
		}
	}
	if (least != last) {
		g->experts = least;
		estimate_zeros(g, d);
	}
	d->seconds = best;
	d->experts = least;
	g->experts = 1;
}
