/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a search: spaces, threads, moves, and the last word by simulation. */
#include "planner/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Operations that are simulated before the climb, and drafts at least. */
#define JUDGED 3000000
#define JUDGED_LEAST 8
/* Drafts that are climbed from, of clusters up to so many devices. */
static const struct {
	uint32_t ranks;
	int climbed, finished;
} sizes[] = {{64, 32, 8}, {512, 12, 3}, {UINT32_MAX, 8, 3}};

/* ---- threads ---- */

struct crew {
	const struct search *s;
	struct search_worker *worker; /* [jobs] */
	void (*work)(struct search_worker *w, struct crew *c);
	enum search_space space;
	struct search_best best;    /* what is climbed from */
	struct search_climb *climb; /* [climbs] */
	int climbs, rounds;         /* of the phase in work */
	int opened;
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

/* How far each slice of a search by time goes, and which ones those that are
 * far behind take part in. */
enum { SLICE_ROUNDS = 8, BEHIND = 4 };
#define FAR_BEHIND 1.05

static double best_of(const struct crew *c, const struct search_worker *w)
{
	double best = INFINITY;

	for (int k = w->index; k < c->climbs; k += w->workers)
		best = fmin(best, c->climb[k].best_step);
	return best;
}

/* Climb k is one worker's, whatever the others do. */
static void climb(struct search_worker *w, struct crew *c)
{
	const struct search *s = c->s;
	bool timed = s->budget_s > 0;

	for (int slice = 0; !w->bad; slice++) {
		double best = best_of(c, w);

		for (int k = w->index; k < c->climbs && !w->bad;
		     k += w->workers)
			if (slice % BEHIND == 0 ||
			    c->climb[k].best_step <= best * FAR_BEHIND)
				search_climb(w, &c->climb[k],
					     timed ? SLICE_ROUNDS : c->rounds);
		if (w->index == 0 && s->progress)
			s->progress(timed ? (search_now() - w->begin_s) /
						    s->budget_s
					  : 1,
				    best_of(c, w), s->ctx);
		if (!timed || w->index >= c->climbs || search_over(w))
			break;
	}
}

/* ---- the drafts that are climbed from ---- */

/* The best ones of all are; else estimates would have the last word. */
static bool judge(struct crew *c)
{
	long left = JUDGED;

	for (int i = 0; i < c->best.n; i++) {
		struct search_kept *k = &c->best.kept[i];

		left -= search_operations(&k->draft);
		if (left < 0 && i >= JUDGED_LEAST)
			break;
		k->step = search_step(c->s, &c->worker[0].g, &k->draft);
		if (isnan(k->step))
			return false;
	}
	return true;
}

/* Of those that are not taken, the one that takes least; with this micro-batch
 * or number of pipelines only, if these are not 0. -1: none. */
static int find_next(const struct crew *c, const bool *taken, int micro_batch,
		     int lines)
{
	int best = -1;

	for (int i = 0; i < c->best.n; i++) {
		const struct search_kept *k = &c->best.kept[i];

		if (taken[i] || isnan(k->step) || isinf(k->step) ||
		    (micro_batch && k->draft.micro_batch != micro_batch) ||
		    (lines && k->draft.lines != lines))
			continue;
		if (best < 0 || k->step < c->best.kept[best].step)
			best = i;
	}
	return best;
}

static bool is_like_taken(const struct crew *c, const bool *taken, int i)
{
	for (int k = 0; k < c->best.n; k++)
		if (taken[k] && k != i &&
		    c->best.kept[k].draft.lines ==
			    c->best.kept[i].draft.lines &&
		    c->best.kept[k].draft.thin == c->best.kept[i].draft.thin)
			return true;
	return false;
}

/* The best quarter; the best of each micro-batch; the best of each number of
 * pipelines, with all nodes and without slow ones; and what else is good. */
static bool choose(struct crew *c, int most)
{
	bool taken[SEARCH_KEPT_OF_EVERY] = {false};
	bool passed[SEARCH_KEPT_OF_EVERY] = {false};
	int order[64], n = 0, i;

	while (n < most / 4 && (i = find_next(c, taken, 0, 0)) >= 0)
		taken[order[n++] = i] = true;
	for (int b = 1; b <= SEARCH_SIZES && n < most; b++)
		if ((i = find_next(c, taken, b, 0)) >= 0)
			taken[order[n++] = i] = true;
	for (int k = 0; k < c->best.n; k++)
		passed[k] = taken[k];
	while (n < most && (i = find_next(c, passed, 0, 0)) >= 0) {
		passed[i] = true;
		if (!is_like_taken(c, taken, i))
			taken[order[n++] = i] = true;
	}
	while (n < most && (i = find_next(c, taken, 0, 0)) >= 0)
		taken[order[n++] = i] = true;
	c->climb = calloc((size_t)most, sizeof(*c->climb));
	if (!c->climb)
		return false;
	for (; c->climbs < n; c->climbs++, c->opened++)
		if (!search_climb_open(&c->climb[c->climbs],
				       &c->best.kept[order[c->climbs]],
				       (uint64_t)c->s->seed * 1000003 +
					       (uint64_t)c->climbs))
			return false;
	return true;
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

/* Those that have come furthest first; of equals, as they were. */
static void sort_climbs(struct crew *c)
{
	for (int i = 1; i < c->climbs; i++)
		for (int k = i;
		     k > 0 && c->climb[k].best_step < c->climb[k - 1].best_step;
		     k--) {
			struct search_climb x = c->climb[k];

			c->climb[k] = c->climb[k - 1];
			c->climb[k - 1] = x;
		}
}

/* By rounds: all go a little, a third of them further, a few of these still
 * further. By time: workers decide on their own. */
static bool climb_all(struct crew *c, struct search_found *out)
{
	bool good = true;

	c->work = climb;
	for (int phase = 0; phase < 3 && good; phase++) {
		c->rounds = c->s->rounds * (1 << 2 * phase) / 4;
		if (!c->rounds && phase < 2)
			continue;
		run_crew(c);
		good = gather(c, out);
		if (c->s->budget_s > 0)
			break;
		sort_climbs(c);
		c->climbs = (c->climbs + 2) / 3;
	}
	c->climbs = c->opened;
	return good;
}

/* ---- all of it ---- */

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
		w->g.experts_asked = c->s->experts;
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
	for (int i = 0; i < c->opened; i++)
		search_climb_close(&c->climb[i]);
	search_best_close(&c->best);
	free(c->worker);
	free(c->climb);
}

static bool start_space(struct crew *c, enum search_space space,
			struct search_found *out)
{
	c->work = start;
	c->space = space;
	run_crew(c);
	if (!gather(c, out))
		return false;
	search_best_trim(&c->best, space == SEARCH_TYPE ? SEARCH_MARGIN_TYPE
							: SEARCH_MARGIN);
	return true;
}

static const char *const names[] = {"type", "device", "", "every", "random"};

static const char *space_of(const struct crew *c, int kept)
{
	if (c->s->space != SEARCH_AUTO)
		return names[c->space];
	return names[c->best.kept[kept].number < SEARCH_DEVICE_FIRST
			     ? SEARCH_TYPE
			     : SEARCH_DEVICE];
}

/* Of whole rows of micro-batches, and with two layers for each team. */
static bool may_have_chunks(const struct crew *c, const struct draft *d)
{
	int units = model_units(&c->s->job->model);

	for (int i = 0; i < d->lines; i++) {
		const struct draft_line *l = &d->line[i];

		if (l->teams > 1 && l->micro_batches % l->teams == 0 &&
		    units >= 2 * l->teams)
			return true;
	}
	return false;
}

static bool has_shape(const struct crew *c, const bool *taken, int i)
{
	const struct draft *d = &c->best.kept[i].draft;

	for (int k = 0; k < c->best.n; k++) {
		const struct draft *x = &c->best.kept[k].draft;

		if (taken[k] && x->lines == d->lines &&
		    x->line[0].teams == d->line[0].teams &&
		    may_have_chunks(c, x))
			return true;
	}
	return false;
}

/* With chunks longer pipelines wait less: of those that may have them, the best
 * of each number and length of pipelines of which none was finished. */
static bool finish_others(struct crew *c, bool *taken, int most,
			  struct search_found *out)
{
	bool passed[SEARCH_KEPT_OF_EVERY];
	int i;

	memcpy(passed, taken, sizeof(passed));
	for (int n = 0; n < most && (i = find_next(c, passed, 0, 0)) >= 0;) {
		passed[i] = true;
		if (!may_have_chunks(c, &c->best.kept[i].draft) ||
		    has_shape(c, taken, i))
			continue;
		taken[i] = true;
		n++;
		if (!search_finish(c->s, &c->worker[0].g,
				   &c->best.kept[i].draft, space_of(c, i), out))
			return false;
	}
	return true;
}

/* The best few of what was found, and of what became of it. */
static bool finish(struct crew *c, int most, struct search_found *out)
{
	bool taken[SEARCH_KEPT_OF_EVERY] = {false}, climbed[64] = {false};
	double last = 0;

	for (int n = 0; n < most; n++) {
		int kept = find_next(c, taken, 0, 0), at = -1;
		const char *from = names[c->space];
		double step = kept < 0 ? INFINITY : c->best.kept[kept].step;
		struct draft *d = kept < 0 ? NULL : &c->best.kept[kept].draft;

		for (int i = 0; i < c->climbs; i++) {
			if (climbed[i] || c->climb[i].best_step >= step)
				continue;
			at = i;
			step = c->climb[i].best_step;
			d = &c->climb[i].best;
		}
		if (!d)
			break;
		if (at >= 0)
			climbed[at] = true;
		else
			taken[kept] = true;
		if (at < 0)
			from = space_of(c, kept);
		if (fabs(step / last - 1) < 1e-9) {
			n--;
			continue;
		}
		last = step;
		if (!search_finish(c->s, &c->worker[0].g, d, from, out))
			return false;
	}
	return search_has_chunks(c->s) ? finish_others(c, taken, most, out)
				       : true;
}

static bool search_drafts(const struct search *s, struct search_found *out)
{
	struct crew c = {.s = s};
	bool climbs = s->space == SEARCH_AUTO || s->space == SEARCH_DEVICE;
	bool good = open_crew(&c);
	int size = 0;

	while (s->job->fleet.ranks > sizes[size].ranks)
		size++;
	if (s->space == SEARCH_AUTO)
		good = good && start_space(&c, SEARCH_TYPE, out) &&
		       start_space(&c, SEARCH_DEVICE, out);
	else
		good = good && start_space(&c, s->space, out);
	good = good && judge(&c);
	if (good && climbs) {
		good = choose(&c, sizes[size].climbed) && climb_all(&c, out);
	}
	good = good &&
	       finish(&c,
		      s->keep > sizes[size].finished ? s->keep
						     : sizes[size].finished,
		      out);
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
	else
		good = search_drafts(s, out);
	out->all_s = search_now() - begin;
	return good;
}

void search_free(struct search_found *f)
{
	plan_close(&f->plan);
	cost_free(&f->cost);
	for (int i = 0; i < f->others; i++) {
		plan_close(&f->other[i].plan);
		cost_free(&f->other[i].cost);
	}
	*f = (struct search_found){0};
}
