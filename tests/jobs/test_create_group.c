/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm_comm_create_group(): members make a communicator by themselves, while
 * the others go on; who does not come, dies or cannot is named. */
#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/job.h"
#include "tests/support/prompt.h"
#include "tests/support/runner.h"

#define PATIENCE_S 20.0
#define COME_MS 1500

/* The transports of the cases */
static const char *const routes[] = {"DICOMM_TRANSPORTS=shm",
				     "DICOMM_TRANSPORTS=tcp"};

#define ROUTES 2

static int place_of(const int *ranks, int n, int rank)
{
	for (int i = 0; i < n; i++)
		if (ranks[i] == rank)
			return i;
	return -1;
}

static void make(const struct job_rank *me, const int *ranks, int n, int tag)
{
	dicomm_comm_t comm = NULL;

	job_doing("create group %d", tag);
	JOB_TRY(dicomm_comm_create_group(me->comm, ranks, n, tag, &comm, NULL));
	job_check_sums(comm, n, place_of(ranks, n, me->rank));
	JOB_TRY(dicomm_comm_destroy(comm));
}

/* ---- the others go on ---- */

/* Ranks 0 and 2 exchange messages on the parent, of which the last ones come
 * only when the members have theirs. */
static void go_on_beside(struct job_rank *me)
{
	_Atomic int *ready = job_board();
	static const int members[] = {3, 1};
	double end = job_seconds() + PATIENCE_S;
	int peer = 2 - me->rank, value, rounds = 0;

	if (me->rank % 2) {
		make(me, members, 2, 7);
		atomic_fetch_add(ready, 1);
		return;
	}
	do {
		int mine = rounds * 10 + me->rank;

		dicomm_group_start();
		JOB_TRY(dicomm_send(&mine, 1, DICOMM_INT32, peer, me->comm,
				    NULL));
		JOB_TRY(dicomm_recv(&value, 1, DICOMM_INT32, peer, me->comm,
				    NULL));
		JOB_TRY(dicomm_group_end());
		JOB_CHECK(value == rounds * 10 + peer, "got %d", value);
		rounds++;
		/* Both stop in the same round: rank 0 says so. */
		value = me->rank == 0 && atomic_load(ready) == 2;
		if (me->rank == 0)
			JOB_TRY(dicomm_send(&value, 1, DICOMM_INT32, 2,
					    me->comm, NULL));
		else
			JOB_TRY(dicomm_recv(&value, 1, DICOMM_INT32, 0,
					    me->comm, NULL));
		JOB_CHECK(job_seconds() < end, "the members never came");
	} while (!value);
}

START_TEST(others_go_on_meanwhile)
{
	job_run(&(struct job){.run = go_on_beside,
			      .ranks = 4,
			      .threads = _i / ROUTES,
			      .env = {routes[_i % ROUTES]}});
}
END_TEST

/* ---- many, at the same time ---- */

/* All groups of two and more, in random orders of their members, without a
 * barrier: ranks are in different ones at the same time. Groups come up in one
 * order on all ranks, so that no two wait for each other. */
static void make_all_groups(struct job_rank *me)
{
	unsigned seed = 5;

	for (int round = 0; round < (job_is_sanitized() ? 2 : 5); round++) {
		for (unsigned set = 1; set < 1u << me->ranks; set++) {
			int members[8], n = 0;

			for (int r = 0; r < me->ranks; r++) {
				int at;

				if (!(set >> r & 1))
					continue;
				seed = seed * 1103515245 + 12345;
				at = (int)(seed >> 16) % (n + 1);
				members[n++] = members[at];
				members[at] = r;
			}
			if (set >> me->rank & 1)
				make(me, members, n, (int)set % 3);
		}
	}
}

START_TEST(groups_do_not_mix_up)
{
	job_run(&(struct job){.run = make_all_groups,
			      .ranks = 4,
			      .threads = _i / ROUTES,
			      .timeout_s = 60,
			      .env = {routes[_i % ROUTES]}});
}
END_TEST

/* Rank 1 makes another group of the same two ranks first, for which it waits in
 * vain. */
static void cross_tags(struct job_rank *me)
{
	static const int both[] = {0, 1};
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t comm = NULL;

	config.bootstrap_timeout_ms = COME_MS;
	JOB_REFUSED(dicomm_comm_create_group(me->comm, both, 2, me->rank, &comm,
					     &config),
		    DICOMM_ERR_TIMEOUT, me->rank ? "with tag 1" : "with tag 0");
	JOB_CHECK(!comm, "there is a handle");
	job_barrier();
	make(me, both, 2, 0);
	make(me, both, 2, 1);
}

START_TEST(another_tag_is_another_group)
{
	job_run(&(struct job){
		.run = cross_tags, .ranks = 2, .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- who does not come ---- */

/* Then all come, and it works. The late one is rank 3, 1 or 0: the first of the
 * members, one between, and rank 0, which is where all letters pass. */
static void miss_one(struct job_rank *me)
{
	int missing = *(const int *)me->arg;
	static const int members[] = {3, 1, 0};
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t comm = NULL;
	double begin;
	char name[24];

	config.bootstrap_timeout_ms = COME_MS;
	snprintf(name, sizeof(name), "rank %d (", missing);
	job_barrier();
	begin = job_seconds();
	if (me->rank != missing && me->rank != 2) {
		JOB_REFUSED(dicomm_comm_create_group(me->comm, members, 3, 4,
						     &comm, &config),
			    DICOMM_ERR_TIMEOUT, name);
		JOB_CHECK(!comm, "there is a handle");
		prompt_check("a member is missing", job_seconds() - begin,
			     COME_MS / 1000.0);
	}
	job_barrier();
	if (me->rank != 2)
		make(me, members, 3, 4);
	JOB_TRY(dicomm_barrier(me->comm, NULL));
}

START_TEST(who_does_not_come_is_named)
{
	static const int missing[] = {3, 1, 0};

	job_run(&(struct job){.run = miss_one,
			      .arg = &missing[_i],
			      .ranks = 4,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- who cannot ---- */

static void hinder_one(struct job_rank *me)
{
	static const int members[] = {2, 0, 1};
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t comm = NULL;
	char name[24];

	for (int victim = 0; victim < 3; victim++) {
		double begin;

		config.device = me->rank == victim ? "nowhere:0" : NULL;
		snprintf(name, sizeof(name),
			 me->rank == victim && victim != 2 ? "nowhere"
							   : "rank %d (",
			 victim);
		job_barrier();
		begin = job_seconds();
		if (me->rank < 3)
			JOB_REFUSED(dicomm_comm_create_group(me->comm, members,
							     3, 0, &comm,
							     &config),
				    DICOMM_ERR_INVALID_ARGUMENT, name);
		JOB_CHECK(!comm, "there is a handle");
		prompt_check("a member cannot come", job_seconds() - begin, 0);
	}
	JOB_TRY(dicomm_barrier(me->comm, NULL));
	if (me->rank < 3)
		make(me, members, 3, 0);
}

START_TEST(who_cannot_come_is_named)
{
	job_run(&(struct job){.run = hinder_one,
			      .ranks = 4,
			      .threads = _i,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- deaths ---- */

/* It dies when the other member waits for it. */
static void lose_one(struct job_rank *me)
{
	int victim = *(const int *)me->arg;
	static const int members[] = {2, 1};
	_Atomic int *done = job_board();
	dicomm_comm_t comm = NULL;
	dicomm_result_t status;
	char name[24];
	double begin;

	if (me->rank == victim) {
		job_barrier();
		job_sleep_ms(300);
		raise(SIGKILL);
	}
	job_barrier();
	begin = job_seconds();
	if (me->rank == 0) {
		while (!atomic_load(done))
			job_sleep_ms(1);
		return;
	}
	snprintf(name, sizeof(name), "rank %d (", victim);
	status = dicomm_comm_create_group(me->comm, members, 2, 0, &comm, NULL);
	JOB_CHECK(status == DICOMM_ERR_REMOTE &&
			  strstr(dicomm_get_last_error(NULL), name),
		  "%d, \"%s\"", (int)status, dicomm_get_last_error(NULL));
	JOB_CHECK(!comm, "there is a handle");
	prompt_check("a rank dies", job_seconds() - begin, 0.3);
	atomic_store(done, 1);
}

START_TEST(who_dies_is_named)
{
	static const int victims[] = {1, 2};

	job_run(&(struct job){.run = lose_one,
			      .arg = &victims[_i],
			      .ranks = 3,
			      .may_die = 1u << victims[_i],
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- who has left ---- */

/* Rank 3 leaves the parent: that concerns only groups that it is in. */
static void leave_one(struct job_rank *me)
{
	static const int rest[] = {1, 0}, with[] = {1, 3};
	_Atomic int *left = job_board();
	dicomm_comm_t comm = NULL;

	if (me->rank == 3) {
		JOB_TRY(dicomm_comm_destroy(me->comm));
		me->comm = NULL;
		atomic_store(left, 1);
	}
	while (!atomic_load(left))
		job_sleep_ms(1);
	job_sleep_ms(50);
	if (me->rank < 2)
		make(me, rest, 2, 0);
	if (me->rank == 1)
		JOB_REFUSED(dicomm_comm_create_group(me->comm, with, 2, 0,
						     &comm, NULL),
			    DICOMM_ERR_REMOTE, "rank 3 (");
	job_barrier();
}

START_TEST(a_stranger_may_leave)
{
	job_run(&(struct job){
		.run = leave_one, .ranks = 4, .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- options and refusals ---- */

static void in_background(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	static const int members[] = {2, 0};
	dicomm_comm_t comm = NULL;
	dicomm_result_t status;

	config.blocking = 0;
	if (me->rank == 1)
		return;
	status = dicomm_comm_create_group(me->comm, members, 2, 1, &comm,
					  &config);
	JOB_CHECK(status == DICOMM_IN_PROGRESS, "%d", (int)status);
	status = job_settled(status, comm, PATIENCE_S);
	JOB_CHECK(status == DICOMM_SUCCESS, "%d, \"%s\"", (int)status,
		  dicomm_get_last_error(comm));
	job_check_sums(comm, 2, me->rank == 0);
	JOB_TRY(dicomm_comm_destroy(comm));
}

START_TEST(it_may_run_in_the_background)
{
	job_run(&(struct job){.run = in_background, .ranks = 3});
}
END_TEST

static void ask_wrongly(struct job_rank *me)
{
	const int twice[] = {0, 1, 0}, beyond[] = {0, 2}, below[] = {-1, 0};
	const int other[] = {1 - me->rank}, both[] = {0, 1};
	dicomm_comm_t c = NULL;

#define WRONG(words, ...)                                  \
	JOB_REFUSED(dicomm_comm_create_group(__VA_ARGS__), \
		    DICOMM_ERR_INVALID_ARGUMENT, words)
	WRONG("comm", NULL, both, 2, 0, &c, NULL);
	WRONG("newcomm", me->comm, both, 2, 0, NULL, NULL);
	WRONG("nranks 2", me->comm, NULL, 2, 0, &c, NULL);
	WRONG("nranks 0", me->comm, both, 0, 0, &c, NULL);
	WRONG("nranks 3", me->comm, twice, 3, 0, &c, NULL);
	WRONG("ranks[1] is 2", me->comm, beyond, 2, 0, &c, NULL);
	WRONG("ranks[0] is -1", me->comm, below, 2, 0, &c, NULL);
	WRONG("not one of the 1 ranks", me->comm, other, 1, 0, &c, NULL);
#undef WRONG
	JOB_CHECK(!c, "there is a handle");
	make(me, &me->rank, 1, 0);
	make(me, both, 2, -5);
}

static void ask_wrongly_of_three(struct job_rank *me)
{
	const int twice[] = {0, 1, 0};
	dicomm_comm_t c = NULL;

	JOB_REFUSED(dicomm_comm_create_group(me->comm, twice, 3, 0, &c, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT,
		    "ranks[2] is 0, for the second time");
	JOB_TRY(dicomm_barrier(me->comm, NULL));
}

START_TEST(wrong_arguments_are_named)
{
	job_run(&(struct job){.run = _i ? ask_wrongly_of_three : ask_wrongly,
			      .ranks = 2 + _i,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

int main(void)
{
	Suite *s = suite_create("create_group");
	TCase *t = tcase_create("create_group");

	tcase_set_timeout(t, 90);
	tcase_add_loop_test(t, others_go_on_meanwhile, 0, 2 * ROUTES);
	tcase_add_loop_test(t, groups_do_not_mix_up, 0, 2 * ROUTES);
	tcase_add_test(t, another_tag_is_another_group);
	tcase_add_loop_test(t, who_does_not_come_is_named, 0, 3);
	tcase_add_loop_test(t, who_cannot_come_is_named, 0, 2);
	tcase_add_loop_test(t, who_dies_is_named, 0, 2);
	tcase_add_test(t, a_stranger_may_leave);
	tcase_add_test(t, it_may_run_in_the_background);
	tcase_add_loop_test(t, wrong_arguments_are_named, 0, 2);
	suite_add_tcase(s, t);
	prompt_add(s);
	return runner_main(s);
}
