// SPDX-License-Identifier: BSD-3-Clause
/*
 * Ranks on two machines, as many on each as a spread says: right results of all
 * that there is, communicators that span both, and deaths that are told on the
 * other one. Both machines of tests/vm/run -2 run this, each its own ranks;
 * those meet by an address, and share nothing but the cable.
 */
#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/trial.h"
#include "tests/support/vm.h"

#define FIRST_PORT 7500
/* From the last call that succeeded to the error of a death. */
#define BOUND_S 10.0

static int machine; /* that this is: 0, 1 */

struct spread {
	int ranks[2];
	bool only_verbs; /* within a machine, too */
};

static const struct spread spreads[] = {
	{{2, 1}, true},
	{{1, 2}, false},
	{{2, 2}, true},
	{{2, 2}, false},
};
#define SPREADS ((int)(sizeof(spreads) / sizeof(*spreads)))

/* What the ranks of this machine do; `me` is among all. */
struct plan {
	const struct spread *spread;
	void (*run)(struct job_rank *me);
	int port;   /* where they meet: no two jobs at the same */
	int victim; /* -1: nobody dies */
};

static int ranks_of(const struct spread *s)
{
	return s->ranks[0] + s->ranks[1];
}

static int first_here(const struct spread *s)
{
	return machine ? s->ranks[0] : 0;
}

static void run_rank(struct job_rank *local)
{
	const struct plan *plan = local->arg;
	struct job_rank me = {.rank = first_here(plan->spread) + local->rank,
			      .ranks = ranks_of(plan->spread),
			      .arg = plan};
	char text[40];

	snprintf(text, sizeof(text), "%d", me.rank);
	setenv("DICOMM_RANK", text, 1);
	snprintf(text, sizeof(text), "%d", me.ranks);
	setenv("DICOMM_SIZE", text, 1);
	snprintf(text, sizeof(text), "192.168.77.1:%d", plan->port);
	setenv("DICOMM_COMM_ID", text, 1);
	JOB_TRY(dicomm_comm_init_env(&me.comm));
	plan->run(&me);
	JOB_TRY(dicomm_comm_destroy(me.comm));
}

static void kill_victim(const void *arg)
{
	const struct plan *plan = arg;
	_Atomic bool *working = job_board();
	int pid = job_pid(plan->victim - first_here(plan->spread));
	double end = job_seconds() + 60;

	while (!atomic_load(working) && job_seconds() < end)
		job_sleep_ms(1);
	job_sleep_ms(300);
	kill(pid, SIGKILL);
}

static void run_plan(const struct plan *plan)
{
	const struct spread *s = plan->spread;
	int victim = plan->victim - first_here(s);
	struct job job = {
		.run = run_rank,
		.arg = plan,
		.ranks = s->ranks[machine],
		.bare = true,
		.env = {"DICOMM_COMM_KEY=of-nobody-else",
			s->only_verbs ? "DICOMM_TRANSPORTS=verbs" : NULL},
		.timeout_s = 60};

	if (plan->victim >= 0 && victim >= 0 && victim < job.ranks) {
		job.may_die = 1u << victim;
		job.disturb = kill_victim;
	}
	job_run(&job);
}

/* --- results ----------------------------------------------------------------
 */

static void placements(struct trial t, const struct job_rank *me)
{
	for (int p = 0; p < trial_placements(t.kind); p++) {
		t.seed++;
		trial_place(&t, me, (enum trial_placement)p);
		job_doing("%s, count %zu, seed %u", trial_name(t.kind), t.count,
			  t.seed);
		trial_run(t, me);
	}
}

static void operators(struct trial t, const struct job_rank *me)
{
	for (int o = 0; o < element_nops; o++) {
		t.op = element_ops[o];
		t.seed += 10;
		if (element_op_fits(t.op, t.type))
			placements(t, me);
	}
	t.op = ELEMENT_PREMULSUM;
	placements(t, me);
}

/* Of all types and operators, and with messages that the receiver fetches. */
static void collectives(struct job_rank *me)
{
	for (int k = 0; k < TRIAL_KINDS; k++) {
		struct trial t = {.kind = (enum trial_kind)k, .count = 17};

		for (int i = 0; i < element_ntypes; i++) {
			t.type = element_types[i];
			t.seed += 1000;
			if (trial_reduces(t.kind))
				operators(t, me);
			else
				placements(t, me);
		}
		t.type = DICOMM_INT32;
		t.op = DICOMM_SUM;
		t.count = 70001;
		placements(t, me);
	}
}

START_TEST(every_collective_gives_right_results)
{
	run_plan(
		&(struct plan){&spreads[_i], collectives, FIRST_PORT + _i, -1});
}
END_TEST

/* --- groups and communicators -----------------------------------------------
 */

/* All at a time: to each rank, from each, and a sum. */
static void exchange(const struct job_rank *me, int round)
{
	int n = me->ranks, one = 1, sum = 0;
	int *out = calloc((size_t)n, sizeof(*out));
	int *in = calloc((size_t)n, sizeof(*in));

	JOB_CHECK(out && in, "out of memory");
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_allreduce(&one, &sum, 1, DICOMM_INT32, DICOMM_SUM,
				 me->comm, NULL));
	for (int r = 0; r < n; r++) {
		out[r] = round * 10000 + me->rank * 100 + r;
		JOB_TRY(dicomm_recv(&in[r], 1, DICOMM_INT32, r, me->comm,
				    NULL));
		JOB_TRY(dicomm_send(&out[r], 1, DICOMM_INT32, r, me->comm,
				    NULL));
	}
	JOB_TRY(dicomm_group_end());
	JOB_CHECK(sum == n, "a sum of %d instead of %d", sum, n);
	for (int r = 0; r < n; r++)
		JOB_CHECK(in[r] == round * 10000 + r * 100 + me->rank,
			  "round %d: %d from rank %d", round, in[r], r);
	free(out);
	free(in);
}

static void part(const struct job_rank *me, int color, int key, unsigned seed)
{
	struct job_rank mine = {.arg = me->arg};

	JOB_TRY(dicomm_comm_split(me->comm, color, key, &mine.comm, NULL));
	JOB_TRY(dicomm_comm_user_rank(mine.comm, &mine.rank));
	JOB_TRY(dicomm_comm_count(mine.comm, &mine.ranks));
	trial_run_some(&mine, seed);
	exchange(&mine, (int)seed);
	JOB_TRY(dicomm_comm_destroy(mine.comm));
}

static void groups_and_parts(struct job_rank *me)
{
	for (int round = 0; round < 50; round++)
		exchange(me, round);
	/* Some on each machine; backwards; each machine by itself. */
	part(me, me->rank % 2, 0, 1);
	part(me, 0, -me->rank, 2);
	part(me, machine, 0, 3);
	/* The old one is as it was. */
	exchange(me, 50);
}

START_TEST(groups_and_communicators_span_machines)
{
	run_plan(&(struct plan){&spreads[_i], groups_and_parts,
				FIRST_PORT + 100 + _i, -1});
}
END_TEST

/* --- deaths -----------------------------------------------------------------
 */

static void work_until_a_death(struct job_rank *me)
{
	const struct plan *plan = me->arg;
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_INT32,
			  .op = DICOMM_SUM,
			  .count = 200000};
	double end = job_seconds() + 50, last = 0;
	dicomm_result_t status;
	char name[16];

	trial_fill(&t, me);
	do {
		JOB_CHECK(job_seconds() < end, "nobody has died");
		last = job_seconds();
		t.seed++;
		trial_refill(&t, t.seed);
		status = trial_call(&t, NULL);
		if (status == DICOMM_SUCCESS)
			trial_check(&t);
		*(_Atomic bool *)job_board() = true;
	} while (status == DICOMM_SUCCESS);
	last = job_seconds() - last;
	snprintf(name, sizeof(name), "rank %d", plan->victim);
	JOB_CHECK(status == DICOMM_ERR_REMOTE &&
			  strstr(dicomm_get_last_error(me->comm), name),
		  "status %d, \"%s\" on the death of %s", (int)status,
		  dicomm_get_last_error(me->comm), name);
	JOB_CHECK(last < BOUND_S, "%s was missed after %.1f s", name, last);
	JOB_REFUSED(dicomm_barrier(me->comm, NULL), DICOMM_ERR_REMOTE, name);
	trial_free(&t);
}

/* The first rank, which the others met at, and the last, by turns. */
START_TEST(a_death_is_named_on_both_machines)
{
	const struct spread *s = &spreads[_i];

	run_plan(&(struct plan){s, work_until_a_death, FIRST_PORT + 200 + _i,
				_i % 2 ? 0 : ranks_of(s) - 1});
}
END_TEST

/* ----------------------------------------------------------------------------
 */

int main(void)
{
	const char *machines = getenv("DICOMM_TEST_VMS");
	const char *number = getenv("DICOMM_TEST_VM");
	TCase *test_case = tcase_create("hosts");
	Suite *suite = suite_create("hosts");
	struct vm vm;

	if (!vm_find(&vm))
		return 77;
	if (!machines || strcmp(machines, "2") || !number) {
		printf("skipped: this is not one of two virtual machines\n");
		return 77;
	}
	machine = atoi(number);
	tcase_set_timeout(test_case, 70);
	tcase_add_loop_test(test_case, every_collective_gives_right_results, 0,
			    SPREADS);
	tcase_add_loop_test(test_case, groups_and_communicators_span_machines,
			    0, SPREADS);
	tcase_add_loop_test(test_case, a_death_is_named_on_both_machines, 0,
			    SPREADS);
	suite_add_tcase(suite, test_case);
	return runner_main(suite);
}
