/* SPDX-License-Identifier: BSD-3-Clause */
/* FlashFlex's cost model. */
#include "planner/cost/flashflex.h"

#include <math.h>

#define GIB 0x1p30
#define TERA 0x1p40
#define BYTES 2.0 /* of an element */

struct flexing {
	const struct job *j;
	const struct plan *p;
	double h, s, v, l; /* hidden, sequence, vocabulary, layers */
};

/* GB/s of the description, in its units. */
static double rate(const struct flexing *f, uint32_t a, uint32_t b)
{
	return wire_rate(&f->j->wire, a, b) / 1e9 * GIB;
}

static double flops(const struct flexing *f, const struct plan_stage *s)
{
	return fleet_type(&f->j->fleet, s->rank[0])->flops / 1e12 * TERA;
}

static int blocks(const struct flexing *f, const struct plan_stage *s)
{
	int first = s->first < 1 ? 1 : s->first;
	int last = s->last > (int)f->l ? (int)f->l : s->last;

	return last < first ? 0 : last - first + 1;
}

static double shape(const struct flexing *f)
{
	return 1 + f->s / (6 * f->h) + f->v / (16 * f->l * f->h);
}

static double compute(const struct flexing *f, const struct plan_stage *s,
		      int batch)
{
	return (s->recompute ? 96 : 72) * batch * f->s * f->h * f->h *
	       shape(f) / (flops(f, s) * s->tp);
}

static double tensor(const struct flexing *f, const struct plan_stage *s,
		     int batch)
{
	double most = 0;

	for (int i = 0; i < s->tp; i++) {
		double sum = 0;

		for (int k = 0; k < s->tp; k++)
			if (k != i)
				sum += batch * f->s * f->h * BYTES /
				       (s->tp *
					rate(f, s->rank[i], s->rank[k]));
		most = fmax(most, sum);
	}
	return (s->recompute ? 12 : 8) * most;
}

static double boundary(const struct flexing *f, const struct plan_stage *a,
		       const struct plan_stage *b, int batch)
{
	double bytes = batch * f->s * f->h * BYTES, least = INFINITY;

	for (int i = 0; i < a->tp; i++) {
		for (int k = 0; k < b->tp; k++) {
			double x = bytes / rate(f, a->rank[i], b->rank[k]);

			for (int q = 0; q < b->tp; q++)
				if (q != k)
					x += bytes /
					     (b->tp *
					      rate(f, b->rank[k], b->rank[q]));
			least = fmin(least, x);
		}
	}
	return 2 * least;
}

static double stage(const struct flexing *f, const struct plan_pipeline *l,
		    int at)
{
	const struct plan_stage *s = &l->stage[at];
	double x = blocks(f, s) * (compute(f, s, l->micro_batch) +
				   tensor(f, s, l->micro_batch));

	if (at + 1 < l->stages)
		x += boundary(f, s, s + 1, l->micro_batch);
	return x;
}

/* In column k, the stages are at work that have a micro-batch then. */
static double pipe(const struct flexing *f, const struct plan_pipeline *l)
{
	double sum = 0;

	for (int k = 0; k < l->micro_batches + l->stages - 1; k++) {
		double most = 0;

		for (int s = 0; s < l->stages; s++)
			if (k - s >= 0 && k - s < l->micro_batches)
				most = fmax(most, stage(f, l, s));
		sum += most;
	}
	return sum;
}

static const struct plan_stage *owner(const struct plan_pipeline *l, int unit)
{
	for (int s = 0; s < l->stages; s++)
		if (unit <= l->stage[s].last)
			return &l->stage[s];
	return &l->stage[l->stages - 1];
}

/* Ranks of a column: each repeated until all lists are as long. */
static double column(const struct flexing *f, int unit, int at, int widest,
		     int narrowest)
{
	const struct plan *p = f->p;
	double most = 0;

	for (int i = 0; i < p->pipelines; i++) {
		const struct plan_stage *a = owner(&p->pipeline[i], unit);
		uint32_t x = a->rank[at / (widest / a->tp)];
		double sum = 0;

		for (int k = 0; k < p->pipelines; k++) {
			const struct plan_stage *b =
				owner(&p->pipeline[k], unit);
			uint32_t y = b->rank[at / (widest / b->tp)];

			if (k != i)
				sum += 12 * f->h * f->h * BYTES /
				       (narrowest * p->pipelines *
					rate(f, x, y));
		}
		most = fmax(most, sum);
	}
	return 2 * most;
}

static double sync(const struct flexing *f)
{
	double sum = 0;

	for (int u = 1; u <= (int)f->l && f->p->pipelines > 1; u++) {
		int widest = 1, narrowest = 1 << 30;

		for (int i = 0; i < f->p->pipelines; i++) {
			int tp = owner(&f->p->pipeline[i], u)->tp;

			widest = tp > widest ? tp : widest;
			narrowest = tp < narrowest ? tp : narrowest;
		}
		for (int c = 0; c < widest / narrowest; c++)
			sum += column(f, u, c, widest, narrowest);
	}
	return sum * (f->p->zero == 3 ? 1.5 : 1);
}

static double memory(const struct flexing *f, const struct plan_pipeline *l,
		     const struct plan_stage *s)
{
	double n = blocks(f, s), tokens = l->micro_batch * f->s;
	double state = n * 12 * f->h * f->h / s->tp + f->h;

	if (s->last > (int)f->l)
		state += f->v * f->h;
	if (s->first == 0)
		state += f->h * (f->v + f->s);
	return (state * BYTES * 4 +
		(n * tokens * f->h / s->tp + 2 * tokens * f->h) * BYTES) /
	       GIB;
}

void flashflex_cost(const struct job *j, const struct plan *p,
		    struct flashflex *out)
{
	struct flexing f = {.j = j,
			    .p = p,
			    .h = j->model.hidden,
			    .s = j->seq,
			    .v = j->model.vocab,
			    .l = j->model.layers};
	double peak = 0, again = 72;

	*out = (struct flashflex){0};
	for (int i = 0; i < p->pipelines; i++) {
		const struct plan_pipeline *l = &p->pipeline[i];

		out->pipe = fmax(out->pipe, pipe(&f, l));
		for (int s = 0; s < l->stages; s++) {
			out->most_memory = fmax(out->most_memory,
						memory(&f, l, &l->stage[s]));
			peak += flops(&f, &l->stage[s]) * l->stage[s].tp;
			again = l->stage[s].recompute ? 96 : again;
		}
	}
	out->sync = sync(&f);
	out->seconds = 1.8 * out->pipe + 1.1 * out->sync;
	out->hfu = again * f.l * p->global_batch * f.s * f.h * f.h * shape(&f) /
		   (out->seconds * peak);
}
