/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/prompt.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/job.h"
#include "tests/support/starved.h"

#define NOTES 16384 /* what comes later is checked, but not remembered */
/* From so many jobs on, a tenth may be late, else half. */
#define MANY 10

struct note {
	char kind[32];
	double late_s; /* after it was due */
	/* Of a job, whose ranks wait for each other, and so are late together:
	 * their parent, and the job's number there */
	pid_t parent;
	int job;
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
		n->parent = getppid();
		n->job = job_number();
		atomic_store(&n->whole, true);
	}
	JOB_CHECK(took_s < due_s + PROMPT_S + PROMPT_SLACK_S,
		  "%s took %.1f s, and was due after %.1f s", kind, took_s,
		  due_s);
}

static bool is_of_one_job(const struct note *x, const struct note *y)
{
	return x->parent == y->parent && x->job == y->job;
}

/* Of one job the latest comes first. */
static int by_job(const void *a, const void *b)
{
	const struct note *x = a, *y = b;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	if (x->job != y->job)
		return x->job < y->job ? -1 : 1;
	return (x->late_s < y->late_s) - (x->late_s > y->late_s);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* They are taken out. */
static size_t take_kind(struct note *all, int count, const char *kind,
			struct note *taken)
{
	size_t n = 0;

	for (int i = 0; i < count; i++) {
		if (!all[i].whole || strcmp(all[i].kind, kind) != 0)
			continue;
		taken[n++] = all[i];
		all[i].whole = false;
	}
	qsort(taken, n, sizeof(*taken), by_job);
	return n;
}

/* One job alone says nothing but that it was within the slack. */
static bool is_prompt(const char *kind, const struct note *taken, size_t n,
		      double *times)
{
	size_t jobs = 0, late = 0;

	for (size_t i = 0; i < n; i++)
		if (!i || !is_of_one_job(&taken[i], &taken[i - 1]))
			times[jobs++] = taken[i].late_s;
	qsort(times, jobs, sizeof(*times), by_value);
	while (late < jobs && times[jobs - 1 - late] > PROMPT_S)
		late++;
	printf("%s: %zu in %zu jobs; the latest of each after %.0f ms (median),"
	       " %.0f ms (p90), %.0f ms (most); %zu after more than a second\n",
	       kind, n, jobs, times[jobs / 2] * 1e3, times[jobs * 9 / 10] * 1e3,
	       times[jobs - 1] * 1e3, late);
	return jobs == 1 || late <= jobs / (jobs < MANY ? 2 : 10);
}

START_TEST(most_were_prompt)
{
	int count = atomic_load(&notes->count);
	struct note *taken = calloc(NOTES, sizeof(*taken));
	double *times = calloc(NOTES, sizeof(*times));
	char bad[400] = "", kind[sizeof(notes->note->kind)];

	ck_assert_ptr_nonnull(taken);
	ck_assert_ptr_nonnull(times);
	if (count > NOTES)
		count = NOTES;
	for (int i = 0; i < count; i++) {
		size_t n, len = strlen(bad);

		if (!notes->note[i].whole)
			continue;
		memcpy(kind, notes->note[i].kind, sizeof(kind));
		n = take_kind(notes->note, count, kind, taken);
		if (!is_prompt(kind, taken, n, times))
			snprintf(bad + len, sizeof(bad) - len, "%s%s",
				 len ? ", " : "", kind);
	}
	fflush(stdout);
	free(taken);
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
