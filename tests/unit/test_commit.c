/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks commit: all go on or none does; and they probe each other. */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/control/id_server.h"
#include "src/boot/control/commit.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

#define RANKS 8
#define NOBODY (-1)

struct party {
	struct commit_config config;
	dicomm_result_t status;
	char error[256];
};

static struct recovery *recoveries[RANKS];
static const uint8_t probe_key[AUTH_KEY] = {7};
static char texts[RANKS][SOCK_TEXT];
static const char *addresses[RANKS];
static struct party parties[RANKS];

static void open_all(void)
{
	ck_assert_int_eq(auth_init(), DICOMM_SUCCESS);
	for (int r = 0; r < RANKS; r++) {
		ck_assert_int_eq(
			recovery_open(&recoveries[r], probe_key, r, texts[r]),
			DICOMM_SUCCESS);
		addresses[r] = texts[r];
		parties[r].config =
			(struct commit_config){.rank = r,
					       .ranks = RANKS,
					       .recovery = recoveries[r],
					       .addresses = addresses,
					       .timeout_ms = 20000};
		auth_key_from_text("test", "settle", parties[r].config.key);
	}
}

static void *run(void *arg)
{
	struct party *p = arg;

	p->status = commit_all(&p->config);
	snprintf(p->error, sizeof(p->error), "%s", log_last_error());
	return NULL;
}

/* From `first` on all but one, which closes its recovery meanwhile; the same
 * for all others. */
static void run_from(int first, int ranks, int absent, dicomm_result_t expected)
{
	uint64_t begin = clock_ms();
	pthread_t threads[RANKS];

	for (int r = first; r < ranks; r++)
		if (r != absent)
			ck_assert_int_eq(pthread_create(&threads[r], NULL, run,
							&parties[r]),
					 0);
	if (absent != NOBODY) {
		usleep(20000);
		recovery_close(recoveries[absent]);
		recoveries[absent] = NULL;
	}
	for (int r = first; r < ranks; r++) {
		if (r == absent)
			continue;
		pthread_join(threads[r], NULL);
		ck_assert_msg(parties[r].status == expected, "rank %d: %d: %s",
			      r, (int)parties[r].status, parties[r].error);
	}
	ck_assert_uint_lt(clock_ms() - begin, 10000 + starved_ms());
}

static void run_some(int ranks, int absent, dicomm_result_t expected)
{
	run_from(0, ranks, absent, expected);
}

static void run_all(int absent, dicomm_result_t expected)
{
	run_some(RANKS, absent, expected);
}

static void close_all(void)
{
	for (int r = 0; r < RANKS; r++)
		recovery_close(recoveries[r]);
}

START_TEST(all_who_are_ready_go_on)
{
	open_all();
	run_all(NOBODY, DICOMM_SUCCESS);
	close_all();
}
END_TEST

START_TEST(nobody_goes_on_without_one)
{
	char name[16];

	open_all();
	run_all(_i, DICOMM_ERR_REMOTE);
	snprintf(name, sizeof(name), "rank %d ", _i);
	for (int r = 0; r < RANKS; r++)
		ck_assert_msg(r == _i || strstr(parties[r].error, name),
			      "rank %d: %s", r, parties[r].error);
	close_all();
}
END_TEST

/* Who says nothing, who says rubbish, and who hangs up. */
START_TEST(strangers_do_not_matter)
{
	uint8_t rubbish[100];
	int fds[3 * RANKS];

	memset(rubbish, 0x5a, sizeof(rubbish));
	open_all();
	for (int i = 0; i < 3 * RANKS; i++) {
		fds[i] = recovery_connect(texts[i / 3]);
		ck_assert_int_ge(fds[i], 0);
		usleep(1000);
		if (i % 3 == 1)
			send(fds[i], rubbish, sizeof(rubbish), MSG_NOSIGNAL);
		if (i % 3 == 2)
			close(fds[i]);
	}
	run_all(NOBODY, DICOMM_SUCCESS);
	for (int i = 0; i < 3 * RANKS; i++)
		if (i % 3 != 2)
			close(fds[i]);
	close_all();
}
END_TEST

/* Who says nothing holds no place that a rank needs. */
START_TEST(many_silent_strangers_do_not_matter)
{
	int fds[3 * RANKS + 64 + 16];
	int n = (int)(sizeof(fds) / sizeof(*fds));
	pthread_t first;

	open_all();
	ck_assert_int_eq(pthread_create(&first, NULL, run, &parties[0]), 0);
	for (int i = 0; i < n; i++) {
		fds[i] = recovery_connect(texts[0]);
		ck_assert_int_ge(fds[i], 0);
		usleep(1000);
	}
	run_from(1, RANKS, NOBODY, DICOMM_SUCCESS);
	pthread_join(first, NULL);
	ck_assert_msg(parties[0].status == DICOMM_SUCCESS, "rank 0: %s",
		      parties[0].error);
	for (int i = 0; i < n; i++)
		close(fds[i]);
	close_all();
}
END_TEST

/* It stays all the same, and looks alive. */
START_TEST(another_key_is_a_strangers)
{
	open_all();
	for (int r = 0; r < RANKS; r++)
		parties[r].config.timeout_ms = 1000;
	memset(parties[3].config.key, 1, AUTH_KEY);
	run_all(NOBODY, DICOMM_ERR_REMOTE);
	close_all();
}
END_TEST

START_TEST(the_soft_limit_of_files_is_no_limit)
{
	struct rlimit limit;

	open_all();
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 32;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	run_all(NOBODY, DICOMM_SUCCESS);
	close_all();
}
END_TEST

/* The kernel looks at no more descriptors at once than may be open. */
START_TEST(few_need_few_files)
{
	struct rlimit limit = {64, 64};

	open_all();
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (int r = 0; r < 2; r++)
		parties[r].config.ranks = 2;
	run_some(2, NOBODY, DICOMM_SUCCESS);
	close_all();
}
END_TEST

/* Other communicators of the process have some. */
START_TEST(files_of_others_are_counted)
{
	struct rlimit limit;
	int fd = -1;

	open_all();
	for (int i = 0; i < 300; i++)
		fd = dup(STDERR_FILENO);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = (rlim_t)fd + 8;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	run_all(NOBODY, DICOMM_SUCCESS);
	close_all();
}
END_TEST

#define READY 1

/* As a rank that is ready and heard by that one. */
static void say_ready(int rank, int to, const uint8_t key[AUTH_KEY])
{
	const uint32_t greeting[] = {(uint32_t)rank, (uint32_t)to, UINT32_MAX,
				     0};
	const uint32_t vote[] = {(uint32_t)rank, (uint32_t)to, 0, READY};
	uint8_t words[sizeof(uint32_t) + AUTH_PROOF + 1 + AUTH_PROOF];
	int fd = recovery_connect(texts[to]);

	ck_assert_int_ge(fd, 0);
	memcpy(words, &rank, sizeof(rank));
	auth_prove(key, "dicomm commit", greeting, sizeof(greeting),
		   words + sizeof(rank));
	words[sizeof(rank) + AUTH_PROOF] = READY;
	auth_prove(key, "dicomm commit", vote, sizeof(vote),
		   words + sizeof(words) - AUTH_PROOF);
	usleep(10000);
	ck_assert_int_eq(send(fd, words, sizeof(words), MSG_NOSIGNAL),
			 sizeof(words));
}

/* Rank 2 was heard by rank 1 alone, which has decided by that; then its host
 * lost its power, of which nothing tells rank 0 in time. */
START_TEST(who_waits_in_vain_hears_what_was_decided)
{
	open_all();
	for (int r = 0; r < 2; r++) {
		parties[r].config.ranks = 3;
		parties[r].config.timeout_ms = 1000;
	}
	say_ready(2, 1, parties[1].config.key);
	ck_assert_int_ge(recovery_connect(texts[0]), 0);
	run_some(2, NOBODY, DICOMM_SUCCESS);
	close_all();
}
END_TEST

static void do_nothing(int signal)
{
	(void)signal;
}

static enum recovery_state probe_one(const char *text, int rank, int ms)
{
	enum recovery_state states[RANKS] = {RECOVERY_GONE};
	const char *texts_of[RANKS];

	for (int r = 0; r < RANKS; r++)
		texts_of[r] = text;
	states[rank] = RECOVERY_IDLE;
	ck_assert_int_eq(
		recovery_probe(probe_key, texts_of, RANKS, -1, states, ms, ms),
		DICOMM_SUCCESS);
	return states[rank];
}

static void *serve_late(void *arg)
{
	usleep(200000);
	recovery_serve(arg);
	return NULL;
}

/* A profiler's timer, say. */
START_TEST(signals_do_not_end_a_probe)
{
	struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = do_nothing};
	pthread_t thread;

	open_all();
	ck_assert_int_eq(
		pthread_create(&thread, NULL, serve_late, recoveries[0]), 0);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	ck_assert_int_eq(probe_one(texts[0], 0, 10000), RECOVERY_IDLE);
	setitimer(ITIMER_REAL, &never, NULL);
	pthread_join(thread, NULL);
	close_all();
}
END_TEST

START_TEST(a_probe_tells_who_shrinks)
{
	open_all();
	for (int state = RECOVERY_IDLE; state <= RECOVERY_LATE; state++) {
		recovery_set_state(recoveries[1], (enum recovery_state)state);
		recovery_serve(recoveries[1]);
		ck_assert_int_eq(probe_one(texts[1], 1, 5000), state);
	}
	close_all();
	ck_assert_int_eq(probe_one(texts[1], 1, 5000), RECOVERY_GONE);
}
END_TEST

enum { SILENT, CLOSING, ECHO, RELAY, OTHER_KEY, STRANGERS };

struct stranger {
	int kind, listener;
	_Atomic bool ends;
};

static void *run_stranger(void *arg)
{
	struct stranger *s = arg;
	struct pollfd p = {.fd = s->listener, .events = POLLIN};
	char data[256];
	ssize_t n;
	int fd, far;

	while (!atomic_load(&s->ends)) {
		if (poll(&p, 1, 10) <= 0)
			continue;
		fd = accept(s->listener, NULL, NULL);
		if (s->kind == CLOSING) {
			close(fd);
			continue;
		}
		n = recv(fd, data, sizeof(data), 0);
		if (s->kind == RELAY && n > 0) {
			/* Of rank 1, who is alive. */
			far = recovery_connect(texts[1]);
			usleep(10000);
			send(far, data, (size_t)n, MSG_NOSIGNAL);
			usleep(100000);
			n = recv(far, data, sizeof(data), MSG_DONTWAIT);
			ck_assert_int_gt(n, 0);
			close(far);
		}
		if (s->kind != SILENT && n > 0)
			send(fd, data, (size_t)n, MSG_NOSIGNAL);
	}
	return NULL;
}

/* The port of a dead rank, taken by somebody else. */
START_TEST(a_stranger_is_not_taken_for_a_rank)
{
	struct stranger s = {.kind = _i};
	uint64_t begin = clock_ms();
	uint8_t other[AUTH_KEY] = {1};
	struct recovery *false_one;
	char text[SOCK_TEXT];
	pthread_t thread;

	open_all();
	recovery_serve(recoveries[1]);
	if (_i == OTHER_KEY) {
		ck_assert_int_eq(recovery_open(&false_one, other, 0, text),
				 DICOMM_SUCCESS);
		recovery_serve(false_one);
		ck_assert_int_eq(probe_one(text, 0, 1500), RECOVERY_GONE);
		recovery_close(false_one);
	} else {
		ck_assert_int_eq(sock_listen(&s.listener, text),
				 DICOMM_SUCCESS);
		pthread_create(&thread, NULL, run_stranger, &s);
		ck_assert_int_eq(probe_one(text, 0, 1500), RECOVERY_GONE);
		atomic_store(&s.ends, true);
		pthread_join(thread, NULL);
		close(s.listener);
	}
	ck_assert_uint_lt(clock_ms() - begin, 3000 + starved_ms());
	ck_assert_int_eq(probe_one(texts[1], 1, 5000), RECOVERY_IDLE);
	close_all();
}
END_TEST

static void check_answers(const char *text, const char *when)
{
	for (int i = 0; i < 24; i++)
		ck_assert_msg(probe_one(text, 2, 5000) == RECOVERY_IDLE,
			      "probe %d %s", i, when);
}

/* On a machine whose queues are short; also while an id is served there, and by
 * somebody who floods it. */
START_TEST(more_may_ask_than_the_queue_holds)
{
	struct recovery *recovery;
	dicomm_unique_id_t id;
	char text[SOCK_TEXT];

	ck_assert_int_eq(recovery_open(&recovery, probe_key, 2, text),
			 DICOMM_SUCCESS);
	ck_assert_int_eq(listen(recovery_fd(recovery), 16), 0);
	recovery_serve(recovery);
	check_answers(text, "before an id is served");
	ck_assert_int_eq(recovery_new_id(recovery, text, "phrase", &id),
			 DICOMM_SUCCESS);
	check_answers(text, "while an id is served");
	id_server_close(text);
	check_answers(text, "after it");
	for (int i = 0; i < 400; i++)
		ck_assert_int_ge(recovery_connect(text), 0);
	check_answers(text, "among silent connections");
	recovery_close(recovery);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("commit");
	TCase *tcase = tcase_create("commit");

	tcase_add_test(tcase, all_who_are_ready_go_on);
	tcase_add_loop_test(tcase, nobody_goes_on_without_one, 0, RANKS);
	tcase_add_test(tcase, strangers_do_not_matter);
	tcase_add_test(tcase, many_silent_strangers_do_not_matter);
	tcase_add_test(tcase, another_key_is_a_strangers);
	tcase_add_test(tcase, the_soft_limit_of_files_is_no_limit);
	tcase_add_test(tcase, few_need_few_files);
	tcase_add_test(tcase, files_of_others_are_counted);
	tcase_add_test(tcase, who_waits_in_vain_hears_what_was_decided);
	tcase_add_test(tcase, signals_do_not_end_a_probe);
	tcase_add_test(tcase, a_probe_tells_who_shrinks);
	tcase_add_loop_test(tcase, a_stranger_is_not_taken_for_a_rank, 0,
			    STRANGERS);
	tcase_add_test(tcase, more_may_ask_than_the_queue_holds);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
