/* SPDX-License-Identifier: BSD-3-Clause */
/* The drafts that are kept: the best few of each micro-batch size and number of
 * pipelines, with all nodes or without those that are slow to reach, as
 * estimates alone might prefer one kind wrongly. */
#include <math.h>
#include <stdlib.h>

#include "planner/search/search.h"

bool search_best_open(struct search_best *b, int most, int each)
{
	*b = (struct search_best){.most = most, .each = each};
	b->kept = calloc((size_t)most, sizeof(*b->kept));
	return b->kept != NULL;
}

void search_best_empty(struct search_best *b)
{
	for (int i = 0; b->kept && i < b->most; i++)
		draft_free(&b->kept[i].draft);
	b->n = 0;
}

void search_best_close(struct search_best *b)
{
	search_best_empty(b);
	free(b->kept);
	*b = (struct search_best){0};
}

static bool is_before(double a, long i, double b, long k)
{
	return a < b || (a == b && i < k);
}

/* The last one of the same kind, if there is no room for more; or of all. -1:
 * there is room. */
static int find_last(const struct search_best *b, const struct draft *d)
{
	int like = 0, last = -1;

	for (int i = 0; i < b->n; i++) {
		if (b->kept[i].draft.micro_batch != d->micro_batch ||
		    b->kept[i].draft.lines != d->lines ||
		    b->kept[i].draft.thin != d->thin)
			continue;
		like++;
		last = i;
	}
	if (like >= b->each)
		return last;
	return b->n == b->most ? b->n - 1 : -1;
}

double search_best_limit(const struct search_best *b, const struct draft *d)
{
	int last = find_last(b, d);

	return last < 0 ? 0 : b->kept[last].draft.seconds;
}

/* Much the same as one that is kept: it would climb to the same place. */
static int find_same(const struct search_best *b, const struct draft *d)
{
	for (int i = 0; i < b->n; i++)
		if (b->kept[i].draft.seconds == d->seconds &&
		    b->kept[i].draft.lines == d->lines &&
		    b->kept[i].draft.thin == d->thin &&
		    b->kept[i].draft.micro_batch == d->micro_batch)
			return i;
	return -1;
}

bool search_keep(struct search_best *b, const struct draft *d, long number)
{
	int same = find_same(b, d), at = find_last(b, d);
	struct search_kept new;

	if (isinf(d->seconds))
		return true;
	if (same >= 0) {
		if (number > b->kept[same].number)
			return true;
		b->kept[same].number = number;
		return draft_copy(&b->kept[same].draft, d);
	}
	if (at >= 0 && !is_before(d->seconds, number, b->kept[at].draft.seconds,
				  b->kept[at].number))
		return true;
	if (at < 0)
		at = b->n++;
	new = b->kept[at];
	for (; at > 0 &&
	       is_before(d->seconds, number, b->kept[at - 1].draft.seconds,
			 b->kept[at - 1].number);
	     at--)
		b->kept[at] = b->kept[at - 1];
	new.number = number;
	new.step = NAN;
	b->kept[at] = new;
	return draft_copy(&b->kept[at].draft, d);
}

void search_best_trim(struct search_best *b, double margin)
{
	while (b->n > 0 && b->kept[b->n - 1].draft.seconds >
				   margin * b->kept[0].draft.seconds)
		b->n--;
}
