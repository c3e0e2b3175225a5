/* SPDX-License-Identifier: BSD-3-Clause */
/* What only the UCX transport does. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "tests/support/capture.h"
#include "tests/support/job.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"
#include "tests/transports/ranks.h"
#ifdef HAVE_UCX
#include "transports/ucx/load.h"
#endif

extern char **environ;

static const struct transport *t;

/* ---- it is a guest in the process ---- */

static void mine(int signal)
{
	(void)signal;
}

static unsigned long environment(void)
{
	unsigned long sum = 0;

	for (char **e = environ; *e; e++)
		for (char *c = *e; *c; c++)
			sum = sum * 31 + (unsigned char)*c;
	return sum;
}

START_TEST(signals_and_environment_stay_the_programs)
{
	static const int given[] = {SIGSEGV, SIGBUS, SIGFPE, SIGHUP};
	struct sigaction before[NSIG], now;
	struct sigaction own = {.sa_handler = mine};
	struct tp_config config = {
		.rank = 0, .ranks = 1, .slots = 8, .slot_bytes = 4096};
	unsigned long sum = environment();
	struct tp_device *dev;
	stack_t stack, later;
	char why[256];

	/* Half of them are the program's, the others nobody's. */
	for (int i = 0; i < 4; i += 2)
		ck_assert_int_eq(sigaction(given[i + _i], &own, NULL), 0);
	for (int s = 1; s < NSIG; s++)
		sigaction(s, NULL, &before[s]);
	sigaltstack(NULL, &stack);
	ck_assert(t->usable(why, sizeof(why)));
	ck_assert_int_eq(t->open(&config, &dev), DICOMM_SUCCESS);
	for (int s = 1; s < NSIG; s++)
		if (sigaction(s, NULL, &now) == 0)
			ck_assert_msg(now.sa_handler == before[s].sa_handler,
				      "signal %d", s);
	sigaltstack(NULL, &later);
	ck_assert_ptr_eq(later.ss_sp, stack.ss_sp);
	t->close(dev);
	ck_assert(environment() == sum);
}
END_TEST

static int messages;
static char kept[512];

static void count(int level, const char *message, void *ctx)
{
	(void)ctx;
	if (level <= LOG_WARN)
		snprintf(kept, sizeof(kept), "%s", message);
	messages += level <= LOG_WARN;
}

START_TEST(a_wrong_device_is_a_clear_error)
{
	struct tp_config config = {
		.rank = 0, .ranks = 1, .slots = 8, .slot_bytes = 4096};
	struct tp_device *dev = NULL;

	setenv("UCX_NET_DEVICES", "nosuch0", 1);
	log_set_sink(count, NULL);
	ck_assert_int_ne(t->open(&config, &dev), DICOMM_SUCCESS);
	ck_assert_ptr_null(dev);
	ck_assert_int_eq(messages, 1);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "ucx"));
}
END_TEST

/* UCX tells in its log, which is silent otherwise, of what it did not know. */
START_TEST(ucx_gets_our_defaults)
{
	struct tp_config config = {
		.rank = 0, .ranks = 1, .slots = 8, .slot_bytes = 4096};
	int before = dup(STDERR_FILENO);
	struct tp_device *dev;
	FILE *said = tmpfile();
	char line[512];

	ck_assert_ptr_nonnull(said);
	setenv("UCX_LOG_FILE", "stderr", 1);
	setenv("UCX_LOG_LEVEL", "warn", 1);
	setenv("DICOMM_PORT_RANGE", "20000-40000", 1);
	setenv("DICOMM_SOCKET_FAMILY", "AF_INET", 1);
	dup2(fileno(said), STDERR_FILENO);
	ck_assert_int_eq(t->open(&config, &dev), DICOMM_SUCCESS);
	t->close(dev);
	dup2(before, STDERR_FILENO);
	close(before);
	rewind(said);
	while (fgets(line, sizeof(line), said))
		ck_assert_msg(!strstr(line, "configuration"), "%s", line);
	fclose(said);
}
END_TEST

#ifdef HAVE_UCX
static ucs_status_t refuse_tls(ucp_config_t *config, const char *name,
			       const char *value)
{
	(void)config;
	(void)value;
	return strcmp(name, "TLS") ? UCS_OK : UCS_ERR_INVALID_PARAM;
}
#endif

START_TEST(what_ucx_refuses_is_reported)
{
#ifdef HAVE_UCX
	struct tp_config config = {
		.rank = 0, .ranks = 1, .slots = 8, .slot_bytes = 4096};
	struct tp_device *dev;
	char why[256];

	unsetenv("UCX_TLS");
	ck_assert(t->usable(why, sizeof(why)));
	ucx.ucp_config_modify = refuse_tls;
	log_set_sink(count, NULL);
	ck_assert_int_eq(t->open(&config, &dev), DICOMM_SUCCESS);
	t->close(dev);
	ck_assert_int_eq(messages, 1);
	ck_assert_msg(strstr(kept, "UCX_TLS tcp: Invalid parameter"), "%s",
		      kept);
#endif
}
END_TEST

/* ---- a rank is away: neither polls nor does anything else ---- */

#define LARGE (3u << 20)

static void offer_and_go(struct rank *r)
{
	static uint8_t large[LARGE];
	struct tp_ref ref;
	dicomm_result_t status;

	ranks_fill(large, LARGE, 5);
	ranks_connect_out(r, 1, TP_COLLECTIVE);
	EXPECT(r, r->t->offer(r->peer[1], large, LARGE, TP_WANT_COPY, &ref),
	       "no offer");
	RANKS_WAIT(r,
		   (status = r->t->put(r->peer[1], TP_COLLECTIVE, 1, 7, TP_REF,
				       &ref, LARGE)) != DICOMM_AGAIN);
	EXPECT_OK(r, status);
	for (int i = 0; i < 10000 && !atomic_load(&r->area->flag[1]); i++)
		usleep(1000);
	EXPECT(r, atomic_load(&r->area->flag[1]), "it was not read");
}

static void read_what_is_offered(struct rank *r)
{
	uint8_t *copy = malloc(LARGE);
	const uint8_t *room;
	struct tp_ref ref;

	EXPECT(r, copy, "out of memory");
	ranks_connect_in(r, 0, TP_COLLECTIVE);
	ranks_get(r, 0, TP_COLLECTIVE, 1, &room);
	memcpy(&ref, room, sizeof(ref));
	ranks_read(r, 0, TP_COLLECTIVE, 1, &ref, 0, copy, LARGE);
	EXPECT(r, ranks_check(copy, LARGE, 5) == LARGE, "wrong data");
	free(copy);
	EXPECT_OK(r, r->t->release(r->peer[0], TP_COLLECTIVE, 1));
	atomic_store(&r->area->flag[1], 1);
}

static void run_away(struct rank *r)
{
	if (r->rank == 0)
		offer_and_go(r);
	else
		read_what_is_offered(r);
}

START_TEST(a_rank_that_is_away_is_read_from)
{
	struct ranks_job job = {.t = t,
				.kind = (enum ranks_kind)_i,
				.ranks = 2,
				.run = run_away};

	ranks_run(&job);
}
END_TEST

/* Both go away with messages under way, and come back to find them. */
static void run_both_away(struct rank *r)
{
	const uint64_t slots = r->config.slots;
	dicomm_result_t status = DICOMM_AGAIN;
	struct tp_line *line;
	const uint8_t *body;
	uint8_t bytes[4096];

	ranks_connect_out(r, !r->rank, TP_COLLECTIVE);
	for (uint64_t q = 1; q <= slots; q++) {
		ranks_fill(bytes, sizeof(bytes), q);
		ranks_put(r, !r->rank, TP_COLLECTIVE, q, bytes, sizeof(bytes));
	}
	/* No poll: an inbox is memory. */
	for (int i = 0; i < 10000 && status == DICOMM_AGAIN; i++) {
		usleep(1000);
		status = r->t->connect_in(r->peer[!r->rank], TP_COLLECTIVE,
					  &r->in[!r->rank][TP_COLLECTIVE]);
	}
	EXPECT_OK(r, status);
	line = tp_line(&r->in[!r->rank][TP_COLLECTIVE], 0);
	for (int i = 0; i < 10000 && atomic_load(&line->seq) != slots; i++)
		usleep(1000);
	EXPECT(r, atomic_load(&line->seq) == slots, "they have not come");
	for (uint64_t q = 1; q <= slots; q++) {
		ranks_get(r, !r->rank, TP_COLLECTIVE, q, &body);
		EXPECT(r, ranks_check(body, 4096, q) == 4096, "wrong data");
	}
}

START_TEST(messages_arrive_where_nobody_polls)
{
	struct ranks_job job = {.t = t,
				.kind = (enum ranks_kind)_i,
				.ranks = 2,
				.run = run_both_away};

	ranks_run(&job);
}
END_TEST

/* ---- one rank takes nothing for a while ---- */

#define MUCH 131072
#define QUIET_MS 200

/* Until nothing more leaves: how many messages that were. */
static uint64_t put_all(struct rank *r, int peer, const void *body)
{
	uint64_t q = 0, since = clock_ms();

	while (clock_ms() - since < QUIET_MS && q < r->config.slots) {
		dicomm_result_t status = ranks_try_put(r, peer, TP_COLLECTIVE,
						       q + 1, body, MUCH);

		EXPECT(r, status == DICOMM_SUCCESS || status == DICOMM_AGAIN,
		       "%d", (int)status);
		if (status == DICOMM_SUCCESS) {
			since = clock_ms();
			q++;
		}
		r->t->poll(r->dev);
	}
	return q;
}

static void run_stuck(struct rank *r)
{
	static uint8_t bytes[MUCH];
	const uint8_t *body;

	if (r->rank)
		ranks_connect(r, 0, TP_COLLECTIVE);
	for (int peer = 1; !r->rank && peer < r->ranks; peer++)
		ranks_connect(r, peer, TP_COLLECTIVE);
	ranks_barrier(r);
	if (r->rank == 0) {
		ranks_fill(bytes, MUCH, 3);
		ranks_stop(r, 1);
		atomic_store(&r->area->flag[1], put_all(r, 1, bytes));
		EXPECT(r, r->area->flag[1] < r->config.slots,
		       "it has room for all");
		/* The other one does not wait for that. */
		ranks_put(r, 2, TP_COLLECTIVE, 1, bytes, MUCH);
		RANKS_WAIT(r, atomic_load(&r->area->flag[2]));
		kill(r->area->pid[1], SIGCONT);
		return;
	}
	RANKS_WAIT(r, r->rank == 2 || atomic_load(&r->area->flag[1]));
	for (uint64_t q = 1; q <= (r->rank == 1 ? r->area->flag[1] : 1); q++) {
		ranks_get(r, 0, TP_COLLECTIVE, q, &body);
		EXPECT(r, ranks_check(body, MUCH, 3) == MUCH, "wrong data");
	}
	atomic_store(&r->area->flag[r->rank], 1);
}

START_TEST(who_takes_nothing_holds_no_other_up)
{
	struct ranks_job job = {.t = t,
				.kind = RANKS_PROCESSES,
				.ranks = 3,
				.slots = 256,
				.slot_bytes = MUCH,
				.run = run_stuck};

	ranks_run(&job);
}
END_TEST

/* ---- who may read what ---- */

static void run_forged(struct rank *r)
{
	static uint8_t large[LARGE];
	const uint8_t *room;
	struct tp_ref ref;
	dicomm_result_t status;
	uint8_t byte;

	if (r->rank == 0) {
		ranks_connect_out(r, 1, TP_COLLECTIVE);
		EXPECT(r,
		       r->t->offer(r->peer[1], large, LARGE, TP_WANT_COPY,
				   &ref),
		       "offer");
		RANKS_WAIT(r, (status = r->t->put(r->peer[1], TP_COLLECTIVE, 1,
						  7, TP_REF, &ref, LARGE)) !=
				      DICOMM_AGAIN);
		EXPECT_OK(r, status);
		ranks_barrier(r);
		return;
	}
	ranks_connect_in(r, 0, TP_COLLECTIVE);
	ranks_get(r, 0, TP_COLLECTIVE, 1, &room);
	capture_nothing();
	for (size_t i = 0; i < 32; i++) {
		memcpy(&ref, room, sizeof(ref));
		ref.bytes[i] ^= 1;
		RANKS_WAIT(r, (status = r->t->read(r->peer[0], TP_COLLECTIVE, 1,
						   &ref, 0, &byte, 1)) !=
				      DICOMM_AGAIN);
		while (status == DICOMM_IN_PROGRESS) {
			r->t->poll(r->dev);
			status =
				r->t->read_status(r->peer[0], TP_COLLECTIVE, 1);
		}
		EXPECT(r, status == DICOMM_ERR_REMOTE, "byte %d: status %d",
		       (int)i, (int)status);
	}
	ranks_barrier(r);
}

START_TEST(only_what_was_offered_can_be_read)
{
	struct ranks_job job = {.t = t,
				.kind = (enum ranks_kind)_i,
				.ranks = 2,
				.run = run_forged};

	ranks_run(&job);
}
END_TEST

/* ---- a rank that gives up ---- */

#define LONG (24u << 20)

static void leave_to_be_read(struct rank *r)
{
	static uint8_t large[LONG];
	struct tp_ref ref;
	dicomm_result_t status;

	memset(large, 1, LONG);
	ranks_connect_out(r, 1, TP_COLLECTIVE);
	EXPECT(r, r->t->offer(r->peer[1], large, LONG, TP_WANT_COPY, &ref),
	       "no offer");
	RANKS_WAIT(r, (status = r->t->put(r->peer[1], TP_COLLECTIVE, 1, 7,
					  TP_REF, &ref, LONG)) != DICOMM_AGAIN);
	EXPECT_OK(r, status);
	ranks_barrier(r);
	ranks_barrier(r);
}

/* By rendezvous UCX has the place and writes it by itself. */
static void stop_reading(struct rank *r)
{
	static uint8_t into[LONG];
	const uint8_t *room;
	struct tp_ref ref;
	dicomm_result_t status;

	ranks_connect_in(r, 0, TP_COLLECTIVE);
	ranks_get(r, 0, TP_COLLECTIVE, 1, &room);
	memcpy(&ref, room, sizeof(ref));
	ranks_barrier(r);
	RANKS_WAIT(r, (status = r->t->read(r->peer[0], TP_COLLECTIVE, 1, &ref,
					   0, into, LONG)) != DICOMM_AGAIN);
	EXPECT(r, status == DICOMM_IN_PROGRESS, "%d", (int)status);
	/* Some of it is there, the rest is asked for. */
	RANKS_WAIT(r, *(volatile uint8_t *)into == 1);
	EXPECT(r,
	       r->t->read_status(r->peer[0], TP_COLLECTIVE, 1) ==
		       DICOMM_IN_PROGRESS,
	       "all of it came at once");
	r->t->abort(r->dev);
	memset(into, 2, LONG);
	ranks_barrier(r);
	r->t->peer_close(r->peer[0]);
	r->peer[0] = NULL;
	r->t->close(r->dev);
	EXPECT(r, !memchr(into, 1, LONG), "byte %d came after the abort",
	       (int)((uint8_t *)memchr(into, 1, LONG) - into));
	EXPECT_OK(r, r->t->open(&r->config, &r->dev));
	r->peer[1] = NULL;
}

static void run_give_up(struct rank *r)
{
	capture_nothing();
	if (r->rank == 0)
		leave_to_be_read(r);
	else
		stop_reading(r);
}

START_TEST(nothing_is_brought_after_an_abort)
{
	struct ranks_job job = {.t = t,
				.kind = (enum ranks_kind)_i,
				.ranks = 2,
				.run = run_give_up};

	setenv("UCX_RNDV_THRESH", "64k", 1);
	ranks_run(&job);
}
END_TEST

/* ---- the child of a fork ---- */

static void open_in_child(const struct tp_config *config, bool may)
{
	struct tp_device *dev = NULL;
	uint64_t begin = clock_ms();
	dicomm_result_t status;
	char why[256];
	int end;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid) {
		ck_assert_int_eq(waitpid(pid, &end, 0), pid);
		ck_assert_msg(end == 0, "the child ended with %#x", end);
		return;
	}
	capture_nothing();
	alarm(20);
	if (t->usable(why, sizeof(why)) != may ||
	    (!may && !strstr(why, "of which this is a fork")))
		_exit(1);
	status = t->open(config, &dev);
	if (may != (status == DICOMM_SUCCESS) ||
	    clock_ms() - begin > 5000 + starved_ms())
		_exit(2);
	if (dev)
		t->close(dev);
	_exit(0);
}

START_TEST(a_forked_child_gets_an_error_at_once)
{
	const struct tp_config config = {
		.rank = 0, .ranks = 1, .slots = 8, .slot_bytes = 4096};
	struct tp_device *dev;

	ck_assert_int_eq(t->open(&config, &dev), DICOMM_SUCCESS);
	open_in_child(&config, false);
	t->close(dev);
	/* Then nothing of UCX runs here that a child would lack. */
	open_in_child(&config, true);
}
END_TEST

/* ---- who dies is noticed by the wire, too ---- */

static void run_death(struct rank *r)
{
	uint64_t q = 1;
	dicomm_result_t status;

	ranks_connect(r, !r->rank, TP_COLLECTIVE);
	if (r->rank == 1)
		for (;;)
			pause();
	kill(r->area->pid[1], SIGKILL);
	capture_nothing();
	RANKS_WAIT(r, (status = ranks_try_put(r, 1, TP_COLLECTIVE, q, "x", 1),
		       q += status == DICOMM_SUCCESS && q < 8,
		       status == DICOMM_ERR_REMOTE));
	EXPECT(r, strstr(log_last_error(), "rank 1"), "%s", log_last_error());
	EXPECT(r,
	       !r->t->reaches(r->dev, &r->area->address[1], (char[64]){""}, 64),
	       "reaches the dead");
}

START_TEST(a_put_to_the_dead_fails)
{
	struct ranks_job job = {.t = t,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_death,
				.killed = 2};

	ranks_run(&job);
}
END_TEST

/* It has never been there. */
static void run_stillborn(struct rank *r)
{
	struct tp_outbox out;
	dicomm_result_t status = DICOMM_AGAIN;
	uint64_t q = 1;

	if (r->rank == 1)
		kill(getpid(), SIGKILL);
	RANKS_WAIT(r, ranks_is_dead(r, 1));
	capture_nothing();
	RANKS_WAIT(r, (status = r->t->connect_out(r->peer[1], TP_COLLECTIVE,
						  &out)) != DICOMM_AGAIN);
	if (status != DICOMM_SUCCESS) {
		EXPECT(r,
		       status == DICOMM_ERR_REMOTE ||
			       status == DICOMM_ERR_NO_PATH,
		       "%d", (int)status);
		return;
	}
	RANKS_WAIT(r, (status = r->t->put(r->peer[1], TP_COLLECTIVE, q, 7,
					  TP_DATA, "x", 1),
		       q += status == DICOMM_SUCCESS && q < 8,
		       status == DICOMM_ERR_REMOTE));
}

START_TEST(connecting_to_the_dead_fails)
{
	struct ranks_job job = {.t = t,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_stillborn,
				.killed = 2};

	ranks_run(&job);
}
END_TEST

/* One side ends while the other connects. */
static void run_hasty(struct rank *r)
{
	dicomm_result_t status;
	struct tp_outbox out;

	ranks_barrier(r);
	if (r->rank == 1)
		return;
	status = r->t->connect_out(r->peer[1], TP_COLLECTIVE, &out);
	EXPECT(r, status == DICOMM_SUCCESS || status == DICOMM_AGAIN, "%d",
	       (int)status);
	r->t->abort(r->dev);
}

START_TEST(abort_while_connecting)
{
	for (int i = 0; i < 20; i++) {
		struct ranks_job job = {.t = t,
					.kind = (enum ranks_kind)_i,
					.ranks = 2,
					.run = run_hasty};

		ranks_run(&job);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ucx");
	TCase *tcase = tcase_create("ucx");

	t = transport_find("ucx");
	if (!t->open) {
		printf("built without UCX\n");
		return 77;
	}
	if (job_has_thread_sanitizer()) {
		printf("the thread sanitizer does not see the locks of UCX\n");
		return 77;
	}
	tcase_add_loop_test(tcase, signals_and_environment_stay_the_programs, 0,
			    2);
	tcase_add_test(tcase, a_wrong_device_is_a_clear_error);
	tcase_add_test(tcase, ucx_gets_our_defaults);
	tcase_add_test(tcase, what_ucx_refuses_is_reported);
	tcase_add_loop_test(tcase, a_rank_that_is_away_is_read_from, 0,
			    RANKS_KINDS);
	tcase_add_loop_test(tcase, messages_arrive_where_nobody_polls, 0,
			    RANKS_KINDS);
	tcase_add_loop_test(tcase, only_what_was_offered_can_be_read, 0,
			    RANKS_KINDS);
	tcase_add_loop_test(tcase, nothing_is_brought_after_an_abort, 0,
			    RANKS_KINDS);
	tcase_add_test(tcase, a_forked_child_gets_an_error_at_once);
	tcase_add_test(tcase, who_takes_nothing_holds_no_other_up);
	tcase_add_test(tcase, a_put_to_the_dead_fails);
	tcase_add_test(tcase, connecting_to_the_dead_fails);
	tcase_add_loop_test(tcase, abort_while_connecting, 0, RANKS_KINDS);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
