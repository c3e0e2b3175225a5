/* SPDX-License-Identifier: BSD-3-Clause */
/* Interleaves the pipelines of a plan: each team of devices gets its layers in
 * several chunks, if simulation finds that faster. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/search/search.h"

/* Operations that are simulated for each number of chunks. */
#define SIMULATED 2000000

struct chunking {
	const struct search *s;
	struct plan plan;
	struct cost cost;
	int chunks;
	bool *alike; /* [pipelines of the plan]: what changes; owned */
	long left;   /* operations */
	bool bad;    /* no memory */
};

/* ---- who may ---- */

/* Can its layers be dealt out to so many chunks of each team? */
static bool has_layers(const struct plan_pipeline *l, int chunks)
{
	if (l->stages < 2)
		return false;
	for (int s = 0; s < l->stages; s++) {
		const struct plan_stage *st = &l->stage[s];

		if (st->last - st->first + 1 < chunks)
			return false;
	}
	return true;
}

static int step_of(const struct plan_pipeline *l, int chunks)
{
	return has_layers(l, chunks) ? l->stages : 1;
}

/* The one that takes its next micro-batches with the least more than it had;
 * NULL: what is left is too little for any. */
static struct plan_pipeline *find_next(const struct plan *was, struct plan *p,
				       int chunks, long rest)
{
	struct plan_pipeline *best = NULL;
	double least = INFINITY;

	for (int i = 0; i < p->pipelines; i++) {
		struct plan_pipeline *l = &p->pipeline[i];
		int step = step_of(l, chunks);
		double part = (double)(l->micro_batches + step) /
			      was->pipeline[i].micro_batches;

		if ((long)step * l->micro_batch > rest || part >= least)
			continue;
		least = part;
		best = l;
	}
	return best;
}

/* Micro-batches of all that may be interleaved become multiples of their teams,
 * others get what is left. False: they cannot. */
static bool round_batches(const struct plan *was, struct plan *p, int chunks)
{
	long rest = 0;

	for (int i = 0; i < p->pipelines; i++) {
		struct plan_pipeline *l = &p->pipeline[i];
		int over = l->micro_batches % step_of(l, chunks);

		l->micro_batches -= over;
		rest += (long)over * l->micro_batch;
	}
	/* Pipelines that share experts stay alike. */
	if (rest && plan_experts(p) > 1)
		return false;
	while (rest > 0) {
		struct plan_pipeline *l = find_next(was, p, chunks, rest);

		if (!l)
			return false;
		l->micro_batches += step_of(l, chunks);
		rest -= (long)step_of(l, chunks) * l->micro_batch;
	}
	for (int i = 0; i < p->pipelines; i++)
		if (p->pipeline[i].micro_batches < 1)
			return false;
	return true;
}

/* ---- chunks of a pipeline ---- */

/* What the head takes of a team, in blocks. */
static double head_blocks(const struct search *s, const struct plan *p,
			  const struct plan_pipeline *l)
{
	const struct plan_stage *st = &l->stage[l->stages - 1];
	const struct fleet *f = &s->job->fleet;
	const struct table *t =
		table_of(s->job, f->kind_of[f->links->node_of[st->rank[0]]],
			 st->tp, l->micro_batch, plan_experts(p));
	int u = s->job->model.layers;
	double block, head;

	if (!t || t->missing)
		return 0;
	block = t->forward[u + 1] - t->forward[u] + t->backward[u + 1] -
		t->backward[u];
	head = t->forward[u + 2] - t->forward[u + 1] + t->backward[u + 2] -
	       t->backward[u + 1];
	return block > 0 ? head / block : 0;
}

/* Units of each chunk of a stage: as even as can be, but that the last chunk of
 * the last stage has the head, too, and the first one of all the embedding,
 * which takes no time. */
static void deal_out(const struct plan_pipeline *l, int at, int chunks,
		     double head, int *units)
{
	const struct plan_stage *st = &l->stage[at];
	bool first = at == 0, last = at == l->stages - 1;
	int blocks = st->last - st->first + 1 - first - last, end = 0, n;

	if (last) {
		/* Fewer beside the head, by what it takes. */
		end = (int)lround((blocks + head) / chunks - head);
		end = end < 0 ? 0 : end;
		end = end > blocks / chunks ? blocks / chunks : end;
		units[--chunks] = end + 1;
		blocks -= end;
	}
	n = chunks;
	for (int c = 0; c < chunks; c++) {
		bool alone = first && c == 0 && blocks < chunks;

		units[c] = alone ? 0 : (blocks + n - 1) / n;
		blocks -= units[c];
		n--;
	}
	units[0] += first;
}

/* Replaces the stages of a pipeline by those of its chunks. False: no memory.
 */
static bool split(const struct chunking *k, struct plan *p,
		  const struct plan_pipeline *l)
{
	struct plan_pipeline *to = plan_add_pipeline(p);
	double head = head_blocks(k->s, p, l);
	int units[PLAN_CHUNKS_MOST], first = 0;
	bool some =
		has_layers(l, k->chunks) && l->micro_batches % l->stages == 0;
	int chunks = some ? k->chunks : 1;

	if (!to)
		return false;
	to->micro_batch = l->micro_batch;
	to->micro_batches = l->micro_batches;
	to->interleave = chunks;
	for (int s = 0; s < chunks * l->stages; s++) {
		const struct plan_stage *from = &l->stage[s % l->stages];
		struct plan_stage *st = plan_add_stage(to, from->tp);

		if (!st)
			return false;
		memcpy(st->rank, from->rank,
		       (size_t)from->tp * sizeof(*st->rank));
		st->recompute = from->recompute;
		deal_out(l, s % l->stages, chunks, head, units);
		st->first = first;
		st->last = first + units[s / l->stages] - 1;
		if (chunks == 1)
			st->last = from->last;
		first = st->last + 1;
	}
	return true;
}

/* A copy of p whose pipelines are interleaved where they can be: all that have
 * the layers, else those whose micro-batches do as they are. */
static bool copy_split(struct chunking *k, const struct plan *p)
{
	size_t n = (size_t)p->pipelines;
	struct plan from = *p;
	bool good = true;

	k->plan = *p;
	k->plan.pipeline = NULL;
	k->plan.pipelines = 0;
	k->plan.ahead = 0;
	from.pipeline = calloc(n, sizeof(*from.pipeline));
	if (!from.pipeline)
		return false;
	memcpy(from.pipeline, p->pipeline, n * sizeof(*from.pipeline));
	if (!round_batches(p, &from, k->chunks))
		memcpy(from.pipeline, p->pipeline, n * sizeof(*from.pipeline));
	for (int i = 0; i < p->pipelines && good; i++) {
		good = split(k, &k->plan, &from.pipeline[i]);
		if (good && plan_chunks(&k->plan.pipeline[i]) > 1)
			k->plan.schedule = PLAN_INTERLEAVED;
	}
	free(from.pipeline);
	return good;
}

/* ---- better ones nearby ---- */

/* True, and the cost is that of the plan as it is, if that is better. */
static bool is_better(struct chunking *k)
{
	struct cost c;

	for (int i = 0; i < k->plan.pipelines; i++)
		k->left -= 6L * k->plan.pipeline[i].stages *
			   k->plan.pipeline[i].micro_batches;
	if (k->left < 0 || k->bad)
		return false;
	if (!cost_of(k->s->job, &k->plan, NULL, NULL, &c)) {
		k->bad = true;
		return false;
	}
	if (c.fits && c.step < k->cost.step * (1 - 1e-9)) {
		cost_free(&k->cost);
		k->cost = c;
		return true;
	}
	cost_free(&c);
	return false;
}

static bool is_alike(const struct plan_pipeline *a,
		     const struct plan_pipeline *b)
{
	if (a->stages != b->stages || plan_chunks(a) != plan_chunks(b) ||
	    a->micro_batch != b->micro_batch ||
	    a->micro_batches != b->micro_batches)
		return false;
	for (int s = 0; s < a->stages; s++)
		if (a->stage[s].last != b->stage[s].last ||
		    a->stage[s].recompute != b->stage[s].recompute)
			return false;
	return true;
}

/* Pipelines that are like this one change with it, as the step is that of the
 * slowest; and those that share experts with one of them. False: it is like one
 * before it. */
static bool take_alike(struct chunking *k, int at)
{
	const struct plan_pipeline *l = k->plan.pipeline;

	for (int i = 0; i < k->plan.pipelines; i++)
		k->alike[i] =
			is_alike(&l[i - i % plan_experts(&k->plan)], &l[at]);
	for (int i = 0; i < at; i++)
		if (k->alike[i])
			return false;
	return true;
}

/* One layer from stage a to stage b, through all between. */
static void carry(const struct chunking *k, int a, int b)
{
	int by = a < b ? -1 : 1, low = a < b ? a : b, high = a < b ? b : a;

	for (int i = 0; i < k->plan.pipelines; i++) {
		for (int s = low; s < high && k->alike[i]; s++) {
			k->plan.pipeline[i].stage[s].last += by;
			k->plan.pipeline[i].stage[s + 1].first += by;
		}
	}
}

static bool move_layer(struct chunking *k, int i, int a, int b)
{
	const struct plan_stage *from = &k->plan.pipeline[i].stage[a];

	if (from->first == from->last)
		return false;
	carry(k, a, b);
	if (is_better(k))
		return true;
	carry(k, b, a);
	return false;
}

static bool turn(struct chunking *k, int s)
{
	for (int way = 0; way < 2; way++) {
		for (int i = 0; i < k->plan.pipelines; i++)
			if (k->alike[i])
				k->plan.pipeline[i].stage[s].recompute ^= true;
		if (way == 0 && is_better(k))
			return true;
	}
	return false;
}

/* To the next stages, and to the other chunks of its team. */
static bool improve_pipeline(struct chunking *k, int i)
{
	const struct plan_pipeline *l = &k->plan.pipeline[i];
	int teams = plan_teams(l);
	bool better = false;

	for (int s = 0; s < l->stages && k->left > 0; s++) {
		if (l->stage[s].recompute)
			better |= turn(k, s);
		for (int b = 0; b < l->stages; b++)
			if (b != s && (b == s - 1 || b == s + 1 ||
				       b % teams == s % teams))
				better |= move_layer(k, i, s, b);
		if (!l->stage[s].recompute)
			better |= turn(k, s);
	}
	return better;
}

static bool improve(struct chunking *k)
{
	bool better = true;

	while (better && k->left > 0 && !k->bad) {
		better = false;
		for (int i = 0; i < k->plan.pipelines;
		     i += plan_experts(&k->plan))
			if (take_alike(k, i))
				better |= improve_pipeline(k, i);
	}
	return !k->bad;
}

/* ---- all of it ---- */

/* Another chunk is computed again of each team that has too little memory;
 * pipelines that share experts may differ in that. False: all are. */
static bool save_memory(struct chunking *k)
{
	bool some = false;

	for (int i = 0; i < k->plan.pipelines; i++) {
		struct plan_pipeline *l = &k->plan.pipeline[i];
		int teams = plan_teams(l);

		for (int t = 0; t < teams; t++) {
			const struct memory *m =
				&k->cost.pipeline[i].stage[t].memory;
			int s = t;

			if (m->total <= m->limit)
				continue;
			while (s < l->stages && l->stage[s].recompute)
				s += teams;
			if (s >= l->stages)
				return false;
			l->stage[s].recompute = some = true;
		}
	}
	return some;
}

/* Chunks keep more activations in flight. */
static bool first_cost(struct chunking *k)
{
	bool good = cost_of(k->s->job, &k->plan, NULL, NULL, &k->cost);

	while (good && !k->cost.fits && save_memory(k)) {
		cost_free(&k->cost);
		good = cost_of(k->s->job, &k->plan, NULL, NULL, &k->cost);
	}
	return good;
}

/* Replaces `out`, if that is slower or there is none. */
static bool try(struct chunking *k, const struct plan *p, struct plan *out,
		struct cost *c)
{
	bool good = copy_split(k, p);

	k->alike = calloc((size_t)p->pipelines, sizeof(*k->alike));
	good &= k->alike != NULL;
	if (good && k->plan.schedule == PLAN_INTERLEAVED) {
		good = first_cost(k);
		if (good && k->cost.fits)
			good = improve(k);
		if (good && k->cost.fits &&
		    (!out->pipelines || k->cost.step < c->step)) {
			struct plan was = *out;
			struct cost was_cost = *c;

			*out = k->plan;
			*c = k->cost;
			k->plan = was;
			k->cost = was_cost;
		}
		cost_free(&k->cost);
	}
	plan_close(&k->plan);
	free(k->alike);
	return good;
}

bool search_chunks(const struct search *s, const struct plan *p,
		   struct plan *out, struct cost *c)
{
	int low = s->interleave < 0 ? 2 : s->interleave;
	int high = s->interleave < 0 ? PLAN_CHUNKS_MOST : s->interleave;
	bool good = true;

	*out = (struct plan){0};
	*c = (struct cost){0};
	for (int v = low; v > 1 && v <= high && good; v *= 2) {
		struct chunking k = {.s = s, .chunks = v, .left = SIMULATED};

		good = try(&k, p, out, c);
	}
	if (!good) {
		plan_close(out);
		cost_free(c);
	}
	return good;
}
