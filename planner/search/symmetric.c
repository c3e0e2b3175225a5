/* SPDX-License-Identifier: BSD-3-Clause */
/* The plans that Megatron can run: equal degrees, equal stages, ranks in its
 * order (tensor parallelism first, then data, then pipelines). */
#include <math.h>

#include "planner/cost/check.h"
#include "planner/search/search.h"

static bool make(const struct search *s, int tp, int pp, int dp, int batch,
		 bool recompute, int zero, int experts, struct plan *p)
{
	int blocks = s->job->model.layers;

	*p = (struct plan){.seq = s->job->seq,
			   .global_batch = s->job->global_batch,
			   .schedule = s->schedule,
			   .overlap = s->overlap,
			   .zero = zero,
			   .ahead = s->ahead,
			   .experts = experts,
			   .capacity = s->job->capacity};
	snprintf(p->model, sizeof(p->model), "%s", s->job->model.name);
	for (int i = 0; i < dp; i++) {
		struct plan_pipeline *l = plan_add_pipeline(p);

		if (!l)
			return false;
		l->micro_batch = batch;
		l->micro_batches = s->job->global_batch / dp / batch;
		for (int k = 0; k < pp; k++) {
			struct plan_stage *st = plan_add_stage(l, tp);

			if (!st)
				return false;
			for (int r = 0; r < tp; r++)
				st->rank[r] = (uint32_t)((k * dp + i) * tp + r);
			st->first = k ? blocks / pp * k + 1 : 0;
			st->last = k == pp - 1 ? blocks + 1
					       : blocks / pp * (k + 1);
			st->recompute = recompute;
		}
	}
	return true;
}

static void ignore(const char *text, void *ctx)
{
	(void)text;
	(void)ctx;
}

static bool try(const struct search *s, int tp, int pp, int batch,
		bool recompute, int zero, int experts, struct search_found *out)
{
	int ranks = (int)s->job->fleet.ranks, dp = ranks / tp / pp;
	struct plan p;
	struct cost c;
	bool good = make(s, tp, pp, dp, batch, recompute, zero, experts, &p);

	out->drafts++;
	if (good && !check_plan(s->job, &p, ignore, NULL) &&
	    cost_of(s->job, &p, NULL, NULL, &c)) {
		search_take(s, out, &p, &c, "symmetric");
		return true;
	}
	plan_close(&p);
	return good;
}

/* One number of pipelines that share experts, or all that there are. */
static bool try_experts(const struct search *s, int tp, int pp, int batch,
			bool recompute, int zero, struct search_found *out)
{
	int dp = (int)s->job->fleet.ranks / tp / pp;
	int count = s->job->measured ? 0 : s->job->model.experts.count;

	for (int e = 1; e == 1 || (e <= dp && e <= count); e++) {
		if ((s->experts && e != s->experts) || dp % e ||
		    (e > 1 && count % e))
			continue;
		if (!try(s, tp, pp, batch, recompute, zero, e, out))
			return false;
	}
	return true;
}

bool search_symmetric(const struct search *s, struct search_found *out)
{
	int ranks = (int)s->job->fleet.ranks, batch[SEARCH_SIZES];
	int first = s->zero < 0 ? 0 : s->zero, last = s->zero < 0 ? 3 : first;
	int batches = search_batches(s, batch);

	for (int tp = 1; tp <= ranks; tp++) {
		for (int pp = 1; pp <= ranks / tp; pp++) {
			int dp = ranks / tp / pp;

			if (ranks % (tp * pp) || s->job->model.heads % tp ||
			    s->job->model.layers % pp)
				continue;
			for (int i = 0; i < batches; i++) {
				if (s->job->global_batch % (batch[i] * dp))
					continue;
				for (int r = 0; r < 2; r++)
					for (int z = first; z <= last; z++)
						if (!try_experts(s, tp, pp,
								 batch[i], r, z,
								 out))
							return false;
			}
		}
	}
	return true;
}
