/* SPDX-License-Identifier: BSD-3-Clause */
/* Local moves: swap, move, split, merge, drop and add teams. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/search/search.h"

#define ROUND_MOVES 16
/* What may be simulated for each move: about 0.2 ms. */
#define CREDIT 2000
/* A draft is simulated if its estimate is no worse than that. */
#define HOPEFUL 1.05

struct climb {
	struct search_worker *w;
	struct search_climb *c;
};

static uint32_t draw(struct climb *c, int n)
{
	uint64_t x = c->c->random;

	/* xorshift64*, Vigna 2014. */
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	c->c->random = x;
	return (uint32_t)(((x * UINT64_C(2685821657736338717)) >> 33) %
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

static bool is_degree(const struct job *j, int tp)
{
	return tp > 0 && j->model.heads % tp == 0;
}

static bool cut_team(struct climb *c, struct draft_line *a, int i, int first)
{
	struct draft_team rest = a->team[i];

	rest.tp -= first;
	if (!is_degree(c->w->s->job, first) ||
	    !is_degree(c->w->s->job, rest.tp))
		return false;
	a->team[i].tp = first;
	rest.rank += (uint32_t)first;
	return draft_add_team(a, i + 1, rest);
}

static bool split(struct climb *c, struct draft *d)
{
	struct draft_line *a = slow_line(c, d);
	int i = (int)draw(c, a->teams), tp = a->team[i].tp;

	if (tp < 2)
		return false;
	return cut_team(c, a, i,
			tp % 2 || draw(c, 2) ? 1 + (int)draw(c, tp - 1)
					     : tp / 2);
}

/* With the neighbour on its node, wherever that is. */
static bool merge(struct climb *c, struct draft *d)
{
	const struct job *j = c->w->s->job;
	struct draft_line *a = slow_line(c, d);
	int i = (int)draw(c, a->teams);
	struct draft_team *t = &a->team[i];
	uint32_t other = t->rank + (uint32_t)t->tp;

	if (other >= j->fleet.ranks ||
	    j->fleet.links->node_of[other] != j->fleet.links->node_of[t->rank])
		return false;
	for (int l = 0; l < d->lines; l++) {
		struct draft_line *b = &d->line[l];

		for (int k = 0; k < b->teams; k++) {
			if (b->team[k].rank != other ||
			    !is_degree(j, t->tp + b->team[k].tp))
				continue;
			if (b->teams == 1)
				return false;
			t->tp += b->team[k].tp;
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

static bool drop(struct climb *c, struct draft *d)
{
	struct draft_line *a = any_line(c, d);

	if (a->teams < 2)
		return false;
	draft_take_team(a, (int)draw(c, a->teams));
	return true;
}

/* Has a part of a team work by now? */
static bool is_busy(const struct draft *d, struct draft_team team)
{
	for (int l = 0; l < d->lines; l++) {
		for (int i = 0; i < d->line[l].teams; i++) {
			struct draft_team t = d->line[l].team[i];

			if (t.rank < team.rank + (uint32_t)team.tp &&
			    team.rank < t.rank + (uint32_t)t.tp)
				return true;
		}
	}
	return false;
}

static bool put_to_work(struct climb *c, struct draft *d)
{
	const struct draft_line *idle = &c->c->idle;
	struct draft_line *to = slow_line(c, d);
	struct draft_team team;
	int at;

	if (!idle->teams)
		return false;
	at = (int)draw(c, to->teams + 1);
	team = idle->team[draw(c, idle->teams)];
	/* Of several moves in a row, one before may have taken it. */
	return !is_busy(d, team) && draft_add_team(to, at, team);
}

/* The same in all pipelines that have as many stages as this one: where many
 * are alike, none of them alone makes a step shorter. */
static bool change_alike(struct climb *c, struct draft *d)
{
	int n = any_line(c, d)->teams, what = (int)draw(c, 4);
	int i = (int)draw(c, n), k = (int)draw(c, n);

	if (n < 2 || (i == k && what < 2))
		return false;
	for (int l = 0; l < d->lines; l++) {
		struct draft_line *a = &d->line[l];
		struct draft_team t;

		if (a->teams != n)
			continue;
		t = a->team[i];
		if (what == 0) {
			a->team[i] = a->team[k];
			a->team[k] = t;
		} else if (what < 3) {
			draft_take_team(a, i);
			if (what == 1 && !draft_add_team(a, k, t))
				return false;
		} else if (!cut_team(c, a, i, t.tp / 2)) {
			return false;
		}
	}
	return true;
}

/* Another micro-batch, of one pipeline or of all. */
static bool resize(struct climb *c, struct draft *d)
{
	int size[SEARCH_SIZES], n = search_sizes(c->w->s, size), b;

	if (!n)
		return false;
	b = size[draw(c, n)];
	if (draw(c, 2)) {
		struct draft_line *l = slow_line(c, d);
		bool other = l->micro_batch != b;

		l->micro_batch = b;
		return other;
	}
	d->micro_batch = b;
	for (int i = 0; i < d->lines; i++)
		d->line[i].micro_batch = b;
	return true;
}

/* False: it changes nothing, or cannot be. */
static bool change(struct climb *c, struct draft *d)
{
	if (d->lines > 1 && !draw(c, 3))
		return change_alike(c, d);
	switch (draw(c, 11)) {
	case 0:
	case 1:
		return swap(c, d);
	case 2:
	case 3:
		return move(c, d);
	case 4:
		return split(c, d);
	case 5:
		return merge(c, d);
	case 6:
		return draw(c, 2) ? open_line(c, d) : close_line(c, d);
	case 7:
		return drop(c, d);
	case 8:
	case 9:
		return put_to_work(c, d);
	default:
		return resize(c, d);
	}
}

/* ---- who is idle ---- */

static int largest_degree(const struct job *j, int most)
{
	while (!is_degree(j, most))
		most--;
	return most;
}

/* False: no memory. */
static bool find_idle(struct climb *c)
{
	const struct job *j = c->w->s->job;
	const struct fleet *f = &j->fleet;
	const struct draft *d = &c->c->at;
	bool *busy = calloc(f->ranks, sizeof(*busy)), good = busy;

	c->c->idle.teams = 0;
	if (good)
		memcpy(busy, f->off, f->ranks * sizeof(*busy));
	for (int l = 0; l < d->lines && good; l++)
		for (int i = 0; i < d->line[l].teams; i++)
			for (int r = 0; r < d->line[l].team[i].tp; r++)
				busy[d->line[l].team[i].rank + (uint32_t)r] =
					true;
	for (uint32_t r = 0; r < f->ranks && good;) {
		uint32_t n = 0, node = f->links->node_of[r];
		int tp;

		while (r + n < f->ranks && !busy[r + n] &&
		       f->links->node_of[r + n] == node)
			n++;
		if (!n) {
			r++;
			continue;
		}
		tp = largest_degree(j, (int)n);
		good = draft_add_team(&c->c->idle, c->c->idle.teams,
				      (struct draft_team){r, tp});
		r += (uint32_t)tp;
	}
	free(busy);
	return good;
}

/* ---- up, and down again ---- */

/* Known already, or simulated if the credit is enough; below 0: neither. */
static double ask(struct climb *c, const struct draft *d)
{
	long operations = search_operations(d);
	struct search_seen *seen;
	uint64_t key;

	memcpy(&key, &d->seconds, sizeof(key));
	key = (key ^ (uint64_t)d->lines) * UINT64_C(0x9e3779b97f4a7c15);
	seen = &c->c->seen[key >> 54];
	if (seen->seconds == d->seconds)
		return seen->step;
	if (c->c->credit < operations)
		return -1;
	c->c->credit -= operations;
	seen->step = search_step(c->w->s, &c->w->g, d);
	seen->seconds = d->seconds;
	if (isnan(seen->step)) {
		c->w->bad = true;
		seen->step = INFINITY;
	}
	return seen->step;
}

static void go_to(struct climb *c, const struct draft *d, double step,
		  bool guessed)
{
	if (d != &c->c->at)
		c->w->bad |= !draft_copy(&c->c->at, d) || !find_idle(c);
	c->c->step = step;
	c->c->guessed = guessed;
	c->c->stuck = 0;
	if (guessed || step >= c->c->best_step)
		return;
	if (d != &c->c->best)
		c->w->bad |= !draft_copy(&c->c->best, d);
	c->c->best_step = step;
}

/* A guess that has come far enough is worth a simulation. */
static void settle(struct climb *c)
{
	double step;

	if (!c->c->guessed)
		return;
	step = ask(c, &c->c->at);
	if (step < 0)
		return;
	if (step < c->c->best_step)
		go_to(c, &c->c->at, step, false);
	else
		go_to(c, &c->c->best, c->c->best_step, false);
}

static void consider(struct climb *c, struct draft *d)
{
	double step;

	draft_estimate(&c->w->g, d);
	c->w->drafts++;
	c->c->stuck++;
	if (isinf(d->seconds) || d->seconds > HOPEFUL * c->c->at.seconds)
		return;
	step = ask(c, d);
	if (step >= 0) {
		if (step < c->c->step * (1 - 1e-9))
			go_to(c, d, step, false);
	} else if (d->seconds < c->c->at.seconds * (1 - 1e-9)) {
		go_to(c, d, c->c->step * d->seconds / c->c->at.seconds, true);
	}
}

/* From the best, some moves whatever comes of them. */
static void kick(struct climb *c, struct draft *trial)
{
	struct draft *d = trial;
	int n = 2 + (int)draw(c, 3);

	c->c->stuck = 0;
	go_to(c, &c->c->best, c->c->best_step, false);
	if (!draft_copy(d, &c->c->best)) {
		c->w->bad = true;
		return;
	}
	for (int i = 0; i < n; i++)
		change(c, d);
	draft_estimate(&c->w->g, d);
	if (!isinf(d->seconds)) {
		double step = ask(c, d);

		if (step < 0)
			step = c->c->best_step * d->seconds /
			       c->c->best.seconds;
		if (!isinf(step))
			go_to(c, d, step, step >= c->c->best_step);
	}
}

bool search_climb_open(struct search_climb *c, const struct search_kept *from,
		       uint64_t seed)
{
	*c = (struct search_climb){
		.step = from->step,
		.best_step = from->step,
		.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
	c->seen = calloc(SEARCH_SEEN, sizeof(*c->seen));
	return c->seen && draft_copy(&c->at, &from->draft) &&
	       draft_copy(&c->best, &from->draft);
}

void search_climb_close(struct search_climb *c)
{
	draft_free(&c->at);
	draft_free(&c->best);
	free(c->idle.team);
	free(c->idle.last);
	free(c->idle.recompute);
	free(c->seen);
	*c = (struct search_climb){0};
}

void search_climb(struct search_worker *w, struct search_climb *k, int rounds)
{
	struct climb c = {w, k};
	struct draft trial = {0};
	int patience = 64, limit;

	for (int i = 0; i < k->best.lines; i++)
		patience += 4 * k->best.line[i].teams;
	w->bad |= !find_idle(&c);
	for (int r = 0; r < rounds * ROUND_MOVES && !w->bad; r++) {
		if (w->s->budget_s > 0 && r % ROUND_MOVES == 0 &&
		    search_over(w))
			break;
		k->credit += CREDIT;
		limit = k->guessed ? patience / 4 : patience;
		if (k->stuck > limit && k->guessed)
			settle(&c);
		else if (k->stuck > limit)
			kick(&c, &trial);
		if (!draft_copy(&trial, &k->at)) {
			w->bad = true;
			break;
		}
		if (change(&c, &trial))
			consider(&c, &trial);
		else
			k->stuck++;
	}
	/* What was found so far counts, also if it was too dear until now. */
	k->credit += k->guessed ? search_operations(&k->at) : 0;
	settle(&c);
	draft_free(&trial);
}
