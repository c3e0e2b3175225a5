/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that waits for another one says for whom. So there is a chain from
 * each rank that waits, to one that does not wait, or that has not answered, or
 * in a circle.
 */
#include "perftest/job/hang.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define LEAST_MS 1000 /* shorter waits are the rule in a job */

/* What a rank does in the sentence that is being made */
enum part { NONE, WAITS, BEHIND };

/* One rank, as the communicator's other ranks and it say */
struct seen {
	int rank;
	json_int_t last; /* number of its last collective; 0: none */
	json_t *wait;    /* borrowed; NULL: it does not wait */
	json_int_t ms, number;
	const char *operation;
	int awaits;        /* a rank; -1: none in particular */
	const char *where; /* of that rank */
	bool collective;
	int culprit; /* the end of its chain; -1: it is that itself */
	bool circle; /* its chain has no end */
	enum part part;
	bool told;
};

struct text {
	char at[1024];
	size_t n;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t,
						      const char *format, ...)
{
	size_t left = sizeof(t->at) - t->n;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->at + t->n, left, format, args);
	va_end(args);
	if (n > 0)
		t->n += (size_t)n < left ? (size_t)n : left - 1;
}

static void read_rank(json_t *said, struct seen *s)
{
	json_t *other;

	*s = (struct seen){.awaits = -1, .culprit = -1};
	s->rank = (int)json_integer_value(json_object_get(said, "rank"));
	s->last = json_integer_value(json_object_get(
		json_object_get(said, "last_collective"), "number"));
	s->wait = json_object_get(said, "wait");
	if (!s->wait)
		return;
	s->ms = json_integer_value(json_object_get(s->wait, "ms"));
	s->number = json_integer_value(json_object_get(s->wait, "number"));
	s->operation = json_string_value(json_object_get(s->wait, "operation"));
	s->collective = json_is_true(json_object_get(s->wait, "collective"));
	other = json_object_get(s->wait, "for");
	if (!other)
		return;
	s->awaits = (int)json_integer_value(json_object_get(other, "rank"));
	s->where = json_string_value(json_object_get(other, "where"));
}

static struct seen *find(struct seen *all, size_t n, int rank)
{
	for (size_t i = 0; i < n; i++)
		if (all[i].rank == rank)
			return &all[i];
	return NULL;
}

/* Follows the chain of a rank that waits. */
static void follow(struct seen *all, size_t n, struct seen *from)
{
	struct seen *s = from;

	for (size_t hops = 0; s && s->wait && s->awaits >= 0; hops++) {
		from->culprit = s->awaits;
		from->where = s->where;
		if (hops > n) {
			from->circle = true;
			return;
		}
		s = find(all, n, s->awaits);
	}
}

static bool is_long(const struct seen *s)
{
	return s->wait && s->ms >= LEAST_MS;
}

/* "ranks 0, 1, 3" */
static size_t add_ranks(struct text *t, const struct seen *all, size_t n,
			enum part part)
{
	size_t ranks = 0, told = 0;

	for (size_t i = 0; i < n; i++)
		ranks += all[i].part == part;
	add(t, "rank%s ", ranks == 1 ? "" : "s");
	for (size_t i = 0; i < n; i++)
		if (all[i].part == part)
			add(t, "%s%d", told++ ? ", " : "", all[i].rank);
	return ranks;
}

/* "ranks 0, 1, 3 wait FOR for 3.2 s" */
static void add_waiting(struct text *t, const struct seen *all, size_t n,
			const char *for_what)
{
	size_t ranks = add_ranks(t, all, n, WAITS);
	json_int_t ms = 0;

	for (size_t i = 0; i < n; i++)
		if (all[i].part == WAITS && all[i].ms > ms)
			ms = all[i].ms;
	add(t, " wait%s %s for %.1f s", ranks == 1 ? "s" : "", for_what,
	    (double)ms / 1e3);
}

/* The sentence is complete: those that wait in it are told of. */
static void tell(const struct text *t, struct seen *all, size_t n,
		 json_t *sentences)
{
	for (size_t i = 0; i < n; i++) {
		all[i].told |= all[i].part == WAITS;
		all[i].part = NONE;
	}
	json_array_append_new(sentences, json_string(t->at));
}

/* Who does not wait, and has not entered the collective that this one waits in
 */
static bool tell_behind(struct seen *all, size_t n, const struct seen *waits,
			json_t *sentences)
{
	struct text t = {.n = 0};
	size_t behind = 0;

	if (!waits->collective)
		return false;
	for (size_t i = 0; i < n; i++) {
		struct seen *s = &all[i];

		if (!s->wait && s->last < waits->number)
			s->part = BEHIND;
		else if (is_long(s) && s->collective &&
			 s->number == waits->number)
			s->part = WAITS;
		behind += s->part == BEHIND;
	}
	if (!behind)
		return false;
	add_ranks(&t, all, n, BEHIND);
	add(&t, " %s not entered %s number %lld; ",
	    behind == 1 ? "has" : "have", waits->operation,
	    (long long)waits->number);
	add_waiting(&t, all, n, "in it");
	tell(&t, all, n, sentences);
	return true;
}

static void tell_culprit(struct seen *all, size_t n, const struct seen *waits,
			 json_t *sentences)
{
	const struct seen *culprit = find(all, n, waits->culprit);
	struct text t = {.n = 0};

	for (size_t i = 0; i < n; i++) {
		struct seen *s = &all[i];

		s->part = is_long(s) && !s->told &&
					  s->circle == waits->circle &&
					  (s->circle ||
					   s->culprit == waits->culprit)
				  ? WAITS
				  : NONE;
	}
	if (waits->circle) {
		add_waiting(&t, all, n, "for each other");
	} else if (waits->culprit < 0) {
		add_waiting(&t, all, n, "for no rank in particular");
	} else {
		add(&t, "rank %d (%s) %s; ", waits->culprit, waits->where,
		    !culprit        ? "has not answered"
		    : culprit->wait ? "waits for no rank in particular"
				    : "waits for no rank");
		add_waiting(&t, all, n, "for it");
		add(&t, " in %s number %lld", waits->operation,
		    (long long)waits->number);
	}
	tell(&t, all, n, sentences);
}

void hang_find(json_t *ranks, json_t *sentences)
{
	size_t n = json_array_size(ranks);
	struct seen *all = calloc(n + 1, sizeof(*all));

	for (size_t i = 0; all && i < n; i++)
		read_rank(json_array_get(ranks, i), &all[i]);
	for (size_t i = 0; all && i < n; i++)
		follow(all, n, &all[i]);
	for (size_t i = 0; all && i < n; i++)
		if (is_long(&all[i]) && !all[i].told &&
		    !tell_behind(all, n, &all[i], sentences))
			tell_culprit(all, n, &all[i], sentences);
	free(all);
}
