/* SPDX-License-Identifier: BSD-3-Clause */
/* Tells what is wrong with a plan, if anything. */
#include "planner/cost/check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct checking {
	struct job *j;
	const struct plan *p;
	check_say *say;
	void *ctx;
	int wrong;
};

static void say(struct checking *c, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void say(struct checking *c, const char *format, ...)
{
	char text[1024];
	int n = 0;
	va_list list;

	if (c->p->file)
		n = snprintf(text, sizeof(text) / 2, "%s: ", c->p->file);
	if (n >= (int)sizeof(text) / 2)
		n = (int)sizeof(text) / 2 - 1;
	va_start(list, format);
	vsnprintf(text + n, sizeof(text) - (size_t)n, format, list);
	va_end(list);
	c->wrong++;
	c->say(text, c->ctx);
}

static void check_layers(struct checking *c, int i)
{
	const struct plan_pipeline *l = &c->p->pipeline[i];
	int units = model_units(&c->j->model), next = 0;

	for (int s = 0; s < l->stages; s++) {
		const struct plan_stage *st = &l->stage[s];

		if (st->first != next)
			say(c,
			    "pipelines[%d].stages[%d].layers: [%d, %d]: wanted "
			    "%d first, as the stages before end there",
			    i, s, st->first, st->last, next);
		if (st->last < st->first || st->last >= units)
			say(c,
			    "pipelines[%d].stages[%d].layers: [%d, %d]: wanted "
			    "first to last, up to %d",
			    i, s, st->first, st->last, units - 1);
		next = st->last + 1;
	}
	if (next != units)
		say(c,
		    "pipelines[%d].stages: layers sum up to %d: wanted %d (0 "
		    "the embedding, %d the head)",
		    i, next, units, units - 1);
}

static void check_degree(struct checking *c, int i, int s)
{
	const struct plan_stage *st = &c->p->pipeline[i].stage[s];
	const struct model *m = &c->j->model;

	/* Groups of key and value heads may be held several times. */
	if (m->heads % st->tp)
		say(c,
		    "pipelines[%d].stages[%d].tp: %d: wanted a divisor of the "
		    "%d heads",
		    i, s, st->tp, m->heads);
}

/* A stage of a team that has had one: the same ranks as that. */
static void check_team(struct checking *c, int i, int s)
{
	const struct plan_pipeline *l = &c->p->pipeline[i];
	int first = s % plan_teams(l);
	const struct plan_stage *st = &l->stage[s], *was = &l->stage[first];

	if (st->tp != was->tp)
		say(c,
		    "pipelines[%d].stages[%d].tp: %d: wanted %d, that of "
		    "stages[%d], whose devices hold it, too",
		    i, s, st->tp, was->tp, first);
	for (int r = 0; r < st->tp && st->tp == was->tp; r++)
		if (st->rank[r] != was->rank[r])
			say(c,
			    "pipelines[%d].stages[%d].ranks[%d]: %u: wanted "
			    "%u, that of stages[%d], whose devices hold it, "
			    "too",
			    i, s, r, st->rank[r], was->rank[r], first);
}

/* False: teams cannot be told apart. */
static bool check_interleave(struct checking *c, int i)
{
	const struct plan_pipeline *l = &c->p->pipeline[i];
	int chunks = plan_chunks(l), teams = plan_teams(l);

	if (chunks == 1)
		return true;
	if (l->stages % chunks || teams < 2) {
		say(c,
		    "pipelines[%d].interleave: %d: wanted 1, or a divisor of "
		    "the %d stages that leaves 2 at least to each round",
		    i, chunks, l->stages);
		return false;
	}
	if (c->p->schedule != PLAN_INTERLEAVED)
		say(c,
		    "pipelines[%d].interleave: %d: wanted 1 with the schedule "
		    "%s",
		    i, chunks, plan_schedule_name(c->p->schedule));
	if (l->micro_batches % teams)
		say(c,
		    "pipelines[%d].micro_batches: %d: wanted a multiple of "
		    "%d, the stages (%d) by interleave (%d)",
		    i, l->micro_batches, teams, l->stages, chunks);
	return true;
}

/* Messages go round in a circle, or past passes that are put off, so that both
 * sides cannot be held. */
static void check_schedule(struct checking *c)
{
	const struct plan *p = c->p;
	bool some = false;

	if (p->overlap == PLAN_BLOCKING &&
	    (p->schedule == PLAN_INTERLEAVED || p->schedule == PLAN_ZB_H1))
		say(c,
		    "overlap: none: wanted send, p2p or full with the schedule "
		    "%s",
		    plan_schedule_name(p->schedule));
	if (p->schedule != PLAN_INTERLEAVED)
		return;
	for (int i = 0; i < p->pipelines; i++)
		some |= plan_chunks(&p->pipeline[i]) > 1;
	if (!some)
		say(c, "schedule: interleaved: wanted 1f1b or gpipe, as no "
		       "pipeline has interleave above 1");
}

static void check_ranks(struct checking *c)
{
	uint32_t ranks = c->j->fleet.ranks;
	char *used = calloc(ranks, 1);

	for (int i = 0; used && i < c->p->pipelines; i++) {
		const struct plan_pipeline *l = &c->p->pipeline[i];

		if (!check_interleave(c, i))
			continue;
		for (int s = 0; s < l->stages; s++) {
			const struct plan_stage *st = &l->stage[s];

			if (s >= plan_teams(l)) {
				check_team(c, i, s);
				continue;
			}
			for (int r = 0; r < st->tp; r++) {
				if (st->rank[r] >= ranks)
					say(c,
					    "pipelines[%d].stages[%d].ranks"
					    "[%d]: %u: wanted below %u, the "
					    "ranks of %s",
					    i, s, r, st->rank[r], ranks,
					    c->j->fleet.file);
				else if (used[st->rank[r]]++)
					say(c,
					    "pipelines[%d].stages[%d].ranks"
					    "[%d]: %u: wanted a rank that is "
					    "not used twice",
					    i, s, r, st->rank[r]);
			}
		}
	}
	free(used);
}

/* It follows from the micro-batches; another one would be another mean. */
static void check_weight(struct checking *c, int i)
{
	const struct plan_pipeline *l = &c->p->pipeline[i];
	double part =
		(double)l->micro_batch * l->micro_batches / c->p->global_batch;

	if (l->weight >= 0 && fabs(l->weight - part) > 1e-3)
		say(c,
		    "pipelines[%d].weight: %g: wanted %.4g, its part of the "
		    "global batch, or none",
		    i, l->weight, part);
}

static void check_batch(struct checking *c)
{
	long sum = 0;

	for (int i = 0; i < c->p->pipelines; i++)
		sum += (long)c->p->pipeline[i].micro_batch *
		       c->p->pipeline[i].micro_batches;
	if (sum != c->p->global_batch)
		say(c,
		    "pipelines: micro_batch times micro_batches sum up to %ld: "
		    "wanted %d, the global_batch",
		    sum, c->p->global_batch);
	for (int i = 0; sum == c->p->global_batch && i < c->p->pipelines; i++)
		check_weight(c, i);
}

/* Two pipelines that share experts go in step. */
static void check_alike(struct checking *c, int a, int b)
{
	const struct plan_pipeline *x = &c->p->pipeline[a];
	const struct plan_pipeline *y = &c->p->pipeline[b];
	bool same = x->stages == y->stages && plan_chunks(x) == plan_chunks(y);

	if (x->micro_batch != y->micro_batch ||
	    x->micro_batches != y->micro_batches)
		say(c,
		    "pipelines[%d]: %d micro-batches of %d: wanted %d of %d, "
		    "those of pipelines[%d], with which it shares experts",
		    b, y->micro_batches, y->micro_batch, x->micro_batches,
		    x->micro_batch, a);
	for (int s = 0; same && s < x->stages; s++)
		same = x->stage[s].first == y->stage[s].first &&
		       x->stage[s].last == y->stage[s].last;
	if (!same)
		say(c,
		    "pipelines[%d].stages: wanted the layers of those of "
		    "pipelines[%d], with which it shares experts",
		    b, a);
}

static void check_experts(struct checking *c)
{
	const struct plan *p = c->p;
	int experts = c->j->model.experts.count;

	if (p->experts < 2)
		return;
	if (!experts)
		say(c, "expert_parallel: %d: wanted 1: %s has no experts",
		    p->experts, c->j->model.name);
	else if (c->j->measured)
		say(c,
		    "expert_parallel: %d: wanted 1 with a profile, which does "
		    "not tell it",
		    p->experts);
	else if (experts % p->experts || p->pipelines % p->experts)
		say(c,
		    "expert_parallel: %d: wanted a divisor of the %d experts "
		    "and of the %d pipelines",
		    p->experts, experts, p->pipelines);
	else
		for (int i = 0; i < p->pipelines; i++)
			if (i % p->experts)
				check_alike(c, i - i % p->experts, i);
}

/* Whoever waits for each message cannot be ahead of it. */
static void check_ahead(struct checking *c)
{
	const struct plan *p = c->p;

	if (!p->ahead)
		return;
	if (p->schedule != PLAN_1F1B)
		say(c, "ahead: %d: wanted 0 with the schedule %s", p->ahead,
		    plan_schedule_name(p->schedule));
	else if (p->overlap == PLAN_BLOCKING || p->overlap == PLAN_EAGER)
		say(c, "ahead: %d: wanted 0 with the overlap %s", p->ahead,
		    plan_overlap_name(p->overlap));
}

static void check_memory(struct checking *c)
{
	struct cost cost;

	if (!cost_of(c->j, c->p, NULL, NULL, &cost)) {
		say(c, "no cost can be found");
		return;
	}
	for (int i = 0; i < cost.pipelines; i++) {
		for (int s = 0; s < plan_teams(&c->p->pipeline[i]); s++) {
			const struct memory *m =
				&cost.pipeline[i].stage[s].memory;

			if (m->total > m->limit)
				say(c,
				    "pipelines[%d].stages[%d]: %.2f GiB on "
				    "each device: wanted at most the %.2f GiB "
				    "of %s",
				    i, s, m->total / 0x1p30, m->limit / 0x1p30,
				    fleet_type(
					    &c->j->fleet,
					    c->p->pipeline[i].stage[s].rank[0])
					    ->name);
		}
	}
	cost_free(&cost);
}

int check_plan(struct job *j, const struct plan *p, check_say *tell, void *ctx)
{
	struct checking c = {.j = j, .p = p, .say = tell, .ctx = ctx};

	for (int i = 0; i < p->pipelines; i++) {
		check_layers(&c, i);
		for (int s = 0; s < p->pipeline[i].stages; s++)
			check_degree(&c, i, s);
	}
	check_schedule(&c);
	check_ranks(&c);
	check_batch(&c);
	check_ahead(&c);
	check_experts(&c);
	if (!c.wrong)
		check_memory(&c);
	return c.wrong;
}
