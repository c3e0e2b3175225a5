/* SPDX-License-Identifier: BSD-3-Clause */
/* Every collective gives what its definition says, whatever the number of
 * ranks, type, operator, count, root and placement. */
#include <check.h>

#include "tests/support/runner.h"
#include "tests/support/trial.h"

#define MOST_RANKS 5

static const size_t small_counts[] = {0, 1, 3, 17, 500};

/* One call for each placement that there is. */
static void placements(struct trial t, const struct job_rank *me)
{
	for (int p = 0; p < trial_placements(t.kind); p++) {
		t.seed++;
		trial_place(&t, me, (enum trial_placement)p);
		trial_run(t, me);
	}
}

static void operators(struct trial t, const struct job_rank *me)
{
	/* Where there is little to do, one that scales tells enough. */
	if (t.count < 10) {
		t.op = DICOMM_AVG;
		placements(t, me);
		return;
	}
	for (int o = 0; o < element_nops; o++) {
		t.op = element_ops[o];
		t.seed += 10;
		if (element_op_fits(t.op, t.type))
			placements(t, me);
	}
	t.op = ELEMENT_PREMULSUM;
	placements(t, me);
}

/* All types, all operators. */
static void small(struct job_rank *me)
{
	struct trial t = {.kind = *(const enum trial_kind *)me->arg};
	size_t c_step = job_is_short() ? 3 : 1;
	int i_step = job_is_short() ? 6 : 1;

	for (size_t c = 0; c < sizeof(small_counts) / sizeof(size_t);
	     c += c_step)
		for (int i = (int)t.kind % i_step; i < element_ntypes;
		     i += i_step) {
			t.type = element_types[i];
			t.count = small_counts[c];
			t.seed += 1000;
			if (trial_reduces(t.kind))
				operators(t, me);
			else
				placements(t, me);
		}
}

/* More than fits a slot, and more than a ring. */
static void large(struct job_rank *me)
{
	static const struct {
		dicomm_datatype_t type;
		dicomm_redop_t op;
		size_t count;
	} calls[] = {{DICOMM_FLOAT32, DICOMM_AVG, 70001},
		     {DICOMM_FLOAT8E5M2, DICOMM_SUM, 70001},
		     {DICOMM_INT32, DICOMM_MAX, 300007}};
	struct trial t = {.kind = *(const enum trial_kind *)me->arg};

	for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); c++) {
		if (job_is_short() && c != (size_t)t.kind / 3 % 3)
			continue;
		t.type = calls[c].type;
		t.op = calls[c].op;
		t.count = calls[c].count;
		t.seed += 1000;
		placements(t, me);
	}
}

static void run_kind(void (*run)(struct job_rank *), enum trial_kind kind)
{
	int first = job_is_short() ? 2 + (int)kind % 3 : 1;
	int last = job_is_short() ? first : MOST_RANKS;

	for (int n = first; n <= last; n++)
		job_run(&(struct job){.run = run, .arg = &kind, .ranks = n});
}

START_TEST(small_messages_of_all_types_and_operators)
{
	run_kind(small, (enum trial_kind)_i);
}
END_TEST

START_TEST(large_messages)
{
	run_kind(large, (enum trial_kind)_i);
}
END_TEST

/* ---- what a barrier and a root are for ---- */

/* Nobody is out before everybody is in. */
static void barriers(struct job_rank *me)
{
	_Atomic int *in = job_board();
	int times = job_is_short() ? 30 : 200;

	for (int i = 1; i <= times; i++) {
		if (i % me->ranks == me->rank && i < 10)
			job_sleep_ms(2);
		in[me->rank] = i;
		JOB_TRY(dicomm_barrier(me->comm, NULL));
		for (int r = 0; r < me->ranks; r++)
			JOB_CHECK(in[r] >= i,
				  "barrier %d is over, but rank %d is at %d", i,
				  r, in[r]);
	}
}

START_TEST(a_barrier_waits_for_every_rank)
{
	job_run(&(struct job){.run = barriers, .ranks = _i});
}
END_TEST

/* The repeated call finds its plan; another one in between must not hurt. */
static void repeated(struct job_rank *me)
{
	struct trial a = {
		.kind = TRIAL_ALLREDUCE, .type = DICOMM_INT32, .count = 100};
	struct trial b = {
		.kind = TRIAL_ALLTOALL, .type = DICOMM_UINT8, .count = 3000};
	struct trial c = {
		.kind = TRIAL_BROADCAST, .type = DICOMM_INT64, .count = 50000};

	trial_fill(&a, me);
	trial_fill(&b, me);
	trial_fill(&c, me);
	for (unsigned i = 0; i < (job_is_short() ? 40 : 300); i++) {
		trial_refill(&a, i);
		JOB_TRY(trial_call(&a, NULL));
		trial_check(&a);
		if (i % 3 == 0) {
			trial_refill(&b, i);
			JOB_TRY(trial_call(&b, NULL));
			trial_check(&b);
		}
		if (i % 30 == 0) {
			trial_refill(&c, i);
			JOB_TRY(trial_call(&c, NULL));
			trial_check(&c);
		}
	}
	trial_free(&a);
	trial_free(&b);
	trial_free(&c);
}

START_TEST(calls_repeat)
{
	job_run(&(struct job){.run = repeated, .ranks = _i});
}
END_TEST

/* More unlike calls than any cache of plans holds. */
static void unlike(struct job_rank *me)
{
	for (unsigned i = 0; i < (job_is_short() ? 40 : 400); i++)
		trial_run((struct trial){.kind = TRIAL_ALLREDUCE,
					 .type = DICOMM_INT16,
					 .count = 1 + i * 7 % 331,
					 .seed = i},
			  me);
}

START_TEST(calls_differ)
{
	job_run(&(struct job){.run = unlike, .ranks = 3});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("collectives");
	TCase *tcase = tcase_create("collectives");
	int least = job_is_short() ? 2 : 1, most = job_is_short() ? 4 : 5;

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, small_messages_of_all_types_and_operators, 0,
			    TRIAL_KINDS);
	tcase_add_loop_test(tcase, large_messages, 0, TRIAL_KINDS);
	tcase_add_loop_test(tcase, a_barrier_waits_for_every_rank, least,
			    most + 1);
	tcase_add_loop_test(tcase, calls_repeat, 2, most + 1);
	tcase_add_test(tcase, calls_differ);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
