/* SPDX-License-Identifier: BSD-3-Clause */
/* What drafts are worth: layers, batch shares, and the time of a step. */
#include "planner/search/draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/hash.h"

/* ---- a line ---- */

static int kind_of(const struct drafting *g, uint32_t rank)
{
	const struct fleet *f = &g->job->fleet;

	return f->kind_of[f->links->node_of[rank]];
}

/* Kinds and degrees, and how near each is to the next. */
static uint64_t line_key(const struct drafting *g, const struct draft_line *l,
			 int micro_batch, int lines)
{
	const struct links *links = g->job->fleet.links;
	int head[3] = {micro_batch, g->zero ? lines : 0, l->teams};
	uint64_t h = hash_bytes(HASH_START, head, sizeof(head));

	for (int i = 0; i < l->teams; i++) {
		uint32_t a = links->node_of[l->team[i].rank];
		uint32_t b = i ? links->node_of[l->team[i - 1].rank] : a;
		int x[3] = {kind_of(g, l->team[i].rank), l->team[i].tp,
			    a == b                                       ? 0
			    : links->island_of[a] == links->island_of[b] ? 1
									 : 2};

		/* Between islands it depends on which. */
		if (x[2] == 2)
			x[2] += (int)(links->island_of[a] * 4096 +
				      links->island_of[b]);
		h = hash_bytes(h, x, sizeof(x));
	}
	return h ? h : 1;
}

static struct wire_transfer transfer(const struct drafting *g,
				     struct draft_team a, struct draft_team b,
				     double bytes)
{
	return wire_boundary(&g->job->wire, &a.rank, a.tp, &b.rank, b.tp,
			     bytes);
}

static void set_stage(struct drafting *g, struct layers_stage *s,
		      struct draft_team team, int micro_batch, int at,
		      int stages, int lines, int most)
{
	const struct fleet_type *type = fleet_type(&g->job->fleet, team.rank);
	double state[3];

	table_state_bytes(g->job, state);
	s->table =
		table_of(g->job, kind_of(g, team.rank), team.tp, micro_batch);
	s->memory = type->memory - type->reserved;
	s->state = state[0] / (g->zero >= 3 ? lines : 1) +
		   state[1] / (g->zero >= 2 ? lines : 1) +
		   state[2] / (g->zero >= 1 ? lines : 1);
	s->in_flight =
		memory_in_flight(at, stages, most, g->schedule, g->ahead);
	s->extra = 0;
}

/* Blocking messages hold both sides, eager ones who sends; others only take the
 * ways of nodes. */
static double charge(struct drafting *g, const struct draft_line *l,
		     int micro_batch, double *through)
{
	double bytes = table_boundary_bytes(g->job, micro_batch), ways = 0;

	*through = 0;
	for (int i = 0; i + 1 < l->teams; i++) {
		struct wire_transfer a =
			transfer(g, l->team[i], l->team[i + 1], bytes);
		struct wire_transfer b =
			transfer(g, l->team[i + 1], l->team[i], bytes);

		g->scratch[i] = a.seconds + b.seconds;
		*through += a.seconds + b.seconds;
		ways = fmax(ways, fmax(a.way, b.way));
		if (g->overlap == PLAN_BLOCKING) {
			g->stage[i].extra += a.seconds + b.seconds;
			g->stage[i + 1].extra += a.seconds + b.seconds;
		}
		if (g->overlap == PLAN_EAGER) {
			g->stage[i].extra += a.seconds;
			g->stage[i + 1].extra += b.seconds;
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

static void find_line(struct drafting *g, struct draft_line *l, int micro_batch,
		      int lines)
{
	int units = model_units(&g->job->model);
	int most = g->job->global_batch / micro_batch;
	double ways, through, slowest;

	l->fill = l->cycle = INFINITY;
	if (l->teams < 1 || l->teams > units)
		return;
	for (int i = 0; i < l->teams; i++) {
		set_stage(g, &g->stage[i], l->team[i], micro_batch, i, l->teams,
			  lines, most);
		if (!g->stage[i].table || g->stage[i].table->missing)
			return;
	}
	ways = charge(g, l, micro_batch, &through);
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
}

static void remember(struct draft_memo *m, const struct draft_line *l,
		     uint64_t key)
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
	memcpy(m->last, l->last, n * sizeof(*l->last));
	memcpy(m->recompute, l->recompute, n * sizeof(*l->recompute));
}

static void estimate_line(struct drafting *g, struct draft_line *l,
			  int micro_batch, int lines)
{
	uint64_t key = line_key(g, l, micro_batch, lines);
	struct draft_memo *m = &g->memo[key % DRAFT_MEMOS];

	if (m->key == key && m->teams == l->teams) {
		l->fill = m->fill;
		l->cycle = m->cycle;
		memcpy(l->last, m->last, (size_t)l->teams * sizeof(*l->last));
		memcpy(l->recompute, m->recompute,
		       (size_t)l->teams * sizeof(*l->recompute));
		return;
	}
	find_line(g, l, micro_batch, lines);
	if (l->teams > 0 && (g->limit_s <= 0 || !isinf(l->cycle)))
		remember(m, l, key);
}

/* ---- batch shares ---- */

static long within(const struct draft_line *l, double seconds)
{
	double m = floor((seconds - l->fill) / l->cycle * (1 + 1e-12)) + 1;

	return m < 1 ? 1 : m > 1e9 ? (long)1e9 : (long)m;
}

/* So that all end at about the same time: the least time in which all
 * micro-batches are done; who would be done last gives back what is too much.
 */
static double share(struct draft *d, int total)
{
	double low = 0, high = 0, end = 0;
	long sum = 0;

	for (int i = 0; i < d->lines; i++)
		high = fmax(high, d->line[i].fill + total * d->line[i].cycle);
	if (isinf(high) || total < d->lines)
		return INFINITY;
	for (int k = 0; k < 50 && high - low > 1e-7 * high; k++) {
		double middle = (low + high) / 2;

		sum = 0;
		for (int i = 0; i < d->lines; i++)
			sum += within(&d->line[i], middle);
		if (sum >= total)
			high = middle;
		else
			low = middle;
	}
	sum = 0;
	for (int i = 0; i < d->lines; i++) {
		d->line[i].micro_batches = (int)within(&d->line[i], high);
		sum += d->line[i].micro_batches;
	}
	while (sum > total) {
		int last = -1;
		double most = -1;

		for (int i = 0; i < d->lines; i++) {
			struct draft_line *l = &d->line[i];
			double t = l->fill + (l->micro_batches - 1) * l->cycle;

			if (l->micro_batches > 1 && t > most) {
				most = t;
				last = i;
			}
		}
		if (last < 0)
			return INFINITY;
		d->line[last].micro_batches--;
		sum--;
	}
	for (int i = 0; i < d->lines; i++)
		end = fmax(end, d->line[i].fill + (d->line[i].micro_batches -
						   1) * d->line[i].cycle);
	return end;
}

/* ---- gradients ---- */

static double way_of(const struct fleet *f, struct draft_team team, int crowd)
{
	const struct links_class *c = &fleet_kind(f, team.rank)->class;
	double nic = c->nic.up ? (double)c->nic.up : INFINITY;
	double own = c->rank ? (double)c->rank * team.tp : INFINITY;

	return fmin(nic / crowd, own);
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

/* Each unit is summed as fast as the slowest of its owners can. */
static double sync_seconds(struct drafting *g, const struct draft *d)
{
	const struct fleet *f = &g->job->fleet;
	int units = model_units(&g->job->model), n = d->lines;
	double rate[MODEL_UNITS_MOST], most = 0;
	double volume = 2.0 * (n - 1) / n * (g->zero == 3 ? 1.5 : 1);
	const struct table *t;
	uint32_t home[MODEL_UNITS_MOST];
	bool apart[MODEL_UNITS_MOST];

	if (n < 2)
		return 0;
	count_crowds(g, d);
	for (int u = 0; u < units; u++) {
		rate[u] = INFINITY;
		apart[u] = false;
	}
	for (int i = 0; i < n; i++) {
		const struct draft_line *l = &d->line[i];

		for (int s = 0, u = 0; s < l->teams; s++) {
			uint32_t node = f->links->node_of[l->team[s].rank];
			double way = way_of(f, l->team[s], g->node_first[node]);

			for (; u <= l->last[s]; u++) {
				rate[u] = fmin(rate[u], way);
				apart[u] |= i > 0 && home[u] != node;
				home[u] = node;
			}
		}
	}
	t = table_of(g->job, kind_of(g, d->line[0].team[0].rank),
		     d->line[0].team[0].tp, d->micro_batch);
	if (!t)
		return INFINITY;
	for (int i = 0; i < n; i++) {
		const struct draft_line *l = &d->line[i];

		for (int s = 0, u = 0; s < l->teams; s++) {
			const struct links_class *c =
				&fleet_kind(f, l->team[s].rank)->class;
			double inside =
				c->inside ? (double)c->inside * l->team[s].tp
					  : INFINITY;
			double seconds = 0;

			for (; u <= l->last[s]; u++)
				seconds += table_whole(t, u, u) *
					   g->job->model.element * volume /
					   (apart[u] ? fmin(rate[u], inside)
						     : inside);
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
		model_shared_params(&g->job->model) * g->job->model.element;
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

static double update_seconds(struct drafting *g, const struct draft *d)
{
	double most = 0;

	for (int i = 0; i < d->lines; i++) {
		const struct draft_line *l = &d->line[i];

		for (int s = 0, u = 0; s < l->teams; s++) {
			const struct table *t =
				table_of(g->job, kind_of(g, l->team[s].rank),
					 l->team[s].tp, d->micro_batch);

			if (t)
				most = fmax(most,
					    table_update(t, u, l->last[s]));
			u = l->last[s] + 1;
		}
	}
	return most / (g->zero ? d->lines : 1);
}

double draft_first_line(struct drafting *g, struct draft *d, int lines,
			double most_s)
{
	struct draft_line *l = &d->line[0];
	int total = g->job->global_batch / d->micro_batch;
	int each = (total + lines - 1) / lines;

	g->limit_s = isinf(most_s) ? 0 : most_s / each;
	estimate_line(g, l, d->micro_batch, lines);
	g->limit_s = 0;
	return l->fill + (each - 1) * l->cycle;
}

void draft_estimate(struct drafting *g, struct draft *d)
{
	double sync;

	d->seconds = INFINITY;
	for (int i = 0; i < d->lines; i++) {
		estimate_line(g, &d->line[i], d->micro_batch, d->lines);
		if (isinf(d->line[i].cycle))
			return;
	}
	d->seconds = share(d, g->job->global_batch / d->micro_batch);
	if (isinf(d->seconds))
		return;
	if (g->give_up_s > 0 && d->seconds > g->give_up_s) {
		d->seconds = INFINITY;
		return;
	}
	sync = sync_seconds(g, d) + shared_seconds(g, d);
	if (g->overlap == PLAN_OVERLAP_FULL)
		sync /= 2;
	d->seconds += sync + update_seconds(g, d);
}
