/* SPDX-License-Identifier: BSD-3-Clause */
/* Searches of a few devices that are told one micro-batch, one ZeRO stage,
 * or one of each, beside the one that tries all: its climbs walk past what
 * these find. */
#include "planner/search/search.h"

/* Beyond, the search that tries all takes as long as it may. */
#define RANKS_MOST 64
/* Micro-batches are looked at with so many times fewer rounds, and left there
 * if that is so many times slower than the best. */
#define ROUNDS_LESS 8
#define FAR 1.1

/* The best of both; b is empty then. */
static void merge(const struct search *s, struct search_found *a,
		  struct search_found *b)
{
	a->drafts += b->drafts;
	a->all_s += b->all_s;
	if (b->plan.pipelines)
		search_take(s, a, &b->plan, &b->cost, b->from);
	for (int i = 0; i < b->others; i++)
		search_take(s, a, &b->other[i].plan, &b->other[i].cost,
			    b->other[i].from);
	*b = (struct search_found){0};
}

/* False: no memory. */
static bool search_one(const struct search *one, struct search_found *out)
{
	struct search_found found;
	bool good = search_spaces(one, &found);

	merge(one, out, &found);
	return good;
}

/* False: no memory. */
static bool is_far(const struct search *one, struct search_found *out,
		   bool *far)
{
	struct search less = *one;
	struct search_found found;
	bool good;

	less.rounds /= ROUNDS_LESS;
	good = search_spaces(&less, &found);
	*far = good && (!found.plan.pipelines ||
			found.cost.step > out->cost.step * FAR);
	merge(one, out, &found);
	return good;
}

/* Nothing more of what is far from the best. False: no memory. */
static bool search_near(const struct search *one, struct search_found *out,
			bool *far)
{
	return is_far(one, out, far) && (*far || search_one(one, out));
}

bool search_each(const struct search *s, struct search_found *out)
{
	int size[SEARCH_SIZES], n = search_batches(s, size);
	bool good = search_spaces(s, out), far, pair_far;
	struct search one = *s;

	if (!good || !out->plan.pipelines || s->budget_s > 0 ||
	    s->rounds < ROUNDS_LESS || s->job->fleet.ranks > RANKS_MOST ||
	    (s->space != SEARCH_AUTO && s->space != SEARCH_DEVICE))
		return good;
	one.progress = NULL;
	for (int zero = 0; s->zero < 0 && zero <= 3 && good; zero++) {
		one.zero = zero;
		good = search_one(&one, out);
	}
	for (int i = 0; n > 1 && i < n && good; i++) {
		one.zero = s->zero;
		one.micro_batch = size[i];
		good = search_near(&one, out, &far);
		for (int z = 0; s->zero < 0 && !far && z <= 3 && good; z++) {
			one.zero = z;
			good = search_near(&one, out, &pair_far);
		}
	}
	return good;
}
