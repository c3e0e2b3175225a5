/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a search: spaces, threads, moves, and the last word by simulation. */
#include "planner/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "planner/input/input.h"

/* Drafts that are climbed from, and those that are simulated in the end. */
#define CLIMBED 8
#define FINISHED 4
/* Estimates are that good: what is beyond the best is not simulated. */
#define MARGIN 1.03

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

/* ---- threads ---- */

struct crew {
	const struct search *s;
	struct search_worker *worker; /* [jobs] */
	void (*work)(struct search_worker *w, struct crew *c);
	enum search_space space;
	struct search_best best; /* what is climbed from */
};

struct errand {
	struct crew *c;
	int index;
};

static void *run_errand(void *ctx)
{
	struct errand *e = ctx;

	e->c->work(&e->c->worker[e->index], e->c);
	return NULL;
}

/* All at once, this thread being one of them. */
static void run_crew(struct crew *c)
{
	int n = c->s->jobs;
	pthread_t thread[256];
	struct errand errand[256];
	bool started[256] = {false};

	for (int i = n - 1; i >= 0; i--) {
		errand[i] = (struct errand){c, i};
		if (i > 0)
			started[i] = !pthread_create(&thread[i], NULL,
						     run_errand, &errand[i]);
		if (!started[i])
			run_errand(&errand[i]);
	}
	for (int i = 1; i < n; i++)
		if (started[i])
			pthread_join(thread[i], NULL);
}

static void start(struct search_worker *w, struct crew *c)
{
	switch (c->space) {
	case SEARCH_TYPE:
		search_type(w);
		break;
	case SEARCH_DEVICE:
		search_device(w);
		break;
	case SEARCH_RANDOM:
		search_random(w);
		break;
	default:
		search_every(w);
	}
}

/* Draft k is climbed by one worker, whatever the others do. */
static void climb(struct search_worker *w, struct crew *c)
{
	const struct search *s = c->s;
	int n = c->best.n < CLIMBED ? c->best.n : CLIMBED;
	uint64_t seed = (uint64_t)s->seed * 1000003;

	for (int slice = 0; !w->bad; slice++) {
		for (int k = w->index; k < n && !w->bad; k += w->workers)
			search_climb(w, &c->best.kept[k].draft,
				     seed + (uint64_t)(k + slice * 64),
				     s->budget_s > 0 ? 8 : s->rounds);
		if (w->index == 0 && s->progress)
			s->progress(s->budget_s > 0
					    ? (search_now() - w->begin_s) /
						      s->budget_s
					    : 1,
				    c->best.kept[0].draft.seconds, s->ctx);
		if (s->budget_s <= 0 || search_over(w))
			break;
	}
}

/* ---- the last word ---- */

/* All that are about as good as the best are simulated, a few are finished. */
static bool judge(const struct search *s, struct search_worker *w,
		  struct search_best *b, const char *from,
		  struct search_found *out)
{
	bool taken[SEARCH_KEPT_OF_EVERY] = {false};

	for (int i = 0; i < b->n; i++) {
		struct search_kept *k = &b->kept[i];

		k->step = k->draft.seconds > b->kept[0].draft.seconds * MARGIN
				  ? INFINITY
				  : search_step(s, &w->g, &k->draft);
		if (isnan(k->step))
			return false;
	}
	for (int n = 0; n < FINISHED; n++) {
		int best = -1;

		for (int i = 0; i < b->n; i++)
			if (!taken[i] && !isinf(b->kept[i].step) &&
			    (best < 0 || b->kept[i].step < b->kept[best].step))
				best = i;
		if (best < 0)
			break;
		taken[best] = true;
		if (!search_finish(s, &w->g, &b->kept[best].draft, from, out))
			return false;
	}
	return true;
}

static bool open_crew(struct crew *c)
{
	double now = search_now();
	bool every = c->s->space == SEARCH_EVERY;
	int most = every ? SEARCH_KEPT_OF_EVERY : SEARCH_KEPT;
	int each = every ? SEARCH_EACH_OF_EVERY : SEARCH_EACH;

	c->worker = calloc((size_t)c->s->jobs, sizeof(*c->worker));
	if (!c->worker || !search_best_open(&c->best, most, each))
		return false;
	for (int i = 0; i < c->s->jobs; i++) {
		struct search_worker *w = &c->worker[i];

		w->s = c->s;
		w->index = i;
		w->workers = c->s->jobs;
		w->begin_s = now;
		if (!drafting_open(&w->g, c->s->job) ||
		    !search_best_open(&w->best, most, each))
			return false;
		w->g.schedule = c->s->schedule;
		w->g.overlap = c->s->overlap;
		w->g.zero = c->s->zero < 0 ? 0 : c->s->zero;
		w->g.zero_most = c->s->zero < 0 ? 3 : c->s->zero;
		w->g.ahead = c->s->ahead;
		w->g.by_memory = c->s->by_memory;
	}
	return true;
}

static void close_crew(struct crew *c)
{
	for (int i = 0; c->worker && i < c->s->jobs; i++) {
		drafting_close(&c->worker[i].g);
		search_best_close(&c->worker[i].best);
	}
	search_best_close(&c->best);
	free(c->worker);
}

/* Of all workers; they begin anew. */
static bool gather(struct crew *c, struct search_found *out)
{
	bool good = true;

	for (int i = 0; i < c->s->jobs; i++) {
		struct search_worker *w = &c->worker[i];

		for (int k = 0; k < w->best.n; k++)
			good &= search_keep(&c->best, &w->best.kept[k].draft,
					    w->best.kept[k].number);
		search_best_empty(&w->best);
		out->drafts += w->drafts;
		w->drafts = 0;
		if (w->first_s > 0 &&
		    (out->first_s <= 0 || w->first_s < out->first_s))
			out->first_s = w->first_s;
		good &= !w->bad;
	}
	return good;
}

static bool search_space(const struct search *s, enum search_space space,
			 struct search_found *out)
{
	static const char *const names[] = {"type", "device", "", "every",
					    "random"};
	struct crew c = {.s = s, .work = start, .space = space};
	bool good = open_crew(&c);

	if (good) {
		run_crew(&c);
		good = gather(&c, out);
	}
	if (good && (space == SEARCH_DEVICE || space == SEARCH_TYPE)) {
		/* Both what was found and what it became are simulated. */
		good = judge(s, &c.worker[0], &c.best, names[space], out);
		if (space == SEARCH_DEVICE) {
			for (int i = 0; i < c.best.n; i++)
				draft_estimate(&c.worker[0].g,
					       &c.best.kept[i].draft);
			c.work = climb;
			run_crew(&c);
			good &= gather(&c, out);
		}
	}
	if (good)
		good = judge(s, &c.worker[0], &c.best, names[space], out);
	close_crew(&c);
	return good;
}

bool search_spaces(const struct search *s, struct search_found *out)
{
	double begin = search_now();
	bool good;

	*out = (struct search_found){0};
	if (s->space == SEARCH_SYMMETRIC)
		good = search_symmetric(s, out);
	else if (s->space == SEARCH_AUTO)
		good = search_space(s, SEARCH_TYPE, out) &&
		       search_space(s, SEARCH_DEVICE, out);
	else
		good = search_space(s, s->space, out);
	out->all_s = search_now() - begin;
	return good;
}

bool search_run(const struct search *s, struct search_found *out)
{
	int batch[SEARCH_SIZES];
	bool good;

	if (s->space == SEARCH_EVERY && s->job->fleet.ranks > 8) {
		input_complain("--space every: %u devices: wanted at most 8",
			       s->job->fleet.ranks);
		return false;
	}
	if (!search_batches(s, batch)) {
		input_complain("--micro-batch: %d: wanted a divisor of the "
			       "global batch, %d",
			       s->micro_batch, s->job->global_batch);
		return false;
	}
	good = search_spaces(s, out);
	if (good && out->plan.pipelines)
		return true;
	if (good)
		search_why(s);
	search_free(out);
	return false;
}

void search_free(struct search_found *f)
{
	plan_close(&f->plan);
	plan_close(&f->second);
	cost_free(&f->cost);
	cost_free(&f->second_cost);
	*f = (struct search_found){0};
}
