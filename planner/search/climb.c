/* SPDX-License-Identifier: BSD-3-Clause */
/* Local moves: swap, move, split, merge, drop and add teams. */
#include <math.h>
#include <stdlib.h>

#include "planner/search/search.h"

struct climb {
	struct search_worker *w;
	struct draft_line idle; /* teams that do nothing */
	uint64_t random;
};

static uint32_t draw(struct climb *c, int n)
{
	/* xorshift64*, Vigna 2014. */
	c->random ^= c->random >> 12;
	c->random ^= c->random << 25;
	c->random ^= c->random >> 27;
	return (uint32_t)(((c->random * UINT64_C(2685821657736338717)) >> 33) %
			  (uint64_t)n);
}

static struct draft_line *any_line(struct climb *c, struct draft *d)
{
	return &d->line[draw(c, d->lines)];
}

/* Of the pipeline that takes longest, half of the time: it is the one to help.
 */
static struct draft_line *slow_line(struct climb *c, struct draft *d)
{
	struct draft_line *slow = &d->line[0];

	if (draw(c, 2))
		return any_line(c, d);
	for (int i = 1; i < d->lines; i++)
		if (d->line[i].cycle > slow->cycle)
			slow = &d->line[i];
	return slow;
}

static bool swap(struct climb *c, struct draft *d)
{
	struct draft_line *a = slow_line(c, d), *b = any_line(c, d);
	int i = (int)draw(c, a->teams), k = (int)draw(c, b->teams);
	struct draft_team t = a->team[i];

	a->team[i] = b->team[k];
	b->team[k] = t;
	return a != b || i != k;
}

static bool move(struct climb *c, struct draft *d)
{
	struct draft_line *a = any_line(c, d), *b = slow_line(c, d);
	struct draft_team t;

	if (a->teams < 2)
		return false;
	t = draft_take_team(a, (int)draw(c, a->teams));
	return draft_add_team(b, (int)draw(c, b->teams + 1), t);
}

static bool split(struct climb *c, struct draft *d)
{
	struct draft_line *a = slow_line(c, d);
	int i = (int)draw(c, a->teams);
	struct draft_team half = a->team[i];

	if (half.tp % 2)
		return false;
	half.tp /= 2;
	a->team[i].tp /= 2;
	half.rank += (uint32_t)half.tp;
	return draft_add_team(a, i + 1, half);
}

/* With the neighbour on its node, wherever that is. */
static bool merge(struct climb *c, struct draft *d)
{
	const struct job *j = c->w->s->job;
	struct draft_line *a = slow_line(c, d);
	int i = (int)draw(c, a->teams);
	struct draft_team *t = &a->team[i];
	uint32_t other = t->rank + (uint32_t)t->tp;

	if (other >= j->fleet.ranks || j->model.heads % (2 * t->tp) ||
	    j->fleet.links->node_of[other] != j->fleet.links->node_of[t->rank])
		return false;
	for (int l = 0; l < d->lines; l++) {
		struct draft_line *b = &d->line[l];

		for (int k = 0; k < b->teams; k++) {
			if (b->team[k].rank != other || b->team[k].tp != t->tp)
				continue;
			if (b->teams == 1)
				return false;
			t->tp *= 2;
			draft_take_team(b, k);
			return true;
		}
	}
	return false;
}

/* To another line that is made of it, or a line of one team into another. */
static bool open_line(struct climb *c, struct draft *d)
{
	struct draft_line *a = any_line(c, d);
	struct draft_team t;

	if (a->teams < 2)
		return false;
	t = draft_take_team(a, (int)draw(c, a->teams));
	return draft_add_line(d) &&
	       draft_add_team(&d->line[d->lines - 1], 0, t);
}

static bool close_line(struct climb *c, struct draft *d)
{
	int from = (int)draw(c, d->lines);
	struct draft_line last;

	if (d->lines < 2)
		return false;
	last = d->line[from];
	d->line[from] = d->line[d->lines - 1];
	d->line[--d->lines] = last;
	while (d->line[d->lines].teams > 0) {
		struct draft_line *to = any_line(c, d);

		if (!draft_add_team(to, (int)draw(c, to->teams + 1),
				    draft_take_team(&d->line[d->lines], 0)))
			return false;
	}
	return true;
}

enum { ROUND_MOVES = 16 };

/* Idle teams are counted by what is missing: taken out, they stay out unless
 * this draft is dropped; put in, they come from the list. */
static bool drop(struct climb *c, struct draft *d, struct draft_team *out)
{
	struct draft_line *a = any_line(c, d);

	if (a->teams < 2)
		return false;
	*out = draft_take_team(a, (int)draw(c, a->teams));
	return true;
}

void search_climb(struct search_worker *w, struct draft *d, uint64_t seed,
		  int rounds)
{
	struct climb c = {.w = w,
			  .random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
	struct draft trial = {0};

	for (int r = 0; r < rounds * ROUND_MOVES && !w->bad; r++) {
		struct draft_team idle = {0};
		int put = -1;
		bool good = false;

		if (w->s->budget_s > 0 && r % ROUND_MOVES == 0 &&
		    search_over(w))
			break;
		if (!draft_copy(&trial, d)) {
			w->bad = true;
			break;
		}
		switch (draw(&c, 9)) {
		case 0:
		case 1:
			good = swap(&c, &trial);
			break;
		case 2:
		case 3:
			good = move(&c, &trial);
			break;
		case 4:
			good = split(&c, &trial);
			break;
		case 5:
			good = merge(&c, &trial);
			break;
		case 6:
			good = draw(&c, 2) ? open_line(&c, &trial)
					   : close_line(&c, &trial);
			break;
		case 7:
			good = drop(&c, &trial, &idle);
			break;
		case 8:
			if (c.idle.teams > 0) {
				struct draft_line *to = slow_line(&c, &trial);

				put = (int)draw(&c, c.idle.teams);
				good = draft_add_team(
					to, (int)draw(&c, to->teams + 1),
					c.idle.team[put]);
			}
			break;
		}
		if (!good)
			continue;
		draft_estimate(&w->g, &trial);
		w->drafts++;
		/* As fast with fewer devices: better, too. */
		if (trial.seconds >= d->seconds * (1 - 1e-9))
			continue;
		if (idle.tp)
			w->bad |= !draft_add_team(&c.idle, 0, idle);
		if (put >= 0)
			draft_take_team(&c.idle, put);
		w->bad |= !draft_copy(d, &trial);
	}
	draft_free(&trial);
	free(c.idle.team);
	free(c.idle.last);
	free(c.idle.recompute);
}
