/* SPDX-License-Identifier: BSD-3-Clause */
/* What the searches of all spaces use: time, degrees, batches, what is kept. */
#include <math.h>
#include <time.h>

#include "planner/search/search.h"

double search_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool search_over(const struct search_worker *w)
{
	return w->s->budget_s > 0 && search_now() - w->begin_s > w->s->budget_s;
}

int search_degrees(const struct job *j, int kind, int out[SEARCH_DEGREES])
{
	int ranks = (int)j->fleet.kind[kind].ranks, n = 0;

	for (int tp = 1; tp <= ranks && n < SEARCH_DEGREES; tp++)
		if (j->model.heads % tp == 0)
			out[n++] = tp;
	return n;
}

int search_sizes(const struct search *s, int out[SEARCH_SIZES])
{
	int n = 0;

	for (int b = 1; !s->micro_batch && b <= SEARCH_SIZES; b++)
		if (b <= s->job->global_batch)
			out[n++] = b;
	return n;
}

int search_batches(const struct search *s, int out[SEARCH_SIZES])
{
	int n = 0;

	if (s->micro_batch) {
		out[0] = s->micro_batch;
		return s->job->global_batch % s->micro_batch == 0;
	}
	for (int b = 1; b <= SEARCH_SIZES; b++)
		if (s->job->global_batch % b == 0)
			out[n++] = b;
	return n;
}

void search_look(struct search_worker *w, struct draft *d, long number)
{
	w->g.give_up_s = search_best_limit(&w->best, d);
	draft_estimate(&w->g, d);
	w->g.give_up_s = 0;
	w->drafts++;
	if (w->first_s <= 0 && !isinf(d->seconds))
		w->first_s = search_now() - w->begin_s;
	w->bad |= !search_keep(&w->best, d, number);
}
