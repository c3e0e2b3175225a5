/* SPDX-License-Identifier: BSD-3-Clause */
/* Every algorithm, when it is asked for, gives the right result between real
 * ranks, or is refused for a reason that it has. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "collectives/plan/algorithm.h"
#include "tests/support/runner.h"
#include "tests/support/trial.h"

static const struct {
	dicomm_datatype_t type;
	dicomm_redop_t op;
	size_t count;
} calls[] = {
	{DICOMM_INT32, DICOMM_SUM, 0},
	{DICOMM_INT32, DICOMM_BXOR, 1},
	{DICOMM_INT16, DICOMM_AVG, 17},      /* divides the result */
	{DICOMM_BFLOAT16, DICOMM_SUM, 1000}, /* narrow */
	{DICOMM_FLOAT32, DICOMM_AVG, 3333},  /* scales the inputs */
	{DICOMM_UINT8, DICOMM_MAX, 5},       /* the same plans again */
	{DICOMM_FLOAT64, ELEMENT_PREMULSUM, 4097},
	{DICOMM_FLOAT32, DICOMM_MIN, 70001}, /* many slices */
};

static enum trial_kind kind_of(const struct algorithm *a)
{
	for (int k = 0; k < TRIAL_KINDS; k++)
		if (!strcmp(trial_name((enum trial_kind)k), coll_name(a->coll)))
			return (enum trial_kind)k;
	ck_abort_msg("no trial for %s", coll_name(a->coll));
}

/* Is it what the communicator says it will take? */
static bool will_serve(const struct trial *t, const struct job_rank *me,
		       const struct algorithm *a)
{
	char text[2000], chosen[80];

	JOB_TRY(dicomm_comm_explain(me->comm, trial_name(t->kind), t->count,
				    t->type, text, sizeof(text)));
	snprintf(chosen, sizeof(chosen), "\n* %s ", a->name);
	if (strstr(text, chosen))
		return true;
	JOB_CHECK(strstr(text, "none of them can serve it") &&
			  (strstr(text, "does not fit a slot") ||
			   strstr(text, "not for")),
		  "%s:%s is neither chosen nor refused: %s",
		  trial_name(t->kind), a->name, text);
	return false;
}

static void one_call(struct trial t, const struct job_rank *me,
		     const struct algorithm *a)
{
	if (will_serve(&t, me, a)) {
		trial_run(t, me);
		return;
	}
	trial_fill(&t, me);
	JOB_REFUSED(trial_call(&t, NULL), DICOMM_ERR_INVALID_USAGE,
		    "DICOMM_ALGO");
	trial_free(&t);
}

static void run(struct job_rank *me)
{
	const struct algorithm *a = me->arg;
	struct trial t = {.kind = kind_of(a)};
	unsigned seed = 0;

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		for (int p = 0; p < 3; p++) {
			if (job_is_short() && p != (int)i % 3)
				continue;
			t.type = calls[i].type;
			t.op = calls[i].op;
			t.count = calls[i].count;
			t.in_place = p == 1 || (p == 2 && me->rank % 2);
			t.shared = p == 2 && me->rank < 2;
			t.seed = ++seed;
			for (t.root = 0; t.root < me->ranks; t.root++) {
				one_call(t, me, a);
				if (!trial_rooted(t.kind))
					break;
			}
		}
}

START_TEST(an_algorithm_gives_the_right_result)
{
	const struct algorithm *a = algorithms[_i];
	char algo[80];

	snprintf(algo, sizeof(algo), "DICOMM_ALGO=%s:%s", coll_name(a->coll),
		 a->name);
	for (int n = 2; n <= 5; n++) {
		if (job_is_short() && n != 2 + _i % 3)
			continue;
		job_run(&(struct job){
			.run = run, .arg = a, .ranks = n, .env = {algo}});
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("algorithms");
	TCase *tcase = tcase_create("algorithms");
	int n = 0;

	while (algorithms[n])
		n++;
	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, an_algorithm_gives_the_right_result, 0, n);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
