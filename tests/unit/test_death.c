/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that are killed, at any time: all others know who, at once. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/boot/control/control.h"
#include "tests/support/meet.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

#define RANKS 6
/* From the moment of a death: what a process may lack its core, too. Who was
 * not told would wait for much longer. */
#define SOON_MS (4000 + starved_ms())

enum flag { WHO, WHEN, KILLED_AT_MS, ALIVE };

static void gather(struct meet_rank *r)
{
	int all[MEET_MAX], mine = r->rank;

	ck_assert_int_eq(
		control_allgather(r->control, &mine, all, sizeof(mine), 10000),
		DICOMM_SUCCESS);
}

static void kill_me(struct meet_rank *r)
{
	atomic_store(&r->meet->flag[KILLED_AT_MS], (int)meet_now_ms());
	raise(SIGKILL);
}

/* The others stay until all of them have seen it. */
static void watch_death(struct meet_rank *r)
{
	struct meet *m = r->meet;

	gather(r);
	if (r->rank == m->flag[WHO])
		kill_me(r);
	MEET_UNTIL(atomic_load(&r->failures));
	/* Whoever finds it gone has heard why before, not the reverse. */
	MEET_UNTIL(control_gone(r->control, m->flag[WHO]));
	meet_barrier(r, m->ranks - 1);
	meet_sleep_ms(20);
}

static void check_seen(const struct meet *m, int victim)
{
	char name[64];

	snprintf(name, sizeof(name), "rank %d (", victim);
	for (int i = 0; i < m->ranks; i++) {
		const struct meet_rank *r = &m->rank[i];

		if (i == victim)
			continue;
		ck_assert_int_eq(r->opened, DICOMM_SUCCESS);
		ck_assert_int_eq(r->failures, 1);
		ck_assert_int_eq(r->status, DICOMM_ERR_REMOTE);
		ck_assert_int_eq(r->culprit, victim);
		ck_assert_msg(strstr(r->text, name) && strstr(r->text, "died"),
			      "%s", r->text);
		snprintf(name, sizeof(name), "pid %d",
			 (int)m->rank[victim].pid);
		ck_assert_ptr_nonnull(strstr(r->text, name));
		snprintf(name, sizeof(name), "rank %d (", victim);
		ck_assert_int_lt((int)(r->failed_ns / 1000000u) -
					 m->flag[KILLED_AT_MS],
				 SOON_MS);
	}
}

START_TEST(a_death_is_seen_by_all_and_named)
{
	struct meet *m = meet_create(MEET_PROCESSES, RANKS);

	m->flag[WHO] = _i;
	m->killed[_i] = true;
	m->run = watch_death;
	meet_run(m);
	check_seen(m, _i);
}
END_TEST

static void gather_with_a_death(struct meet_rank *r)
{
	struct meet *m = r->meet;
	uint8_t mine[100000], *all = malloc(sizeof(mine) * (size_t)m->ranks);
	uint64_t begin, late;
	char name[16];

	memset(mine, 1, sizeof(mine));
	gather(r);
	if (r->rank == m->flag[WHO]) {
		meet_sleep_ms(150);
		kill_me(r);
	}
	begin = meet_now_ms();
	ck_assert_int_eq(
		control_allgather(r->control, mine, all, sizeof(mine), 20000),
		DICOMM_ERR_REMOTE);
	snprintf(name, sizeof(name), "rank %d", m->flag[WHO]);
	ck_assert_ptr_nonnull(strstr(log_last_error(), name));
	late = meet_now_ms() - begin;
	ck_assert_uint_lt(late, 150 + SOON_MS);
	/* And whoever calls it later is not left waiting either. */
	ck_assert_int_eq(
		control_allgather(r->control, mine, all, sizeof(mine), 20000),
		DICOMM_ERR_REMOTE);
	meet_barrier(r, m->ranks - 1);
	free(all);
}

START_TEST(a_death_ends_a_gather)
{
	struct meet *m = meet_create(MEET_PROCESSES, 4);

	m->flag[WHO] = _i;
	m->killed[_i] = true;
	m->run = gather_with_a_death;
	meet_run(m);
}
END_TEST

static void query_with_a_death(struct meet_rank *r)
{
	struct meet *m = r->meet;
	uint64_t begin = meet_now_ms();
	uint32_t signature;
	char text[64];
	bool known;

	if (r->rank == m->flag[WHO]) {
		/* Stopped, it cannot answer; then it dies. */
		meet_sleep_ms(150);
		kill_me(r);
	}
	MEET_UNTIL(atomic_load(&r->failures));
	ck_assert_int_eq(control_query(r->control, m->flag[WHO], 0, 0, 20000,
				       &known, &signature, text, sizeof(text)),
			 DICOMM_ERR_REMOTE);
	ck_assert_uint_lt(meet_now_ms() - begin, 150 + SOON_MS);
	meet_barrier(r, m->ranks - 1);
}

START_TEST(a_query_of_the_dead_does_not_wait)
{
	struct meet *m = meet_create(MEET_PROCESSES, 3);

	m->flag[WHO] = _i;
	m->killed[_i] = true;
	m->run = query_with_a_death;
	meet_run(m);
}
END_TEST

/* Who dies while the ranks meet: some have come, some not yet. */
static void kill_early(struct meet_rank *r, struct control_config *config)
{
	struct meet *m = r->meet;
	pid_t me = getpid(), killer;

	(void)config;
	if (r->rank == m->flag[WHO]) {
		killer = fork();
		if (!killer) {
			usleep((useconds_t)m->flag[WHEN]);
			atomic_store(&m->flag[KILLED_AT_MS],
				     (int)meet_now_ms());
			kill(me, SIGKILL);
			_exit(0);
		}
	}
	if (r->rank == m->flag[ALIVE])
		meet_sleep_ms(600);
}

START_TEST(a_death_while_the_ranks_meet_is_named)
{
	struct meet *m = meet_create(MEET_PROCESSES, 4);
	char name[16];

	m->flag[WHO] = _i;
	m->flag[WHEN] = 250000;
	m->flag[ALIVE] = 3; /* comes late */
	m->killed[_i] = true;
	m->adjust = kill_early;
	meet_run(m);
	snprintf(name, sizeof(name), "rank %d (", _i);
	for (int i = 0; i < 4; i++) {
		if (i == _i)
			continue;
		ck_assert_int_eq(m->rank[i].opened, DICOMM_ERR_REMOTE);
		ck_assert_msg(strstr(m->rank[i].error, name), "%s",
			      m->rank[i].error);
		ck_assert_uint_lt(m->rank[i].open_ms,
				  (i == 3 ? 600 : 250) + SOON_MS);
	}
}
END_TEST

static void wait_for_failure(struct meet_rank *r)
{
	MEET_UNTIL(atomic_load(&r->failures) || control_gone(r->control, 0));
}

/* At a random moment of the id server, or just after: each ends, none hangs,
 * and those that were in know who it was. */
START_TEST(a_death_at_any_moment_of_joining_ends_it)
{
	struct meet *m = meet_create(MEET_PROCESSES, 4);
	char name[16];

	m->flag[WHO] = _i % 4;
	m->flag[WHEN] = _i * 500;
	m->flag[ALIVE] = -1;
	m->killed[_i % 4] = true;
	m->adjust = kill_early;
	m->run = wait_for_failure;
	m->timeout_ms = 1000;
	meet_run(m);
	snprintf(name, sizeof(name), "rank %d", _i % 4);
	for (int i = 0; i < 4; i++) {
		const struct meet_rank *r = &m->rank[i];
		const char *text = r->opened ? r->error : r->text;

		if (i == _i % 4)
			continue;
		ck_assert_uint_lt(r->open_ms, 1000 + SOON_MS);
		ck_assert_msg((!r->opened && !r->failures) ||
				      strstr(text, name),
			      "rank %d: %s", i, text);
	}
}
END_TEST

/* A child of the rank's own lives on: it must not keep the connection open. */
static void die_with_a_child(struct meet_rank *r)
{
	struct meet *m = r->meet;

	gather(r);
	if (r->rank == m->flag[WHO]) {
		if (!fork()) {
			sleep(3);
			_exit(0);
		}
		kill_me(r);
	}
	MEET_UNTIL(atomic_load(&r->failures));
	meet_barrier(r, m->ranks - 1);
	meet_sleep_ms(20);
}

START_TEST(a_child_does_not_hide_the_death_of_its_parent)
{
	struct meet *m = meet_create(MEET_PROCESSES, 3);

	m->flag[WHO] = _i;
	m->killed[_i] = true;
	m->run = die_with_a_child;
	meet_run(m);
	check_seen(m, _i);
}
END_TEST

/* Late is not dead. */
static void stop_one(struct meet_rank *r)
{
	struct meet *m = r->meet;
	pid_t me = getpid();

	gather(r);
	if (r->rank == m->flag[WHO]) {
		if (!fork()) {
			kill(me, SIGSTOP);
			meet_sleep_ms(1200);
			kill(me, SIGCONT);
			_exit(0);
		}
		meet_sleep_ms(100);
	}
	gather(r);
	ck_assert_int_eq(atomic_load(&r->failures), 0);
	meet_barrier(r, m->ranks);
}

START_TEST(a_stopped_rank_is_late_not_dead)
{
	struct meet *m = meet_create(MEET_PROCESSES, 3);

	m->flag[WHO] = _i;
	m->run = stop_one;
	meet_run(m);
}
END_TEST

/* A process that ends without a goodbye is dead, whatever its exit status. */
static void exit_without_goodbye(struct meet_rank *r)
{
	struct meet *m = r->meet;

	gather(r);
	if (r->rank == m->flag[WHO]) {
		atomic_store(&m->flag[KILLED_AT_MS], (int)meet_now_ms());
		_exit(0);
	}
	MEET_UNTIL(atomic_load(&r->failures));
	meet_barrier(r, m->ranks - 1);
	meet_sleep_ms(20);
}

START_TEST(leaving_without_goodbye_is_dying)
{
	struct meet *m = meet_create(MEET_PROCESSES, 3);

	m->flag[WHO] = 1;
	m->run = exit_without_goodbye;
	meet_run(m);
	check_seen(m, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("death");
	TCase *death = tcase_create("death");

	setenv("DICOMM_SOCKET_IFNAME", "lo", 1);
	setenv("DICOMM_DEBUG", "none", 1);
	tcase_add_loop_test(death, a_death_is_seen_by_all_and_named, 0, RANKS);
	tcase_add_loop_test(death, a_death_ends_a_gather, 0, 4);
	tcase_add_loop_test(death, a_query_of_the_dead_does_not_wait, 0, 3);
	tcase_add_loop_test(death, a_death_while_the_ranks_meet_is_named, 0, 3);
	tcase_add_loop_test(death, a_death_at_any_moment_of_joining_ends_it, 0,
			    40);
	tcase_add_loop_test(
		death, a_child_does_not_hide_the_death_of_its_parent, 0, 2);
	tcase_add_loop_test(death, a_stopped_rank_is_late_not_dead, 0, 2);
	tcase_add_test(death, leaving_without_goodbye_is_dying);
	suite_add_tcase(suite, death);
	return runner_main(suite);
}
