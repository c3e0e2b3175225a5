/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/prompt.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/job.h"
#include "tests/support/starved.h"

#define NOTES 16384 /* what comes later is checked, but not remembered */
/* From so many of a kind on, a tenth may be late, else half: those of one case
 * are late together. */
#define MANY 20

struct note {
	char kind[32];
	double late_s; /* after it was due */
	_Atomic bool whole;
};

/* What the processes of all cases see. */
struct notes {
	_Atomic int count;
	struct note note[NOTES];
};

static struct notes *notes;

void prompt_check(const char *kind, double took_s, double due_s)
{
	int i = atomic_fetch_add(&notes->count, 1);

	took_s -= starved_s();
	if (i < NOTES) {
		struct note *n = &notes->note[i];

		snprintf(n->kind, sizeof(n->kind), "%s", kind);
		n->late_s = took_s - due_s;
		atomic_store(&n->whole, true);
	}
	JOB_CHECK(took_s < due_s + PROMPT_S + PROMPT_SLACK_S,
		  "%s took %.1f s, and was due after %.1f s", kind, took_s,
		  due_s);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* They are taken out. */
static size_t take_kind(struct note *all, int count, const char *kind,
			double *times)
{
	size_t n = 0;

	for (int i = 0; i < count; i++) {
		if (!all[i].whole || strcmp(all[i].kind, kind) != 0)
			continue;
		times[n++] = all[i].late_s;
		all[i].whole = false;
	}
	qsort(times, n, sizeof(*times), by_value);
	return n;
}

static bool is_prompt(const char *kind, const double *times, size_t n)
{
	size_t late = 0;

	while (late < n && times[n - 1 - late] > PROMPT_S)
		late++;
	printf("%s: %zu, after %.0f ms (median), %.0f ms (p90), %.0f ms (most)"
	       "; %zu after more than a second\n",
	       kind, n, times[n / 2] * 1e3, times[n * 9 / 10] * 1e3,
	       times[n - 1] * 1e3, late);
	return late <= (n < MANY ? n / 2 : n / 10);
}

START_TEST(most_were_prompt)
{
	int count = atomic_load(&notes->count);
	double *times = calloc(NOTES, sizeof(*times));
	char bad[400] = "", kind[sizeof(notes->note->kind)];

	ck_assert_ptr_nonnull(times);
	if (count > NOTES)
		count = NOTES;
	for (int i = 0; i < count; i++) {
		size_t n, len = strlen(bad);

		if (!notes->note[i].whole)
			continue;
		memcpy(kind, notes->note[i].kind, sizeof(kind));
		n = take_kind(notes->note, count, kind, times);
		if (!is_prompt(kind, times, n))
			snprintf(bad + len, sizeof(bad) - len, "%s%s",
				 len ? ", " : "", kind);
	}
	fflush(stdout);
	free(times);
	ck_assert_msg(!*bad, "too often after more than a second: %s", bad);
}
END_TEST

void prompt_add(Suite *suite)
{
	TCase *tcase = tcase_create("prompt");

	notes = mmap(NULL, sizeof(*notes), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (notes == MAP_FAILED)
		abort();
	tcase_add_test(tcase, most_were_prompt);
	suite_add_tcase(suite, tcase);
}
