/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm_comm_shrink(): those who are left go on together, whoever died, and
 * never as two parties. */
#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/prompt.h"
#include "tests/support/runner.h"
#include "tests/support/storm.h"

#define BOOTSTRAP_S 2.0
#define PATIENCE_S 20.0
#define MOST_RANKS 6

struct word {
	_Atomic int working, learned;
	_Atomic int alive; /* bit r: has not been killed */
	_Atomic int ended; /* bit r: has left shrink, with so many ranks */
	_Atomic int count[MOST_RANKS];
};

static void check_time(const char *kind, double begin, double due)
{
	prompt_check(kind, job_seconds() - begin, due);
}

static void init(struct job_rank *me)
{
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
}

static int bits(unsigned set)
{
	return __builtin_popcount(set);
}

/* The new communicator has these of the old ranks, in their order, and works.
 * Its handle takes the place of the old one. */
static void adopt(struct job_rank *me, dicomm_comm_t comm, unsigned set)
{
	int rank, ranks;
	struct storm s;

	JOB_TRY(dicomm_comm_count(comm, &ranks));
	JOB_TRY(dicomm_comm_user_rank(comm, &rank));
	JOB_CHECK(ranks == bits(set), "%d ranks instead of %d", ranks,
		  bits(set));
	JOB_CHECK(rank == bits(set & ((1u << me->rank) - 1)),
		  "old rank %d is new rank %d", me->rank, rank);
	me->comm = comm;
	me->rank = rank;
	me->ranks = ranks;
	storm_begin(&s, me, 77);
	for (int i = 0; i < 4; i++)
		JOB_TRY(storm_next(&s));
	storm_end(&s);
}

/* ---- on a communicator that works ---- */

static void exclude_some(struct job_rank *me)
{
	unsigned out = *(const unsigned *)me->arg;
	dicomm_comm_t parent, child = NULL;
	struct job_rank old;
	int exclude[MOST_RANKS], n = 0;

	init(me);
	old = *me;
	parent = me->comm;
	for (int r = 0; r < me->ranks; r++)
		if (out >> r & 1)
			exclude[n++] = r;
	JOB_REFUSED(dicomm_comm_shrink(parent, &me->rank, 1, &child, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "exclude[0]");
	JOB_REFUSED(dicomm_comm_shrink(parent, &me->ranks, 1, &child, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "exclude[0]");
	JOB_REFUSED(dicomm_comm_shrink(parent, NULL, 1, &child, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "nexclude 1");
	JOB_REFUSED(dicomm_comm_shrink(parent, NULL, 0, NULL, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "newcomm");
	JOB_REFUSED(dicomm_comm_shrink(NULL, NULL, 0, &child, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "comm");
	if (!(out >> me->rank & 1)) {
		JOB_TRY(dicomm_comm_shrink(parent, exclude, n, &child, NULL));
		adopt(me, child, ((1u << me->ranks) - 1) & ~out);
		JOB_TRY(dicomm_comm_destroy(child));
	}
	/* The old one is none the worse for it. */
	me->comm = NULL;
	JOB_TRY(dicomm_barrier(parent, NULL));
	JOB_TRY(dicomm_comm_destroy(parent));
	*me = old;
	me->comm = NULL;
}

static const struct {
	int ranks;
	unsigned out;
} exclusions[] = {{2, 2}, {3, 2}, {3, 1}, {4, 2}, {4, 12},
		  {5, 9}, {3, 0}, {4, 3}, {4, 7}};

#define EXCLUSIONS ((int)(sizeof(exclusions) / sizeof(*exclusions)))

START_TEST(excluded_ranks_are_left_out)
{
	job_run(&(struct job){.run = exclude_some,
			      .arg = &exclusions[_i % EXCLUSIONS].out,
			      .ranks = exclusions[_i % EXCLUSIONS].ranks,
			      .threads = _i / EXCLUSIONS,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- many on one machine ---- */

/* Each asks each, at once. */
static int many(void)
{
	if (job_is_short() && job_is_costly())
		return 4;
	if (job_is_sanitized())
		return 32;
	return job_is_long() ? 256 : 128;
}

static void leave_the_last_out(struct job_rank *me)
{
	int last = me->ranks - 1, ranks;
	dicomm_comm_t child = NULL;

	job_barrier();
	if (me->rank != last) {
		JOB_TRY(dicomm_comm_shrink(me->comm, &last, 1, &child, NULL));
		JOB_TRY(dicomm_comm_count(child, &ranks));
		JOB_CHECK(ranks == last, "%d ranks", ranks);
		JOB_TRY(dicomm_barrier(child, NULL));
		JOB_TRY(dicomm_comm_destroy(child));
	}
	job_barrier();
}

START_TEST(many_ranks_of_a_machine_shrink)
{
	job_run(&(struct job){.run = leave_the_last_out,
			      .ranks = many(),
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 60});
}
END_TEST

/* ---- after deaths ---- */

struct deaths {
	int ranks;
	unsigned dead;  /* together, while all are at work */
	unsigned later; /* while the others shrink */
	int delay_us;
	unsigned seed;
};

/* Work until it fails. */
static void work(struct job_rank *me, unsigned seed)
{
	double end = job_seconds() + PATIENCE_S;
	dicomm_result_t status;
	struct storm s;

	storm_begin(&s, me, seed);
	do {
		status = storm_next(&s);
		JOB_CHECK(job_seconds() < end, "nobody died");
	} while (status == DICOMM_SUCCESS);
	storm_end(&s);
	JOB_CHECK(status == DICOMM_ERR_REMOTE, "status %d: %s", (int)status,
		  dicomm_get_last_error(me->comm));
}

/* Half of them is enough if the lowest is among them. */
static bool is_majority(unsigned set, int ranks)
{
	return 2 * bits(set) > ranks || (2 * bits(set) == ranks && set & 1);
}

static void survive(struct job_rank *me)
{
	const struct deaths *d = me->arg;
	unsigned all = (1u << me->ranks) - 1, left = all & ~d->dead & ~d->later;
	struct word *w = job_board();
	dicomm_comm_t parent, child = NULL;
	dicomm_result_t status;
	struct residue before;
	double begin;

	storm_warm_up(me, &before);
	init(me);
	parent = me->comm;
	atomic_fetch_add(&w->working, 1);
	work(me, d->seed);
	atomic_fetch_add(&w->learned, 1);
	begin = job_seconds();
	status = dicomm_comm_shrink(parent, NULL, 0, &child, NULL);
	if (!is_majority(left, d->ranks)) {
		JOB_REFUSED(status, DICOMM_ERR_REMOTE, "ranks are left");
		JOB_CHECK(!child, "there is a handle nevertheless");
	} else if (status == DICOMM_SUCCESS && d->later) {
		/* It may have been ready before the later death. */
		JOB_TRY(dicomm_comm_count(child, &me->ranks));
		JOB_TRY(dicomm_comm_user_rank(child, &me->rank));
		me->comm = child;
		if (me->ranks == bits(left)) {
			JOB_TRY(dicomm_barrier(child, NULL));
		} else {
			JOB_CHECK(me->ranks == bits(left | d->later),
				  "%d ranks", me->ranks);
			work(me, 5);
		}
	} else {
		JOB_TRY(status);
		adopt(me, child, left);
	}
	check_time(!is_majority(left, d->ranks) ? "too few are left"
		   : d->later                   ? "a death during shrink"
						: "shrink",
		   begin, 0);
	JOB_TRY(dicomm_comm_destroy(child));
	JOB_TRY(dicomm_comm_destroy(parent));
	me->comm = NULL;
	if (job_is_long())
		residue_check(&before, "after a shrink");
}

static void kill_set(unsigned set, int ranks)
{
	for (int r = 0; r < ranks; r++)
		if (set >> r & 1)
			kill(job_pid(r), SIGKILL);
}

static void kill_them(const void *arg)
{
	const struct deaths *d = arg;
	struct word *w = job_board();
	double end = job_seconds() + PATIENCE_S;

	while (atomic_load(&w->working) < d->ranks && job_seconds() < end)
		usleep(100);
	usleep(10000);
	kill_set(d->dead, d->ranks);
	if (!d->later)
		return;
	while (!atomic_load(&w->learned) && job_seconds() < end)
		usleep(10);
	usleep((unsigned)d->delay_us);
	kill_set(d->later, d->ranks);
}

static void run_deaths(const struct deaths *d)
{
	job_run(&(struct job){
		.run = survive,
		.arg = d,
		.ranks = d->ranks,
		.bare = true,
		.may_die = d->dead | d->later,
		.disturb = kill_them,
		.timeout_s = 60,
		.env = {"DICOMM_DEBUG=none", "DICOMM_BOOTSTRAP_TIMEOUT=5"}});
}

static const struct deaths deaths[] = {
	{.ranks = 3, .dead = 4},
	{.ranks = 3, .dead = 2},
	{.ranks = 3, .dead = 1}, /* the hub */
	{.ranks = 4, .dead = 1},
	{.ranks = 5, .dead = 1 | 8},
	{.ranks = 5, .dead = 4 | 8},
	/* half, with and without the lowest; fewer */
	{.ranks = 2, .dead = 2},
	{.ranks = 2, .dead = 1},
	{.ranks = 4, .dead = 12},
	{.ranks = 4, .dead = 3},
	{.ranks = 4, .dead = 14},
	{.ranks = 5, .dead = 7},
};

#define DEATHS (int)(sizeof(deaths) / sizeof(*deaths))

START_TEST(survivors_go_on)
{
	struct deaths d = deaths[_i];

	d.seed = (unsigned)getpid();
	run_deaths(&d);
}
END_TEST

START_TEST(a_death_during_shrink_is_survived)
{
	unsigned state = (unsigned)getpid();
	int times = job_is_long() ? 60 : 4;

	for (int i = 0; i < times; i++) {
		struct deaths d = {.ranks = 5, .seed = state};
		int first = (int)storm_random(&state, 5), second;

		do
			second = (int)storm_random(&state, 5);
		while (second == first);
		d.dead = 1u << first;
		d.later = 1u << second;
		d.delay_us = (int)storm_random(&state, 15000);
		run_deaths(&d);
	}
}
END_TEST

/* What a rank has forked lives on, but does not answer for it. */
static void leave_a_child(struct job_rank *me)
{
	struct word *w = job_board();
	double begin, end = job_seconds() + PATIENCE_S;
	dicomm_comm_t parent, child = NULL;

	init(me);
	parent = me->comm;
	job_barrier();
	if (me->rank == 1) {
		pid_t pid = fork();

		JOB_CHECK(pid >= 0, "fork: %m");
		while (pid == 0 && atomic_load(&w->learned) < me->ranks - 1 &&
		       job_seconds() < end)
			usleep(1000);
		if (pid == 0)
			_exit(0);
		kill(getpid(), SIGKILL);
	}
	while (dicomm_barrier(parent, NULL) == DICOMM_SUCCESS)
		;
	begin = job_seconds();
	JOB_TRY(dicomm_comm_shrink(parent, NULL, 0, &child, NULL));
	check_time("shrink", begin, 0);
	atomic_fetch_add(&w->learned, 1);
	adopt(me, child, 1 | 4);
	JOB_TRY(dicomm_comm_destroy(child));
	JOB_TRY(dicomm_comm_destroy(parent));
	me->comm = NULL;
}

START_TEST(a_child_does_not_live_for_its_parent)
{
	job_run(&(struct job){
		.run = leave_a_child,
		.ranks = 3,
		.bare = true,
		.may_die = 2,
		.timeout_s = 40,
		.env = {"DICOMM_DEBUG=none", "DICOMM_BOOTSTRAP_TIMEOUT=10"}});
}
END_TEST

/* ---- whose death cuts what it tells ---- */

/* Messages until this process dies behind the last of them; 0: it does not. */
static _Atomic int last_words;

ssize_t __real_send(int fd, const void *data, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t len, int flags)
{
	ssize_t n = __real_send(fd, data, len, flags);

	if (atomic_load(&last_words) && atomic_fetch_sub(&last_words, 1) == 1)
		raise(SIGKILL);
	return n;
}

struct cut {
	int ranks, victim, messages;
	_Atomic bool lived; /* the victim, to the end */
};

/* All survivors have the same, be it with the dead one or without. */
static void check_alike(const struct job_rank *me, const struct cut *c)
{
	struct word *w = job_board();
	int all = ((1 << c->ranks) - 1) & ~(1 << c->victim);
	double end = job_seconds() + PATIENCE_S;

	while ((atomic_load(&w->ended) & all) != all && job_seconds() < end)
		job_sleep_ms(1);
	for (int r = 0; r < c->ranks; r++)
		JOB_CHECK(!(all >> r & 1) || atomic_load(&w->count[r]) ==
						     w->count[me->rank],
			  "rank %d has %d ranks, rank %d has %d", me->rank,
			  atomic_load(&w->count[me->rank]), r,
			  atomic_load(&w->count[r]));
}

static void be_cut(struct job_rank *me)
{
	struct cut *c = (struct cut *)(uintptr_t)me->arg;
	struct word *w = job_board();
	dicomm_comm_t parent, child = NULL;
	double begin;
	int ranks = 0;

	init(me);
	parent = me->comm;
	JOB_TRY(dicomm_barrier(parent, NULL));
	job_barrier();
	begin = job_seconds();
	if (me->rank == c->victim)
		atomic_store(&last_words, c->messages);
	JOB_TRY(dicomm_comm_shrink(parent, NULL, 0, &child, NULL));
	atomic_store(&last_words, 0);
	if (me->rank == c->victim)
		atomic_store(&c->lived, true);
	JOB_TRY(dicomm_comm_count(child, &ranks));
	atomic_store(&w->count[me->rank], ranks);
	atomic_fetch_or(&w->ended, 1 << me->rank);
	check_time("a death that cuts", begin, 0);
	check_alike(me, c);
	if (ranks < c->ranks)
		JOB_TRY(dicomm_barrier(child, NULL));
	JOB_TRY(dicomm_comm_destroy(child));
	JOB_TRY(dicomm_comm_destroy(parent));
	me->comm = NULL;
}

START_TEST(all_or_none_whatever_the_dead_have_told)
{
	unsigned state = (unsigned)getpid();
	int step = job_is_long() ? 1 : 5;
	struct cut *c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(c, MAP_FAILED);
	c->ranks = 4;
	c->victim = _i;
	c->messages = 1 + (int)storm_random(&state, (unsigned)step);
	for (; !atomic_load(&c->lived); c->messages += step)
		job_run(&(struct job){.run = be_cut,
				      .arg = c,
				      .ranks = c->ranks,
				      .bare = true,
				      .may_die = 1u << c->victim,
				      .timeout_s = 60,
				      .env = {"DICOMM_DEBUG=none",
					      "DICOMM_BOOTSTRAP_TIMEOUT=5"}});
	ck_assert_int_gt(c->messages, 5);
	munmap(c, sizeof(*c));
}
END_TEST

/* One after the other: what was made by shrinking shrinks, too. */
static void shrink_again(struct job_rank *me)
{
	struct word *w = job_board();
	dicomm_comm_t comm;
	int ready = 0;

	init(me);
	while (me->ranks > 1) {
		comm = NULL;
		ready += me->ranks;
		atomic_fetch_add(&w->working, 1);
		/* Nobody has anything left to do with it then. */
		while (me->rank == 0 && atomic_load(&w->working) < ready)
			usleep(100);
		if (me->rank == 0)
			kill(getpid(), SIGKILL);
		while (dicomm_barrier(me->comm, NULL) == DICOMM_SUCCESS)
			;
		if (me->ranks == 2) {
			/* Half, without the lowest. */
			JOB_REFUSED(dicomm_comm_shrink(me->comm, NULL, 0, &comm,
						       NULL),
				    DICOMM_ERR_REMOTE, "are left");
			break;
		}
		JOB_TRY(dicomm_comm_shrink(me->comm, NULL, 0, &comm, NULL));
		JOB_TRY(dicomm_comm_destroy(me->comm));
		adopt(me, comm, ((1u << me->ranks) - 1) & ~1u);
	}
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(a_successor_shrinks_too)
{
	job_run(&(struct job){
		.run = shrink_again,
		.ranks = 5,
		.bare = true,
		.may_die = 15,
		.timeout_s = 60,
		.env = {"DICOMM_DEBUG=none", "DICOMM_BOOTSTRAP_TIMEOUT=5"}});
}
END_TEST

/* ---- without a death ---- */

/* Broken by a disagreement, everybody is still there. */
static void heal(struct job_rank *me)
{
	unsigned all = (1u << me->ranks) - 1;
	dicomm_comm_t parent, child = NULL;
	dicomm_result_t status;
	int one = 1, sum;

	init(me);
	job_barrier();
	parent = me->comm;
	status = dicomm_allreduce(&one, &sum, 1,
				  me->rank ? DICOMM_INT32 : DICOMM_FLOAT32,
				  DICOMM_SUM, parent, NULL);
	JOB_CHECK(status == DICOMM_ERR_INVALID_USAGE, "status %d", (int)status);
	JOB_TRY(dicomm_comm_shrink(parent, NULL, 0, &child, NULL));
	adopt(me, child, all);
	JOB_TRY(dicomm_comm_destroy(parent));
	JOB_TRY(dicomm_comm_destroy(child));
	me->comm = NULL;
}

START_TEST(what_broke_without_a_death_heals)
{
	job_run(&(struct job){.run = heal,
			      .ranks = 3,
			      .threads = _i,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* One lives but does not call it, and is not excluded. The others wait half of
 * the time for it; then they agree to go on without it. */
static void stay_away(struct job_rank *me)
{
	dicomm_comm_t child = NULL;
	double begin;
	int ranks;

	init(me);
	job_barrier();
	begin = job_seconds();
	if (me->rank != 1) {
		/* They may begin at unlike times. */
		if (me->rank == 2)
			usleep(300000);
		JOB_TRY(dicomm_comm_shrink(me->comm, NULL, 0, &child, NULL));
		check_time("a rank is missing", begin, BOOTSTRAP_S);
		JOB_TRY(dicomm_comm_count(child, &ranks));
		JOB_CHECK(ranks == 2, "%d ranks", ranks);
		JOB_TRY(dicomm_barrier(child, NULL));
		JOB_TRY(dicomm_comm_destroy(child));
	}
	job_barrier();
	/* Who comes after all cannot go on alone. */
	if (me->rank == 1) {
		JOB_REFUSED(dicomm_comm_shrink(me->comm, NULL, 0, &child, NULL),
			    DICOMM_ERR_REMOTE, "only 1 of 3 ranks are left");
		JOB_CHECK(!child, "there is a handle nevertheless");
	}
	job_barrier();
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(who_does_not_come_is_left_out)
{
	job_run(&(struct job){
		.run = stay_away,
		.ranks = 3,
		.bare = true,
		.timeout_s = 40,
		.env = {"DICOMM_DEBUG=none", "DICOMM_BOOTSTRAP_TIMEOUT=4"}});
}
END_TEST

/* Its kernel takes probes, and nobody answers them. */
static void see_one_stopped(struct job_rank *me)
{
	struct word *w = job_board();
	dicomm_comm_t parent, child = NULL;
	double begin;

	init(me);
	parent = me->comm;
	atomic_fetch_add(&w->working, 1);
	while (!atomic_load(&w->learned))
		usleep(100);
	begin = job_seconds();
	JOB_TRY(dicomm_comm_shrink(parent, NULL, 0, &child, NULL));
	check_time("a rank stands still", begin, BOOTSTRAP_S);
	adopt(me, child, 1 | 2 | 8);
	JOB_TRY(dicomm_comm_destroy(child));
	JOB_TRY(dicomm_comm_destroy(parent));
	me->comm = NULL;
	atomic_fetch_add(&w->ended, 1);
}

static void stop_one(const void *arg)
{
	struct word *w = job_board();
	double end = job_seconds() + PATIENCE_S;

	(void)arg;
	while (atomic_load(&w->working) < 4 && job_seconds() < end)
		usleep(100);
	kill(job_pid(2), SIGSTOP);
	atomic_store(&w->learned, 1);
	while (atomic_load(&w->ended) < 3 && job_seconds() < end)
		usleep(1000);
	kill(job_pid(2), SIGKILL);
}

START_TEST(who_stands_still_is_left_out)
{
	job_run(&(struct job){
		.run = see_one_stopped,
		.ranks = 4,
		.bare = true,
		.may_die = 4,
		.disturb = stop_one,
		.timeout_s = 40,
		.env = {"DICOMM_DEBUG=none", "DICOMM_BOOTSTRAP_TIMEOUT=4"}});
}
END_TEST

/* ---- the caller's own way to meet ---- */

/* It spans the parent, so its children meet without. */
static void meet_by_callback(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_unique_id_t none = {.text = ""};
	struct job_rank old = *me;
	dicomm_comm_t parent, child = NULL;
	const int out[] = {2};

	config.bootstrap.allgather = job_gather;
	config.bootstrap.ctx = &old;
	JOB_TRY(dicomm_comm_init_rank_config(&parent, me->ranks, none, me->rank,
					     &config));
	JOB_TRY(dicomm_comm_split(parent, me->rank % 2, 0, &child, NULL));
	adopt(me, child, me->rank % 2 ? 2 | 8 : 1 | 4);
	JOB_TRY(dicomm_comm_destroy(child));
	*me = old;
	child = NULL;
	if (me->rank != 2) {
		JOB_TRY(dicomm_comm_shrink(parent, out, 1, &child, NULL));
		adopt(me, child, 1 | 2 | 8);
		JOB_TRY(dicomm_comm_destroy(child));
	}
	JOB_TRY(dicomm_comm_destroy(parent));
	*me = old;
	me->comm = NULL;
}

START_TEST(children_of_a_callback_meet)
{
	job_run(&(struct job){.run = meet_by_callback,
			      .ranks = 4,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_shrink");
	TCase *tcase = tcase_create("fault_shrink");

	tcase_set_timeout(tcase, job_is_long() ? 1500 : 100);
	tcase_add_loop_test(tcase, excluded_ranks_are_left_out, 0,
			    2 * EXCLUSIONS);
	tcase_add_loop_test(tcase, survivors_go_on, 0, DEATHS);
	tcase_add_test(tcase, a_death_during_shrink_is_survived);
	/* That does not follow a child whose parent has threads. */
	if (!job_has_thread_sanitizer())
		tcase_add_test(tcase, a_child_does_not_live_for_its_parent);
	tcase_add_test(tcase, a_successor_shrinks_too);
	tcase_add_loop_test(tcase, what_broke_without_a_death_heals, 0, 2);
	tcase_add_test(tcase, who_does_not_come_is_left_out);
	tcase_add_test(tcase, who_stands_still_is_left_out);
	tcase_add_test(tcase, children_of_a_callback_meet);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("many");
	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, many_ranks_of_a_machine_shrink);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("cut");
	tcase_set_timeout(tcase, job_is_long() ? 1500 : 100);
	tcase_add_loop_test(tcase, all_or_none_whatever_the_dead_have_told, 0,
			    4);
	suite_add_tcase(suite, tcase);
	prompt_add(suite);
	return runner_main(suite);
}
