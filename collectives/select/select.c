/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses an algorithm, reads DICOMM_ALGO, and explains the choice. */
#include "collectives/select/select.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/log.h"

/* Text that put() appends to. `at` is its end, `room` what is left in bytes. */
struct text {
	char *at;
	size_t room;
};

static void put(struct text *t, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(t->at, t->room, format, ap);
	va_end(ap);
	if (n < 0)
		return;
	if ((size_t)n >= t->room)
		n = t->room > 0 ? (int)t->room - 1 : 0;
	t->at += n;
	t->room -= (size_t)n;
}

static bool allowed(const struct select_table *t, int i)
{
	return (t->allowed[i / 64] >> i % 64 & 1) != 0;
}

static void put_names(struct text *t, enum coll coll)
{
	const char *comma = "";

	for (int i = 0; algorithms[i]; i++) {
		if (algorithms[i]->coll != coll)
			continue;
		put(t, "%s%s", comma, algorithms[i]->name);
		comma = ", ";
	}
}

static dicomm_result_t no_collective(const char *name)
{
	char names[256] = "";
	struct text t = {names, sizeof(names)};

	for (int c = 0; c < COLL_KINDS; c++)
		put(&t, "%s%s", c > 0 ? ", " : "", coll_name((enum coll)c));
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "DICOMM_ALGO: %s is no collective; there are %s", name,
		    names);
}

static dicomm_result_t no_algorithm(enum coll coll, const char *name)
{
	char names[256] = "";
	struct text t = {names, sizeof(names)};

	put_names(&t, coll);
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "DICOMM_ALGO: %s has no algorithm %s; there are %s",
		    coll_name(coll), name, names);
}

static char *trimmed(char *s)
{
	char *end;

	s += strspn(s, " \t");
	end = s + strlen(s);
	while (end > s && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	return s;
}

static dicomm_result_t mark(enum coll coll, const char *name, uint64_t bits[2])
{
	for (int i = 0; algorithms[i]; i++) {
		if (algorithms[i]->coll == coll &&
		    strcmp(algorithms[i]->name, name) == 0) {
			bits[i / 64] |= UINT64_C(1) << i % 64;
			return DICOMM_SUCCESS;
		}
	}
	return no_algorithm(coll, name);
}

/* Reads one collective of DICOMM_ALGO: "allreduce:ring,tree" or
 * "allreduce:^ring". */
static dicomm_result_t override_one(struct select_table *t, char *clause)
{
	char *list = strchr(clause, ':'), *save = NULL, *name;
	uint64_t bits[2] = {0, 0};
	bool but = false;
	enum coll coll;

	if (!list)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "DICOMM_ALGO: %s: not of the form "
			    "collective:algorithm",
			    clause);
	*list++ = '\0';
	coll = coll_from_name(trimmed(clause));
	if (coll >= COLL_KINDS)
		return no_collective(trimmed(clause));
	list = trimmed(list);
	if (*list == '^') {
		but = true;
		list++;
	}
	name = strtok_r(list, ",", &save);
	if (!name)
		return no_algorithm(coll, "''");
	for (; name; name = strtok_r(NULL, ",", &save))
		TRY(mark(coll, trimmed(name), bits));

	t->overridden |= 1u << coll;
	for (int i = 0; algorithms[i]; i++) {
		uint64_t bit = UINT64_C(1) << i % 64;

		if (algorithms[i]->coll != coll)
			continue;
		t->allowed[i / 64] &= ~bit;
		if (((bits[i / 64] & bit) != 0) != but)
			t->allowed[i / 64] |= bit;
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t select_override(struct select_table *t, const char *text)
{
	struct select_table changed = *t;
	char copy[1024], *save = NULL;

	if (strlen(text) >= sizeof(copy))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "DICOMM_ALGO: longer than %zu characters",
			    sizeof(copy) - 1);
	strcpy(copy, text);
	for (char *c = strtok_r(copy, ";", &save); c;
	     c = strtok_r(NULL, ";", &save)) {
		c = trimmed(c);
		if (*c)
			TRY(override_one(&changed, c));
	}
	*t = changed;
	return DICOMM_SUCCESS;
}

/* Some algorithms need a power of two of ranks, some need nodes of several
 * ranks, and so on. */
static const char *not_for(const struct shape *s, char *room, size_t len)
{
	uint32_t nodes = s->links ? s->links->nodes : 1;

	snprintf(room, len, "not for %d ranks on %" PRIu32 " node%s", s->ranks,
		 nodes, nodes > 1 ? "s" : "");
	return room;
}

/* Returns NULL if algorithms[i] may serve the call, otherwise the reason.
 * `room` may hold the text of the reason. */
static const char *obstacle(const struct select_table *t, const struct shape *s,
			    uint64_t bytes, int i, char *room, size_t len)
{
	const struct algorithm *a = algorithms[i];
	uint64_t message;

	if ((t->overridden >> s->coll & 1) && !allowed(t, i))
		return "ruled out by DICOMM_ALGO";
	/* With one rank, all algorithms do the same. */
	if (s->ranks == 1)
		return NULL;
	if (!a->serves(s))
		return not_for(s, room, len);
	if (t->deterministic && coll_reduces(s->coll) && !a->deterministic)
		return "not deterministic";
	message = estimate_message_bytes(a, s, bytes);
	if (a->whole && message > t->params.slot_bytes) {
		snprintf(room, len,
			 "a message of %" PRIu64 " bytes does not fit a slot "
			 "of %" PRIu32,
			 message, t->params.slot_bytes);
		return room;
	}
	return NULL;
}

static bool may_serve(const struct select_table *t, const struct shape *s,
		      uint64_t bytes, int i)
{
	char room[96];

	return algorithms[i]->coll == s->coll &&
	       !obstacle(t, s, bytes, i, room, sizeof(room));
}

/* Returns the index of the fastest algorithm; -1 if none may serve the call; -2
 * if there is no memory to predict times. */
static int fastest(const struct select_table *t, const struct shape *s,
		   uint64_t bytes)
{
	uint64_t best_ps = 0, ps;
	int best = -1;

	for (int i = 0; algorithms[i]; i++) {
		if (!may_serve(t, s, bytes, i))
			continue;
		ps = estimate_ps(&t->params, algorithms[i], s, bytes);
		if (ps == ESTIMATE_FAILED)
			return -2;
		if (best < 0 || ps < best_ps) {
			best = i;
			best_ps = ps;
		}
	}
	return best;
}

static dicomm_result_t no_memory(enum coll coll)
{
	return FAIL(DICOMM_ERR_NO_MEMORY,
		    "%s: no memory to choose an algorithm", coll_name(coll));
}

dicomm_result_t select_algorithm(const struct select_table *t,
				 const struct shape *s, uint64_t bytes,
				 const struct algorithm **out)
{
	int best = fastest(t, s, bytes);
	char reasons[512] = "", room[96];
	struct text text = {reasons, sizeof(reasons)};

	if (best >= 0) {
		*out = algorithms[best];
		return DICOMM_SUCCESS;
	}
	/* Do not fall back to another algorithm: other ranks would not choose
	 * the same one. */
	if (best == -2)
		return no_memory(s->coll);
	for (int i = 0; algorithms[i]; i++) {
		if (algorithms[i]->coll == s->coll &&
		    (!(t->overridden >> s->coll & 1) || allowed(t, i)))
			put(&text, "; %s: %s", algorithms[i]->name,
			    obstacle(t, s, bytes, i, room, sizeof(room)));
	}
	return FAIL(DICOMM_ERR_INVALID_USAGE,
		    "%s of %" PRIu64 " bytes on %d ranks: no algorithm that "
		    "DICOMM_ALGO and the mode allow can serve it%s",
		    coll_name(s->coll), bytes, s->ranks, reasons);
}

dicomm_result_t select_predict(const struct select_table *t,
			       const struct shape *s, uint64_t bytes,
			       const struct algorithm *a, uint64_t *ps)
{
	char room[96];
	int i = 0;

	while (algorithms[i] != a)
		i++;
	*ps = SELECT_NEVER;
	if (obstacle(t, s, bytes, i, room, sizeof(room)))
		return DICOMM_SUCCESS;
	*ps = estimate_ps(&t->params, a, s, bytes);
	return *ps == ESTIMATE_FAILED ? no_memory(s->coll) : DICOMM_SUCCESS;
}

dicomm_result_t select_explain(const struct select_table *t,
			       const struct shape *s, uint64_t bytes,
			       char *text, size_t len)
{
	int best = fastest(t, s, bytes);
	struct text out = {text, len};
	char room[96];

	if (best == -2)
		return no_memory(s->coll);
	put(&out, "%s of %" PRIu64 " bytes on %d ranks%s\n", coll_name(s->coll),
	    bytes, s->ranks, t->deterministic ? ", deterministic" : "");
	put(&out, "  %-20s %12s\n", "algorithm", "predicted us");
	for (int i = 0; algorithms[i]; i++) {
		const struct algorithm *a = algorithms[i];
		const char *why;
		uint64_t ps, ns10; /* to the nearest 10 ns */

		if (a->coll != s->coll)
			continue;
		why = obstacle(t, s, bytes, i, room, sizeof(room));
		if (why) {
			put(&out, "  %-20s %12s  %s\n", a->name, "-", why);
			continue;
		}
		ps = estimate_ps(&t->params, a, s, bytes);
		ns10 = ps / 10000 + (ps % 10000 >= 5000);
		put(&out, "%c %-20s %9" PRIu64 ".%02" PRIu64 "%s\n",
		    i == best ? '*' : ' ', a->name, ns10 / 100, ns10 % 100,
		    i == best ? "  chosen" : "");
	}
	if (best < 0)
		put(&out, "none of them can serve it\n");
	return DICOMM_SUCCESS;
}
