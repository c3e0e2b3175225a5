/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs of a plan: stages, boundaries, gradients, and the event simulation. */
#include "planner/cost/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cost/route.h"
#include "planner/input/input.h"

/*
 * How far predictions are off: where times were measured, what nine of ten of
 * the measured plans of docs/planner.md stay within; where they follow from
 * peak rates and an efficiency, what the efficiencies of the same device differ
 * by from model to model.
 */
#define ERROR_MEASURED 0.15
#define ERROR_COMPUTED 0.35

struct costing {
	struct job *j;
	const struct plan *p;
	struct cost *c;
	struct schedule_pipeline *sim; /* [pipelines] */
	int *crowd; /* [node]: stages with gradients of other units there */
};

int cost_stage_of(const struct plan_pipeline *l, int unit)
{
	for (int s = 0; s < l->stages; s++)
		if (unit <= l->stage[s].last)
			return s;
	return l->stages - 1;
}

int cost_groups(const struct plan *p, const struct model *m,
		struct cost_group *group)
{
	bool cut[MODEL_UNITS_MOST + 1] = {false};
	int n = 0;

	cut[0] = true;
	for (int i = 0; i < p->pipelines; i++)
		for (int s = 0; s < p->pipeline[i].stages; s++)
			cut[p->pipeline[i].stage[s].first] = true;
	for (int u = 0; u < model_units(m); u++) {
		if (cut[u])
			group[n++].first = u;
		group[n - 1].last = u;
	}
	return n;
}

/* ---- stages ---- */

static const struct table *stage_table(struct costing *k, int i,
				       const struct plan_stage *s)
{
	const struct fleet *f = &k->j->fleet;
	uint32_t node = f->links->node_of[s->rank[0]];

	return table_of(k->j, f->kind_of[node], s->tp,
			k->p->pipeline[i].micro_batch, plan_experts(k->p));
}

/* Where a group spans nodes: the slowest of its kinds, and what its
 * all-reduces take longer than those within a node. */
static bool widen(struct costing *k, int i, const struct plan_stage *s,
		  struct cost_stage *c)
{
	const struct fleet *f = &k->j->fleet;
	int micro_batch = k->p->pipeline[i].micro_batch, blocks = 0;
	double bytes = table_boundary_bytes(k->j, micro_batch), far, near = 0;
	bool apart = false;
	uint32_t inside[1024];

	for (int r = 1; r < s->tp; r++) {
		uint32_t node = f->links->node_of[s->rank[r]];
		const struct table *t =
			table_of(k->j, f->kind_of[node], s->tp, micro_batch,
				 plan_experts(k->p));

		apart |= node != f->links->node_of[s->rank[0]];
		if (!t || t->missing)
			return t != NULL;
		c->forward = fmax(c->forward, t->forward[s->last + 1] -
						      t->forward[s->first]);
		c->backward = fmax(c->backward, t->backward[s->last + 1] -
							t->backward[s->first]);
	}
	if (!apart)
		return true;
	for (int u = s->first; u <= s->last; u++)
		blocks += u > 0 && u <= k->j->model.layers;
	far = wire_collective(&k->j->wire, WIRE_ALLREDUCE, s->rank, NULL, NULL,
			      s->tp, bytes);
	if (s->tp <= (int)fleet_kind(f, s->rank[0])->ranks && s->tp <= 1024) {
		uint32_t node = f->links->node_of[s->rank[0]];

		for (int r = 0; r < s->tp; r++)
			inside[r] = f->first[node] + (uint32_t)r;
		near = wire_collective(&k->j->wire, WIRE_ALLREDUCE, inside,
				       NULL, NULL, s->tp, bytes);
	}
	if (far > near) {
		c->forward += 2 * blocks * (far - near);
		c->backward += 2 * blocks * (far - near);
	}
	return !isnan(far);
}

static bool cost_stage(struct costing *k, int i, int at)
{
	const struct plan_pipeline *l = &k->p->pipeline[i];
	const struct plan_stage *s = &l->stage[at];
	struct cost_stage *c = &k->c->pipeline[i].stage[at];
	struct schedule_stage *sim = &k->sim[i].stage[at];
	const struct table *t = stage_table(k, i, s);

	if (!t)
		return false;
	if (t->missing) {
		input_complain("%s%spipelines[%d].stages[%d]: %s",
			       k->p->file ? k->p->file : "",
			       k->p->file ? ": " : "", i, at, t->why);
		return false;
	}
	c->forward = t->forward[s->last + 1] - t->forward[s->first];
	c->backward = t->backward[s->last + 1] - t->backward[s->first];
	if (k->p->schedule == PLAN_ZB_H1)
		c->weight = t->weight[s->last + 1] - t->weight[s->first];
	c->update = table_update(t, s->first, s->last);
	if (k->p->zero)
		c->update *= table_part(t, s->first, s->last, k->p->pipelines);
	if (!widen(k, i, s, c))
		return false;
	if (s->recompute)
		c->backward += c->forward;
	memory_of(k->j, t, s->first, s->last, s->recompute, at, l->stages,
		  l->micro_batches, k->p, &c->memory);
	sim->node = k->j->fleet.links->node_of[s->rank[0]];
	sim->island = k->j->fleet.links->island_of[sim->node];
	sim->side = k->j->profile.side_s;
	return true;
}

/* What a team of devices keeps, of all stages that it holds. */
static void join_memory(struct costing *k, int i, int team)
{
	const struct plan_pipeline *l = &k->p->pipeline[i];
	struct cost_stage *c = k->c->pipeline[i].stage;
	int chunks = plan_chunks(l), teams = plan_teams(l);
	struct memory in[PLAN_CHUNKS_MOST], all;

	if (chunks > 1) {
		for (int v = 0; v < chunks; v++)
			in[v] = c[v * teams + team].memory;
		memory_join(in, chunks, team, teams, l->micro_batches, k->p,
			    &all);
		for (int v = 0; v < chunks; v++) {
			c[v * teams + team].memory = all;
			c[v * teams + team].memory.in_flight = in[v].in_flight;
		}
	}
	k->c->fits &= c[team].memory.total <= c[team].memory.limit;
}

/* ---- experts ---- */

/* Of a stage, by its nodes: others that send tokens out of them. */
static void crowd_routes(struct costing *k, int first, int at, int *others)
{
	const uint32_t *node_of = k->j->fleet.links->node_of;

	for (int e = 0; e < plan_experts(k->p); e++)
		others[e] = k->crowd[node_of[k->p->pipeline[first + e]
						     .stage[at]
						     .rank[0]]];
}

/* Pipelines that share experts go in step: each pass takes as long as that of
 * the slowest, and what tokens take to their experts and back. */
static bool cost_experts(struct costing *k, int first, int at)
{
	int n = plan_experts(k->p);
	struct route_team *team = calloc((size_t)n, sizeof(*team));
	int *others = calloc((size_t)n, sizeof(*others));
	const struct plan_pipeline *l = &k->p->pipeline[first];
	const struct table *t = stage_table(k, first, &l->stage[at]);
	bool again = false;
	double forward = 0, backward = 0, seconds = NAN;

	if (team && others && t) {
		for (int e = 0; e < n; e++) {
			const struct plan_stage *s = &l[e].stage[at];
			struct cost_stage *c =
				&k->c->pipeline[first + e].stage[at];

			team[e] = (struct route_team){s->rank, s->tp};
			forward = fmax(forward, c->forward);
			backward = fmax(backward, c->backward);
			again |= s->recompute;
		}
		crowd_routes(k, first, at, others);
		seconds =
			table_mixed(t, l->stage[at].first, l->stage[at].last) *
			route_seconds(k->j, team, others, n, l->micro_batch);
	}
	for (int e = 0; e < n; e++) {
		struct cost_stage *c = &k->c->pipeline[first + e].stage[at];

		c->route = seconds;
		/* Where one of them computes again, all send again. */
		c->routes = again ? 3 : 2;
		c->forward = forward + seconds;
		c->backward = backward + seconds * (c->routes - 1);
	}
	free(team);
	free(others);
	return !isnan(seconds);
}

/* Has a stage of this team experts? */
static bool has_mixed(struct costing *k, int i, int team)
{
	const struct plan_pipeline *l = &k->p->pipeline[i];
	const struct table *t = stage_table(k, i, &l->stage[team]);
	bool some = false;

	for (int s = team; t && s < l->stages; s += plan_teams(l))
		some |= table_mixed(t, l->stage[s].first, l->stage[s].last) > 0;
	return some;
}

/* Stages of a node whose experts are on several nodes share its way. */
static void count_routes(struct costing *k)
{
	const uint32_t *node_of = k->j->fleet.links->node_of;
	const struct plan *p = k->p;
	int *seen = calloc(k->j->fleet.nodes, sizeof(*seen)), n = 0;

	memset(k->crowd, 0, k->j->fleet.nodes * sizeof(*k->crowd));
	for (int i = 0; seen && i < p->pipelines; i += plan_experts(p)) {
		/* Stages of one team take turns. */
		for (int s = 0; s < plan_teams(&p->pipeline[i]); s++) {
			const struct plan_stage *st = &p->pipeline[i].stage[s];
			bool apart = false;

			n++;
			for (int e = 1; e < plan_experts(p); e++)
				apart |= node_of[p->pipeline[i + e]
							 .stage[s]
							 .rank[0]] !=
					 node_of[st->rank[0]];
			if (!apart || !has_mixed(k, i, s))
				continue;
			for (int e = 0; e < plan_experts(p); e++) {
				uint32_t node = node_of
					[p->pipeline[i + e].stage[s].rank[0]];

				k->crowd[node] += seen[node] != n;
				seen[node] = n;
			}
		}
	}
	free(seen);
}

static bool cost_passes(struct costing *k)
{
	const struct plan *p = k->p;

	if (plan_experts(p) > 1)
		count_routes(k);
	for (int i = 0; i < p->pipelines && plan_experts(p) > 1;
	     i += plan_experts(p))
		for (int s = 0; s < p->pipeline[i].stages; s++)
			if (!cost_experts(k, i, s))
				return false;
	for (int i = 0; i < p->pipelines; i++) {
		for (int s = 0; s < p->pipeline[i].stages; s++) {
			const struct cost_stage *c =
				&k->c->pipeline[i].stage[s];

			k->sim[i].stage[s].forward = c->forward;
			k->sim[i].stage[s].backward = c->backward;
			k->sim[i].stage[s].weight = c->weight;
		}
	}
	return true;
}

static void cost_boundary(struct costing *k, int i, int at)
{
	const struct plan_pipeline *l = &k->p->pipeline[i];
	const struct plan_stage *a = &l->stage[at], *b = a + 1;
	struct schedule_stage *sim = &k->sim[i].stage[at];
	struct cost_stage *c = &k->c->pipeline[i].stage[at];
	struct wire_transfer t;

	c->send_bytes = table_boundary_bytes(k->j, l->micro_batch);
	t = wire_boundary(&k->j->wire, a->rank, a->tp, b->rank, b->tp,
			  c->send_bytes);
	sim->send = c->send_s = t.seconds;
	sim->send_way = t.way;
	sim->send_out = t.out;
	sim->send_in = t.in;
	t = wire_boundary(&k->j->wire, b->rank, b->tp, a->rank, a->tp,
			  c->send_bytes);
	sim->back = t.seconds;
	sim->back_way = t.way;
	sim->back_out = t.out;
	sim->back_in = t.in;
	sim->send_room = sim->back_room =
		table_send_room(k->j, l->micro_batch, a->tp, b->tp);
}

/* ---- gradients ---- */

/* Stages of one node that sum gradients of other units at the same time share
 * its way out; those of one team do so one after the other. */
static void find_crowds(struct costing *k)
{
	const struct fleet *f = &k->j->fleet;
	const struct plan *p = k->p;
	int *seen = calloc(f->nodes, sizeof(*seen));

	memset(k->crowd, 0, f->nodes * sizeof(*k->crowd));
	for (int u = 0; seen && u < model_units(&k->j->model); u++) {
		for (int i = 0; i < p->pipelines; i++) {
			for (int s = 0; s < plan_teams(&p->pipeline[i]); s++) {
				const struct plan_stage *st =
					&p->pipeline[i].stage[s];
				uint32_t n = f->links->node_of[st->rank[0]];

				if (st->first != u || seen[n] == u + 1)
					continue;
				seen[n] = u + 1;
				k->crowd[n]++;
			}
		}
	}
	free(seen);
}

/* All-reduce; with ZeRO, reduce-scatter of so many bytes, and all-gathers of
 * weights. */
static double sum_at_once(struct costing *k, const uint32_t *rank,
			  const int *width, const int *others, int n,
			  double bytes)
{
	struct wire *w = &k->j->wire;
	int by = k->p->rings ? WIRE_RING : 0;
	double weights = bytes * k->j->model.element / k->j->model.gradient;

	if (!k->p->zero)
		return wire_collective(w, WIRE_ALLREDUCE + by, rank, width,
				       others, n, bytes);
	return wire_collective(w, WIRE_REDUCE_SCATTER + by, rank, width, others,
			       n, bytes) +
	       (k->p->zero == 3 ? 2 : 1) *
		       wire_collective(w, WIRE_ALLGATHER + by, rank, width,
				       others, n, weights);
}

/* Bucket by bucket, one after the other: those of the narrowest team are the
 * fullest. */
static double sum_seconds(struct costing *k, const uint32_t *rank,
			  const int *width, const int *others, int n,
			  double bytes)
{
	double bucket = k->p->bucket, full;
	int narrow = width[0];

	for (int i = 1; i < n; i++)
		narrow = width[i] < narrow ? width[i] : narrow;
	bucket *= narrow;
	if (bucket <= 0 || bytes <= bucket)
		return sum_at_once(k, rank, width, others, n, bytes);
	full = floor(bytes / bucket);
	return full * sum_at_once(k, rank, width, others, n, bucket) +
	       sum_at_once(k, rank, width, others, n, bytes - full * bucket);
}

/* Of all units; and of these, those of experts. */
static bool group_bytes(struct costing *k, const struct cost_group *g,
			double *bytes, double *experts)
{
	const struct plan_stage *s =
		&k->p->pipeline[0]
			 .stage[cost_stage_of(&k->p->pipeline[0], g->first)];
	const struct table *t = stage_table(k, 0, s);

	if (!t)
		return false;
	*bytes = table_whole(t, g->first, g->last) * k->j->model.gradient;
	*experts = table_experts_whole(t, g->first, g->last) *
		   k->j->model.gradient;
	return true;
}

/* Which of the sums of experts leave a node, of whichever group its pipelines
 * are: crowd[node] of them. last has room for each node, too. */
static void count_sums(const struct costing *k, const uint32_t *rank,
		       int *crowd, int *last)
{
	const uint32_t *node_of = k->j->fleet.links->node_of;
	int e = plan_experts(k->p);

	for (int at = 0; at < e; at++) {
		bool far = false;

		for (int i = at; i < k->p->pipelines; i += e)
			far |= node_of[rank[i]] != node_of[rank[at]];
		for (int i = at; far && i < k->p->pipelines; i += e) {
			uint32_t node = node_of[rank[i]];

			crowd[node] += last[node] != at + 1;
			last[node] = at + 1;
		}
	}
}

/* Experts that are spread over pipelines are summed by those that have the
 * same ones: as many sums at once, which share the ways of nodes. */
static double sum_experts(struct costing *k, const uint32_t *rank,
			  const int *width, const int *others, double bytes)
{
	const uint32_t *node_of = k->j->fleet.links->node_of;
	int e = plan_experts(k->p), n = k->p->pipelines / e;
	size_t nodes = k->j->fleet.nodes;
	uint32_t *own = calloc((size_t)n, sizeof(*own));
	int *wide = calloc(2 * (size_t)n, sizeof(*wide));
	int *crowd = calloc(2 * nodes, sizeof(*crowd));
	double most = own && wide && crowd ? 0 : NAN;

	if (crowd)
		count_sums(k, rank, crowd, crowd + nodes);
	for (int at = 0; at < e && !isnan(most) && n > 1; at++) {
		double seconds;

		for (int i = 0; i < n; i++) {
			int me = i * e + at, sums = crowd[node_of[rank[me]]];

			own[i] = rank[me];
			wide[i] = width[me];
			wide[n + i] = others[me] * (sums ? sums : 1);
		}
		seconds = sum_seconds(k, own, wide, wide + n, n, bytes);
		most = isnan(seconds) ? NAN : fmax(most, seconds);
	}
	free(own);
	free(wide);
	free(crowd);
	return most;
}

/* Pipelines whose first or last stage is on a node, for cost_shared(): they
 * share its way. */
static void count_ends(struct costing *k)
{
	const uint32_t *node_of = k->j->fleet.links->node_of;

	memset(k->crowd, 0, k->j->fleet.nodes * sizeof(*k->crowd));
	for (int i = 0; i < k->p->pipelines; i++) {
		const struct plan_pipeline *l = &k->p->pipeline[i];
		uint32_t a = node_of[l->stage[0].rank[0]];
		uint32_t b = node_of[l->stage[l->stages - 1].rank[0]];

		k->crowd[a] += l->stages > 1;
		k->crowd[b] += l->stages > 1 && a != b;
	}
}

/* A matrix that embedding and head share has a gradient on both sides, which
 * first and last stage sum, each pipeline its own. */
static bool cost_shared(struct costing *k, int i)
{
	const struct plan_pipeline *l = &k->p->pipeline[i];
	const struct plan_stage *a = &l->stage[0],
				*b = &l->stage[l->stages - 1];
	struct cost_stage *c = k->c->pipeline[i].stage;
	const struct table *t = stage_table(k, i, a);
	const uint32_t *node_of = k->j->fleet.links->node_of;
	uint32_t rank[2] = {a->rank[0], b->rank[0]};
	int width[2] = {a->tp, b->tp};
	int others[2] = {k->crowd[node_of[rank[0]]],
			 k->crowd[node_of[rank[1]]]};
	double bytes, seconds;

	if (!t || l->stages < 2 || t->shared_whole <= 0)
		return t != NULL;
	bytes = t->shared_whole * k->j->model.gradient;
	seconds = wire_collective(
		&k->j->wire, WIRE_ALLREDUCE + (k->p->rings ? WIRE_RING : 0),
		rank, width, others, 2, bytes);
	c[0].sync += seconds;
	c[0].sync_bytes += bytes;
	c[l->stages - 1].sync += seconds;
	c[l->stages - 1].sync_bytes += bytes;
	return !isnan(seconds);
}

static bool cost_sync(struct costing *k)
{
	int n = k->p->pipelines, groups;
	struct cost_group group[MODEL_UNITS_MOST];
	uint32_t *rank = calloc((size_t)n, sizeof(*rank));
	int *width = calloc((size_t)n, sizeof(*width));
	int *others = calloc((size_t)n, sizeof(*others));
	bool good = rank && width && others;

	groups = cost_groups(k->p, &k->j->model, group);
	find_crowds(k);
	for (int g = 0; g < groups && good && n > 1; g++) {
		double bytes, experts, seconds;

		good = group_bytes(k, &group[g], &bytes, &experts);
		if (!good)
			break;
		for (int i = 0; i < n; i++) {
			const struct plan_pipeline *l = &k->p->pipeline[i];
			const struct plan_stage *s =
				&l->stage[cost_stage_of(l, group[g].first)];

			rank[i] = s->rank[0];
			width[i] = s->tp;
			others[i] =
				k->crowd[k->j->fleet.links->node_of[rank[i]]];
		}
		if (plan_experts(k->p) > 1)
			seconds = sum_seconds(k, rank, width, others, n,
					      bytes - experts) +
				  sum_experts(k, rank, width, others, experts);
		else
			seconds = sum_seconds(k, rank, width, others, n, bytes);
		good = !isnan(seconds);
		for (int i = 0; i < n; i++) {
			const struct plan_pipeline *l = &k->p->pipeline[i];
			struct cost_stage *c =
				&k->c->pipeline[i].stage[cost_stage_of(
					l, group[g].first)];

			c->sync += seconds;
			/* Experts that nobody else has are summed by nobody. */
			c->sync_bytes += plan_experts(k->p) < n
						 ? bytes
						 : bytes - experts;
		}
	}
	if (k->j->model.tied)
		count_ends(k);
	for (int i = 0; i < n && good && k->j->model.tied; i++)
		good = cost_shared(k, i);
	free(rank);
	free(width);
	free(others);
	return good;
}

/* ---- the sum ---- */

/* When the gradients of a stage have met, if those of the stages after it on
 * the same devices have at `before`. */
static double late_stage(const struct costing *k, double before, double end,
			 const struct cost_stage *c, const struct plan_stage *s)
{
	/* Bucket by bucket, or layer by layer, while the last backward pass
	 * goes on: the last one's gradients are left when it is over. */
	double left = 1.0 / (s->last - s->first + 1);
	double pass = c->weight > 0 ? c->weight : c->backward;

	if (k->p->bucket > 0 && c->sync_bytes > 0)
		left = fmin(1, k->p->bucket * s->tp / c->sync_bytes);
	return fmax(fmax(before, end - pass * (1 - left)) + c->sync,
		    end + c->sync * left);
}

/* When the gradients of a team have met. */
static double late(const struct costing *k, int i, int team)
{
	const struct plan_pipeline *l = &k->p->pipeline[i];
	const struct schedule_stage *sim = k->sim[i].stage;
	const struct cost_stage *c = k->c->pipeline[i].stage;
	double end = 0, sync = 0, met = 0;

	for (int s = team; s < l->stages; s += plan_teams(l)) {
		end = fmax(end, sim[s].end);
		sync += c[s].sync;
	}
	if (k->p->overlap != PLAN_OVERLAP_FULL)
		return end + sync;
	for (int s = l->stages - plan_teams(l) + team; s >= 0;
	     s -= plan_teams(l))
		met = late_stage(k, met, sim[s].end, &c[s], &l->stage[s]);
	return met;
}

/* What its stages have of a team of devices is that of all of them. */
static void join_times(struct costing *k, int i, int team)
{
	const struct plan_pipeline *l = &k->p->pipeline[i];
	const struct schedule_stage *sim = k->sim[i].stage;
	struct cost_stage *c = k->c->pipeline[i].stage;
	double busy = 0, moving = 0;

	for (int s = team; s < l->stages; s += plan_teams(l)) {
		busy += sim[s].busy;
		moving += sim[s].moving;
	}
	for (int s = team; s < l->stages; s += plan_teams(l)) {
		c[s].busy = busy;
		c[s].moving = moving;
		c[s].idle = k->c->pipeline[i].seconds - busy - moving;
	}
}

static double update_of(const struct costing *k, int i, int team)
{
	const struct plan_pipeline *l = &k->p->pipeline[i];
	double sum = 0;

	for (int s = team; s < l->stages; s += plan_teams(l))
		sum += k->c->pipeline[i].stage[s].update;
	return sum;
}

static void add_up(struct costing *k, double end)
{
	struct cost *c = k->c;
	double all = end, update = 0, flops = 0, again = 0, peak = 0;
	const struct model *m = &k->j->model;

	for (int i = 0; i < c->pipelines; i++) {
		const struct plan_pipeline *l = &k->p->pipeline[i];
		struct cost_pipeline *cp = &c->pipeline[i];
		double work = 0;

		for (int s = 0; s < l->stages; s++) {
			struct schedule_stage *sim = &k->sim[i].stage[s];

			cp->seconds = fmax(cp->seconds, sim->end);
			work += sim->busy;
			for (int u = l->stage[s].first; u <= l->stage[s].last;
			     u++) {
				double x = model_flops(m, u,
						       (double)l->micro_batch *
							       l->micro_batches,
						       k->j->seq);

				flops += 3 * x;
				again += l->stage[s].recompute ? x : 0;
			}
		}
		for (int t = 0; t < plan_teams(l); t++) {
			join_times(k, i, t);
			all = fmax(all, late(k, i, t));
			update = fmax(update, update_of(k, i, t));
			for (int r = 0; r < l->stage[t].tp; r++)
				peak += fleet_type(&k->j->fleet,
						   l->stage[t].rank[r])
						->flops;
		}
		cp->bubble = 1 - work / (cp->seconds * plan_teams(l));
	}
	c->pipe = end;
	c->sync = all - end;
	c->update = update;
	c->step = all + update;
	c->mfu = flops / (c->step * peak);
	c->hfu = (flops + again) / (c->step * peak);
	c->tokens_per_s = (double)k->p->global_batch * k->j->seq / c->step;
	c->error = k->j->measured ? ERROR_MEASURED : ERROR_COMPUTED;
}

static bool prepare(struct costing *k)
{
	int n = k->p->pipelines;

	k->c->pipeline = calloc((size_t)n, sizeof(*k->c->pipeline));
	k->sim = calloc((size_t)n, sizeof(*k->sim));
	k->crowd = calloc(k->j->fleet.nodes, sizeof(*k->crowd));
	if (!k->c->pipeline || !k->sim || !k->crowd)
		return false;
	k->c->pipelines = n;
	for (int i = 0; i < n; i++) {
		const struct plan_pipeline *l = &k->p->pipeline[i];
		size_t stages = (size_t)l->stages;

		k->c->pipeline[i].stage =
			calloc(stages, sizeof(*k->c->pipeline[i].stage));
		k->sim[i].stage = calloc(stages, sizeof(*k->sim[i].stage));
		if (!k->c->pipeline[i].stage || !k->sim[i].stage)
			return false;
		k->sim[i].stages = l->stages;
		k->sim[i].micro_batches = l->micro_batches;
		k->sim[i].ahead = k->p->ahead;
		k->sim[i].interleave = plan_chunks(l);
		for (int s = 0; s < l->stages; s++)
			if (!cost_stage(k, i, s))
				return false;
		for (int t = 0; t < plan_teams(l); t++)
			join_memory(k, i, t);
		for (int s = 0; s + 1 < l->stages; s++)
			cost_boundary(k, i, s);
	}
	return true;
}

bool cost_of(struct job *j, const struct plan *p, schedule_tell *tell,
	     void *ctx, struct cost *out)
{
	struct costing k = {.j = j, .p = p, .c = out};
	double end;
	bool good;

	*out = (struct cost){.fits = true};
	good = prepare(&k) && cost_passes(&k) && cost_sync(&k);
	if (good) {
		/* There is a node at least in each island. */
		end = schedule_run(k.sim, p->pipelines, j->fleet.nodes,
				   p->schedule, p->overlap, tell, ctx);
		good = !isnan(end);
		if (good)
			add_up(&k, end);
		else
			input_complain("simulation: out of memory");
		if (good && !isfinite(out->step)) {
			input_complain("the step takes %g s: wanted rates and "
				       "times of which it is finite",
				       out->step);
			good = false;
		}
	}
	for (int i = 0; k.sim && i < p->pipelines; i++)
		free(k.sim[i].stage);
	free(k.sim);
	free(k.crowd);
	if (!good)
		cost_free(out);
	return good;
}

void cost_free(struct cost *c)
{
	for (int i = 0; i < c->pipelines; i++)
		free(c->pipeline[i].stage);
	free(c->pipeline);
	*c = (struct cost){0};
}
