/* SPDX-License-Identifier: BSD-3-Clause */
/* The control plane among ranks that are well: joining, gathers, queries. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/control/control.h"
#include "src/boot/control/relay.h"
#include "src/boot/net/conn.h"
#include "tests/support/meet.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

static void check_all_opened(const struct meet *m)
{
	for (int i = 0; i < m->ranks; i++) {
		ck_assert_msg(m->rank[i].opened == DICOMM_SUCCESS,
			      "rank %d: %s", i, m->rank[i].error);
		ck_assert_int_eq(atomic_load(&m->rank[i].failures), 0);
	}
}

static void gather_numbers(struct meet_rank *r, int times)
{
	int all[MEET_MAX], mine;

	for (int k = 0; k < times; k++) {
		mine = r->rank * 1000 + k;
		memset(all, -1, sizeof(all));
		ck_assert_int_eq(control_allgather(r->control, &mine, all,
						   sizeof(mine), 10000),
				 DICOMM_SUCCESS);
		for (int i = 0; i < r->meet->ranks; i++)
			ck_assert_int_eq(all[i], i * 1000 + k);
	}
}

static void gather_five_times(struct meet_rank *r)
{
	gather_numbers(r, 5);
}

static const int sizes[] = {1, 2, 3, 8, 64};

START_TEST(ranks_meet_and_gather)
{
	struct meet *m = meet_create(_i / 5 ? MEET_PROCESSES : MEET_THREADS,
				     sizes[_i % 5]);

	m->run = gather_five_times;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

/* Sanitizers keep what was freed for a while, and are slow; the address
 * sanitizer finds leaks by itself. */
#if defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif
#ifdef SANITIZED
#define MANY 64
#define CYCLES 100
#define GROWTH_KIB (1 << 20)
#else
#define MANY 512
#define CYCLES 1000
#define GROWTH_KIB 4096
#endif

START_TEST(five_hundred_ranks_come_up)
{
	struct meet *m = meet_create(MEET_PROCESSES, MANY);
	uint64_t begin = meet_now_ms();

	m->run = gather_five_times;
	m->timeout_ms = 60000;
	meet_run(m);
	check_all_opened(m);
	ck_assert_uint_lt(meet_now_ms() - begin, 60000 + starved_ms());
}
END_TEST

/* At the id server, and at the hub. */
START_TEST(more_ranks_than_the_soft_limit_of_files)
{
	struct meet *m = meet_create(MEET_PROCESSES, 100);
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 64;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	m->run = gather_five_times;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

static uint8_t byte_of(int rank, size_t i)
{
	return (uint8_t)((size_t)rank * 31 + i * 7 + (i >> 8));
}

static void gather_bytes(struct meet_rank *r, size_t len)
{
	int ranks = r->meet->ranks;
	uint8_t *mine = calloc(len + 1, 1);
	uint8_t *all = malloc(len * (size_t)ranks + 1);
	size_t wrong = 0;

	all[len * (size_t)ranks] = 0xa5;
	for (size_t i = 0; i < len; i++)
		mine[i] = byte_of(r->rank, i);
	ck_assert_int_eq(control_allgather(r->control, mine, all, len, 20000),
			 DICOMM_SUCCESS);
	for (size_t i = 0; i < len * (size_t)ranks; i++)
		wrong += all[i] != byte_of((int)(i / len), i % len);
	ck_assert_uint_eq(wrong, 0);
	ck_assert_int_eq(all[len * (size_t)ranks], 0xa5);
	free(mine);
	free(all);
}

static void gather_lengths(struct meet_rank *r)
{
	/* Around one frame, and a MiB. */
	static const size_t lens[] = {0,     1,     16367, 16368,
				      16369, 16384, 65537, 1 << 20};

	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++)
		gather_bytes(r, lens[i]);
	/* A result that is still on its way down the tree ends when rank 0
	 * leaves. */
	meet_barrier(r, r->meet->ranks);
}

START_TEST(a_gather_may_have_any_length)
{
	struct meet *m = meet_create(MEET_PROCESSES, 5);

	m->run = gather_lengths;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

static void gather_unlike(struct meet_rank *r)
{
	uint8_t mine[8] = {0}, all[8 * 4];
	size_t len = r->rank == 2 ? 8 : 4;

	ck_assert_int_eq(control_allgather(r->control, mine, all, len, 10000),
			 DICOMM_ERR_INVALID_USAGE);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "rank 0"));
	ck_assert_ptr_nonnull(strstr(log_last_error(), "4 bytes"));
	ck_assert_ptr_nonnull(strstr(log_last_error(), "rank 2"));
	ck_assert_ptr_nonnull(strstr(log_last_error(), ") 8"));
	/* All ranks know of it, so they are still in step. */
	gather_numbers(r, 3);
}

START_TEST(unlike_lengths_are_an_error_of_all_ranks)
{
	struct meet *m = meet_create(MEET_THREADS, 4);

	m->run = gather_unlike;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

static void gather_too_much(struct meet_rank *r)
{
	char c = 0;

	ck_assert_int_eq(
		control_allgather(r->control, &c, &c, (size_t)1 << 40, 1000),
		DICOMM_ERR_INVALID_ARGUMENT);
	gather_numbers(r, 1);
}

START_TEST(a_gather_beyond_bounds_is_refused)
{
	struct meet *m = meet_create(MEET_THREADS, 2);

	m->run = gather_too_much;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

static void gather_without_one(struct meet_rank *r)
{
	int mine = 0, all[4];
	uint64_t begin = meet_now_ms(), took;

	if (r->rank != 2) {
		ck_assert_int_eq(control_allgather(r->control, &mine, all,
						   sizeof(mine), 600),
				 DICOMM_ERR_TIMEOUT);
		took = meet_now_ms() - begin;
		ck_assert_uint_ge(took, 600);
		ck_assert_uint_lt(took, 5000 + starved_ms());
		ck_assert_msg(strstr(log_last_error(), "rank 2 did not come"),
			      "%s", log_last_error());
		/* Out of step from now on, and at once. */
		ck_assert_int_eq(control_allgather(r->control, &mine, all,
						   sizeof(mine), 20000),
				 DICOMM_ERR_TIMEOUT);
		ck_assert_uint_lt(meet_now_ms() - begin - took,
				  5000 + starved_ms());
	}
	meet_barrier(r, 4);
}

START_TEST(a_gather_that_times_out_names_who_is_missing)
{
	struct meet *m = meet_create(MEET_THREADS, 4);

	m->run = gather_without_one;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

/* Rank 2 is at work for longer than the others wait, and comes, or not. */
static void gather_with_a_busy_one(struct meet_rank *r)
{
	bool comes = r->meet->flag[0];
	int mine = r->rank, all[3] = {-1, -1, -1};
	dicomm_result_t status = DICOMM_SUCCESS;

	if (r->rank == 2) {
		control_busy(r->control, "the kernels of a test");
		meet_sleep_ms(comes ? 1900 : 700);
		control_busy(r->control, NULL);
	}
	if (r->rank != 2 || comes)
		status = control_allgather(r->control, &mine, all, sizeof(mine),
					   r->rank == 2 ? 20000 : 900);
	meet_barrier(r, 3);
	ck_assert_int_eq(status, comes || r->rank == 2 ? DICOMM_SUCCESS
						       : DICOMM_ERR_TIMEOUT);
	for (int i = 0; i < 3 && comes; i++)
		ck_assert_int_eq(all[i], i);
}

START_TEST(who_is_at_work_is_waited_for)
{
	struct meet *m = meet_create(MEET_THREADS, 3);

	m->flag[0] = _i;
	m->run = gather_with_a_busy_one;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

static void cancel_gather(struct meet_rank *r)
{
	int mine = 0, all[2];

	if (r->rank == 0) {
		ck_assert_int_eq(control_allgather(r->control, &mine, all,
						   sizeof(mine), 20000),
				 DICOMM_ERR_ABORTED);
	} else {
		meet_sleep_ms(100);
		atomic_store(&r->meet->rank[0].cancelled, true);
	}
	meet_barrier(r, 2);
}

START_TEST(a_gather_can_be_cancelled)
{
	struct meet *m = meet_create(MEET_THREADS, 2);

	m->run = cancel_gather;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

static void on_waiting(void *ctx)
{
	struct meet_rank *r = ctx;

	atomic_fetch_add(&r->meet->flag[r->rank], 1);
}

static void tell_waits(struct meet_rank *r, struct control_config *config)
{
	(void)r;
	config->events.waiting = on_waiting;
}

/* Rank 1 does not come before rank 0 has been asked for something. */
static void gather_when_asked(struct meet_rank *r)
{
	if (r->rank == 1)
		MEET_UNTIL(atomic_load(&r->meet->flag[0]) >= 3);
	gather_numbers(r, 1);
}

START_TEST(who_waits_for_a_gather_can_do_something)
{
	struct meet *m = meet_create(MEET_THREADS, 2);

	m->run = gather_when_asked;
	m->adjust = tell_waits;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

/* Rank r has called operations 0 .. 9 of class r. */
static bool on_query(void *ctx, int peer, uint32_t class, uint64_t number,
		     uint32_t *signature, char *text, size_t len)
{
	struct meet_rank *r = ctx;

	if (class != (uint32_t)r->rank || number > 9)
		return false;
	if (number >= 7)
		meet_sleep_ms(number == 7 ? 400 : 3000);
	*signature = (uint32_t)(r->rank * 100 + peer);
	snprintf(text, len, "operation %d of rank %d", (int)number, r->rank);
	return true;
}

static void answer_queries(struct meet_rank *r, struct control_config *config)
{
	config->events.query = on_query;
	config->events.ctx = r;
}

static void query_all(struct meet_rank *r)
{
	int ranks = r->meet->ranks;
	char text[64], wanted[64];
	uint32_t signature;
	bool known;

	for (int i = 0; i < ranks; i++) {
		ck_assert_int_eq(control_query(r->control, i, (uint32_t)i, 3,
					       5000, &known, &signature, text,
					       sizeof(text)),
				 DICOMM_SUCCESS);
		ck_assert(known);
		ck_assert_uint_eq(signature, (uint32_t)(i * 100 + r->rank));
		snprintf(wanted, sizeof(wanted), "operation 3 of rank %d", i);
		ck_assert_str_eq(text, wanted);
		ck_assert_int_eq(control_query(r->control, i, (uint32_t)i, 10,
					       5000, &known, &signature, text,
					       sizeof(text)),
				 DICOMM_SUCCESS);
		ck_assert(!known);
	}
	ck_assert_int_eq(control_query(r->control, ranks, 0, 0, 100, &known,
				       &signature, text, sizeof(text)),
			 DICOMM_ERR_INVALID_ARGUMENT);
	meet_barrier(r, ranks);
}

static void query_run(enum meet_kind kind, int ranks,
		      void (*run)(struct meet_rank *r))
{
	struct meet *m = meet_create(kind, ranks);

	m->run = run;
	m->adjust = answer_queries;
	meet_run(m);
	for (int i = 0; i < m->ranks; i++)
		ck_assert_int_eq(m->rank[i].opened, DICOMM_SUCCESS);
}

START_TEST(every_rank_can_ask_every_rank)
{
	query_run(_i ? MEET_PROCESSES : MEET_THREADS, 4, query_all);
}
END_TEST

static void query_slow_one(struct meet_rank *r)
{
	uint64_t begin = meet_now_ms();
	uint32_t signature;
	char text[64];
	bool known;

	if (r->rank == 1) {
		ck_assert_int_eq(control_query(r->control, 2, 2, 8, 100, &known,
					       &signature, text, sizeof(text)),
				 DICOMM_ERR_TIMEOUT);
		ck_assert_uint_lt(meet_now_ms() - begin, 2500 + starved_ms());
		/* The late answer is not taken for that to the next. */
		ck_assert_int_eq(control_query(r->control, 2, 2, 4, 20000,
					       &known, &signature, text,
					       sizeof(text)),
				 DICOMM_SUCCESS);
		ck_assert_str_eq(text, "operation 4 of rank 2");
	}
	meet_barrier(r, 3);
}

START_TEST(a_query_is_bounded)
{
	query_run(MEET_PROCESSES, 3, query_slow_one);
}
END_TEST

/* The answer would take 400 ms; by then its rank is leaving. */
static void query_who_leaves(struct meet_rank *r)
{
	uint64_t begin = meet_now_ms();
	uint32_t signature;
	char text[64];
	bool known;

	if (r->rank == 1) {
		ck_assert_int_eq(control_query(r->control, 2, 2, 7, 10000,
					       &known, &signature, text,
					       sizeof(text)),
				 DICOMM_ERR_REMOTE);
		ck_assert_uint_lt(meet_now_ms() - begin, 5000 + starved_ms());
	} else if (r->rank == 2) {
		meet_sleep_ms(200);
		return;
	}
	meet_barrier(r, 2);
}

START_TEST(a_query_ends_if_who_is_asked_leaves)
{
	query_run(MEET_PROCESSES, 3, query_who_leaves);
}
END_TEST

static void *query_in_thread(void *arg)
{
	struct meet_rank *r = arg;
	uint32_t signature;
	char text[64];
	bool known;

	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(control_query(r->control, 1, 1,
					       (uint64_t)(i % 6), 5000, &known,
					       &signature, text, sizeof(text)),
				 DICOMM_SUCCESS);
		ck_assert_int_eq(text[10] - '0', i % 6);
	}
	return NULL;
}

static void query_from_threads(struct meet_rank *r)
{
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, query_in_thread, r);
	gather_numbers(r, 20);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	meet_barrier(r, 2);
}

START_TEST(queries_and_gathers_mix)
{
	query_run(MEET_THREADS, 2, query_from_threads);
}
END_TEST

static int leaver; /* the rank that leaves before the others */

static void report_from_one(struct meet_rank *r)
{
	if (r->rank == 2)
		control_report(r->control, DICOMM_ERR_INVALID_USAGE, 1,
			       "rank 1 called something else");
	else
		MEET_UNTIL(atomic_load(&r->failures));
	meet_sleep_ms(50);
	meet_barrier(r, 4);
}

START_TEST(a_report_reaches_all_others_once)
{
	struct meet *m = meet_create(_i ? MEET_PROCESSES : MEET_THREADS, 4);

	m->run = report_from_one;
	meet_run(m);
	for (int i = 0; i < m->ranks; i++) {
		ck_assert_int_eq(m->rank[i].opened, DICOMM_SUCCESS);
		ck_assert_int_eq(atomic_load(&m->rank[i].failures), i != 2);
		if (i == 2)
			continue;
		ck_assert_int_eq(m->rank[i].status, DICOMM_ERR_INVALID_USAGE);
		ck_assert_int_eq(m->rank[i].culprit, 1);
		ck_assert_str_eq(m->rank[i].text,
				 "rank 1 called something else");
	}
}
END_TEST

static void report_and_leave(struct meet_rank *r)
{
	meet_barrier(r, 4);
	if (r->rank == leaver)
		control_report(r->control, DICOMM_ERR_TIMEOUT, leaver,
			       "last words");
	else
		MEET_UNTIL(atomic_load(&r->failures));
}

START_TEST(a_report_is_heard_though_its_rank_leaves_at_once)
{
	struct meet *m = meet_create(_i & 1 ? MEET_PROCESSES : MEET_THREADS, 4);

	leaver = _i / 2;
	m->run = report_and_leave;
	meet_run(m);
	for (int i = 0; i < m->ranks; i++)
		if (i != leaver)
			ck_assert_str_eq(m->rank[i].text, "last words");
}
END_TEST

static void gather_until_report(struct meet_rank *r)
{
	int mine = 0, all[3];

	if (r->rank == 1) {
		meet_sleep_ms(100);
		control_report(r->control, DICOMM_ERR_DEVICE, 1, "on fire");
	} else {
		ck_assert_int_eq(control_allgather(r->control, &mine, all,
						   sizeof(mine), 20000),
				 DICOMM_ERR_DEVICE);
		ck_assert_ptr_nonnull(strstr(log_last_error(), "on fire"));
	}
	meet_barrier(r, 3);
}

START_TEST(a_report_ends_a_gather)
{
	struct meet *m = meet_create(MEET_THREADS, 3);

	m->run = gather_until_report;
	meet_run(m);
}
END_TEST

static void watch_one_leave(struct meet_rank *r)
{
	uint32_t signature;
	char text[64];
	int mine = 0, all[4];
	bool known;

	ck_assert_ptr_nonnull(strstr(control_where(r->control, leaver), "pid"));
	gather_numbers(r, 1);
	if (r->rank == leaver)
		return;
	MEET_UNTIL(control_gone(r->control, leaver));
	ck_assert_int_eq(
		control_allgather(r->control, &mine, all, sizeof(mine), 20000),
		DICOMM_ERR_REMOTE);
	ck_assert_msg(strstr(log_last_error(), "has left"), "%s",
		      log_last_error());
	ck_assert_int_eq(control_query(r->control, leaver, 0, 0, 20000, &known,
				       &signature, text, sizeof(text)),
			 DICOMM_ERR_REMOTE);
	meet_barrier(r, 3);
}

START_TEST(leaving_is_not_dying)
{
	struct meet *m = meet_create(_i & 1 ? MEET_PROCESSES : MEET_THREADS, 4);

	leaver = _i & 2 ? 0 : 3;
	m->run = watch_one_leave;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

/* --- the caller's own all-gather ------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static uint8_t board[MEET_MAX][1024];
static int posted;

static dicomm_result_t gather_by_memory(const void *mine, void *all, size_t len,
					void *ctx)
{
	struct meet_rank *r = ctx;

	ck_assert_uint_le(len, sizeof(board[0]));
	pthread_mutex_lock(&lock);
	memcpy(board[r->rank], mine, len);
	posted++;
	pthread_cond_broadcast(&cond);
	while (posted < r->meet->ranks)
		pthread_cond_wait(&cond, &lock);
	for (int i = 0; i < r->meet->ranks; i++)
		memcpy((uint8_t *)all + (size_t)i * len, board[i], len);
	pthread_mutex_unlock(&lock);
	return DICOMM_SUCCESS;
}

static void use_callback(struct meet_rank *r, struct control_config *config)
{
	config->id = NULL;
	config->allgather = gather_by_memory;
	config->allgather_ctx = r;
}

START_TEST(ranks_meet_by_the_callers_allgather)
{
	struct meet *m = meet_create(MEET_THREADS, 6);

	m->run = gather_five_times;
	m->adjust = use_callback;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

static dicomm_result_t gather_fails(const void *mine, void *all, size_t len,
				    void *ctx)
{
	(void)mine;
	(void)all;
	(void)len;
	(void)ctx;
	return DICOMM_ERR_SYSTEM;
}

START_TEST(a_failing_callback_is_an_error)
{
	struct control_config config = {
		.ranks = 2, .allgather = gather_fails, .timeout_ms = 1000};
	struct control *c;

	ck_assert_int_eq(control_open(&config, &c), DICOMM_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "all-gather"));
}
END_TEST

/* --- life ----------------------------------------------------------------- */

START_TEST(bad_arguments_are_refused)
{
	dicomm_unique_id_t id = {.text = "dicomm1:127.0.0.1:1:x"};
	struct control_config config = {.ranks = 2, .timeout_ms = 1000};
	struct control *c = NULL;

	ck_assert_int_eq(control_open(&config, &c),
			 DICOMM_ERR_INVALID_ARGUMENT);
	config.id = &id;
	ck_assert_int_eq(control_open(&config, &c),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "damaged"));
	config.rank = 2;
	ck_assert_int_eq(control_open(&config, &c),
			 DICOMM_ERR_INVALID_ARGUMENT);
	config.rank = 0;
	config.ranks = 0;
	ck_assert_int_eq(control_open(&config, &c),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_ptr_null(c);
	control_close(NULL);
}
END_TEST

START_TEST(ids_are_text_and_unlike)
{
	dicomm_unique_id_t id[16];

	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(id_create(&id[i]), DICOMM_SUCCESS);
		ck_assert_ptr_nonnull(memchr(id[i].text, '\0', sizeof(id[i])));
		ck_assert_int_eq(strncmp(id[i].text, "dicomm1:127.0.0.1:", 18),
				 0);
		for (int k = 0; k < i; k++)
			ck_assert_str_ne(strrchr(id[i].text, ':'),
					 strrchr(id[k].text, ':'));
	}
}
END_TEST

/* One thread with two ranks each of several communicators would wait for
 * itself; threads with one rank each do not wait for one another. */
static void *run_meet(void *arg)
{
	struct meet_rank *r = arg;
	struct control_config config = {.rank = r->rank,
					.ranks = 2,
					.id = &r->meet->id,
					.timeout_ms = 20000};

	ck_assert_int_eq(control_open(&config, &r->control), DICOMM_SUCCESS);
	for (int i = 0; i < 20; i++)
		gather_numbers(r, 1);
	control_close(r->control);
	return NULL;
}

START_TEST(communicators_are_independent)
{
	struct meet *m[8];
	pthread_t t[8][2];

	for (int i = 0; i < 8; i++) {
		m[i] = meet_create(MEET_THREADS, 2);
		ck_assert_int_eq(id_create(&m[i]->id), DICOMM_SUCCESS);
		for (int k = 0; k < 2; k++)
			pthread_create(&t[i][k], NULL, run_meet,
				       &m[i]->rank[k]);
	}
	for (int i = 0; i < 16; i++)
		pthread_join(t[i / 2][i & 1], NULL);
}
END_TEST

static long resident_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size, resident;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%ld %ld", &size, &resident), 2);
	fclose(f);
	return resident * 4;
}

static void cycle(int n)
{
	struct meet *m = meet_create(MEET_THREADS, 2);

	for (int i = 0; i < n; i++) {
		m->id.text[0] = '\0';
		meet_run(m);
		check_all_opened(m);
	}
}

START_TEST(a_thousand_cycles_leak_nothing)
{
	int before;
	long kib;

	cycle(50);
	MEET_UNTIL(meet_sockets() == 0);
	before = meet_descriptors();
	kib = resident_kib();
	cycle(CYCLES);
	MEET_UNTIL(meet_descriptors() == before);
	ck_assert_msg(resident_kib() - kib < GROWTH_KIB, "grew by %ld KiB",
		      resident_kib() - kib);
}
END_TEST

/* --- fork ----------------------------------------------------------------- */

static void child_of_fork(struct meet_rank *r)
{
	struct meet *other;
	int mine = 0, all[2];
	uint32_t signature;
	char text[8];
	bool known;

	ck_assert_int_eq(meet_sockets(), 0);
	ck_assert_int_eq(
		control_allgather(r->control, &mine, all, sizeof(mine), 1000),
		DICOMM_ERR_INVALID_USAGE);
	ck_assert_int_eq(control_query(r->control, 0, 0, 0, 1000, &known,
				       &signature, text, sizeof(text)),
			 DICOMM_ERR_INVALID_USAGE);
	control_report(r->control, DICOMM_ERR_SYSTEM, 0, "from a child");
	control_close(r->control);
	/* It can have its own. */
	other = meet_create(MEET_THREADS, 2);
	other->run = gather_five_times;
	meet_run(other);
	check_all_opened(other);
	_exit(0);
}

static void fork_in_rank(struct meet_rank *r)
{
	int status;
	pid_t pid;

	gather_numbers(r, 1);
	if (r->rank == r->meet->flag[0]) {
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (!pid)
			child_of_fork(r);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
	meet_barrier(r, 2);
	gather_numbers(r, 5);
}

START_TEST(a_child_does_not_touch_the_parents_connections)
{
	struct meet *m = meet_create(MEET_PROCESSES, 2);

	m->run = fork_in_rank;
	m->flag[0] = _i;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

START_TEST(the_control_thread_does_not_keep_the_process)
{
	dicomm_unique_id_t id;
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (id_create(&id) != DICOMM_SUCCESS)
			_exit(1);
		exit(42);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(status), 42);
}
END_TEST

/* ---- a tree of hosts ---- */

#define OF_HOST 2 /* ranks */

static void be_on_hosts(struct meet_rank *r, struct control_config *config)
{
	config->host = 1 + (uint64_t)r->rank / OF_HOST;
}

/* Nobody sends a result to more ranks than those of its host and four others,
 * in whatever place of the tree it is. */
static void count_results(struct meet_rank *r)
{
	const size_t len = 1 << 12, all = len * (size_t)r->meet->ranks;
	uint64_t before = conn_bytes_sent();

	gather_bytes(r, len);
	meet_barrier(r, r->meet->ranks);
	ck_assert_uint_le(conn_bytes_sent() - before,
			  (OF_HOST + 4) * all * 21 / 20 + len);
}

START_TEST(results_go_down_a_tree_of_hosts)
{
	struct meet *m = meet_create(MEET_PROCESSES, 40);

	m->run = count_results;
	m->adjust = be_on_hosts;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

START_TEST(gathers_of_any_length_go_down_the_tree)
{
	struct meet *m = meet_create(MEET_PROCESSES, 13);

	m->run = gather_lengths;
	m->adjust = be_on_hosts;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

/* The first rank of the second host; ranks of four more hosts, and one of its
 * own, get results from it. */
#define RELAY_RANK OF_HOST
#define STUCK_MS 6000

static void *be_stuck(void *arg)
{
	meet_sleep_ms(300);
	loop_lock();
	meet_sleep_ms(STUCK_MS);
	loop_unlock();
	return arg;
}

static void gather_beside_stuck(struct meet_rank *r)
{
	int mine = r->rank, all[MEET_MAX];
	uint64_t begin;
	pthread_t thread;

	gather_numbers(r, 1);
	if (r->rank == RELAY_RANK)
		ck_assert(!pthread_create(&thread, NULL, be_stuck, NULL));
	/* It is stuck when the result is there, but its own part is, too. */
	if (r->rank == 0)
		meet_sleep_ms(900);
	begin = meet_now_ms();
	ck_assert_int_eq(control_allgather(r->control, &mine, all, sizeof(mine),
					   r->rank == RELAY_RANK
						   ? 20000
						   : r->meet->flag[0]),
			 DICOMM_SUCCESS);
	if (r->rank == RELAY_RANK)
		pthread_join(thread, NULL);
	else
		ck_assert_uint_lt(meet_now_ms() - begin, STUCK_MS - 1000);
	gather_numbers(r, 3);
}

/* Also by those whose time is over before they have waited long for it: the
 * result is there. */
START_TEST(who_passes_on_nothing_is_passed_over)
{
	struct meet *m = meet_create(MEET_PROCESSES, 20);

	m->flag[0] = _i ? 2000 : 10000; /* ms */
	m->run = gather_beside_stuck;
	m->adjust = be_on_hosts;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

static void gather_and_lose(struct meet_rank *r)
{
	char byte = 0, all[MEET_MAX];

	gather_numbers(r, 2);
	if (r->rank == RELAY_RANK)
		raise(SIGKILL);
	ck_assert_int_eq(control_allgather(r->control, &byte, all, 1, 10000),
			 DICOMM_ERR_REMOTE);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "rank 2 ("));
}

START_TEST(the_death_of_who_passes_on_is_told)
{
	struct meet *m = meet_create(MEET_PROCESSES, 20);

	m->run = gather_and_lose;
	m->adjust = be_on_hosts;
	m->killed[RELAY_RANK] = true;
	meet_run(m);
}
END_TEST

static void be_on_two_hosts(struct meet_rank *r, struct control_config *config)
{
	config->host = r->rank > 0;
}

static void count_children(struct meet_rank *r)
{
	const size_t len = 512;
	uint64_t before = conn_bytes_sent();

	gather_bytes(r, len);
	meet_barrier(r, r->meet->ranks);
	if (r->rank == 1)
		ck_assert_uint_gt(conn_bytes_sent() - before,
				  70 * len * (size_t)r->meet->ranks);
}

START_TEST(more_children_than_the_soft_limit_of_files)
{
	struct meet *m = meet_create(MEET_PROCESSES, 100);
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 64;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	m->run = count_children;
	m->adjust = be_on_two_hosts;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

/* Where this process looks for its parent, instead of where that listens. */
static char misled[SOCK_TEXT];

struct client *__real_relay_connect(const struct relay_place *place, int rank,
				    const char *address, uint64_t until_ns,
				    const _Atomic bool *cancelled);
struct client *__wrap_relay_connect(const struct relay_place *place, int rank,
				    const char *address, uint64_t until_ns,
				    const _Atomic bool *cancelled);

struct client *__wrap_relay_connect(const struct relay_place *place, int rank,
				    const char *address, uint64_t until_ns,
				    const _Atomic bool *cancelled)
{
	return __real_relay_connect(place, rank, *misled ? misled : address,
				    until_ns, cancelled);
}

static int listening(void)
{
	int n = 0, is;

	for (int fd = 0; fd < 4096; fd++) {
		socklen_t len = sizeof(is);

		n += !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is, &len) &&
		     is;
	}
	return n;
}

static void mislead_child(struct meet_rank *r, struct control_config *config)
{
	be_on_hosts(r, config);
	if (r->rank == RELAY_RANK + 1)
		strcpy(misled, "127.0.0.1:1"); /* nobody listens there */
	r->note[0] = listening();
}

static void look_for_listeners(struct meet_rank *r)
{
	gather_numbers(r, 2);
	if (r->rank == RELAY_RANK)
		MEET_UNTIL(listening() == r->note[0]);
}

START_TEST(nobody_listens_for_children_that_gave_up)
{
	struct meet *m = meet_create(MEET_PROCESSES, 6);

	m->run = look_for_listeners;
	m->adjust = mislead_child;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

/* Its parent does not answer: nobody accepts what comes to this socket. */
static void keep_child_waiting(struct meet_rank *r,
			       struct control_config *config)
{
	int fd;

	be_on_hosts(r, config);
	if (r->rank == RELAY_RANK + 1)
		ck_assert_int_eq(sock_listen(&fd, misled), DICOMM_SUCCESS);
}

START_TEST(who_waits_for_its_parent_keeps_nobody_too_long)
{
	struct meet *m = meet_create(MEET_PROCESSES, 6);

	m->timeout_ms = 1800;
	m->adjust = keep_child_waiting;
	m->run = gather_five_times;
	meet_run(m);
	check_all_opened(m);
}
END_TEST

static void open_relay(struct relay *r, const struct relay_place *place,
		       char address[SOCK_TEXT])
{
	ck_assert_int_eq(auth_init(), DICOMM_SUCCESS);
	ck_assert_int_eq(loop_start(), DICOMM_SUCCESS);
	loop_lock();
	ck_assert(relay_listen(r, place, 0, address));
	loop_unlock();
}

static struct client *come(const struct relay_place *place, const char *address)
{
	return relay_connect(place, 1, address, clock_ns() + 10000000000u,
			     NULL);
}

START_TEST(only_children_of_a_rank_come_to_it)
{
	struct relay_place place = {.parent = 1, .children = 2};
	struct relay relay = {.came = 0};
	char address[SOCK_TEXT];
	struct client *child;

	open_relay(&relay, &place, address);
	ck_assert_ptr_null(come(&place, address));
	place.parent = 0;
	child = come(&place, address);
	ck_assert_ptr_nonnull(child);
	client_close(child);
	loop_lock();
	relay_close(&relay);
	loop_unlock();
}
END_TEST

/* More than the kernel takes from one end before the other end reads. */
#define PASSED 512

START_TEST(what_was_passed_on_comes_though_the_relay_leaves)
{
	const struct relay_place place = {.parent = 0, .children = 1};
	const uint8_t data[FRAME_MAX] = {0};
	struct relay relay = {.came = 0};
	char address[SOCK_TEXT], why[FRAME_TEXT];
	struct client *child, *from;
	struct frame_reader in;
	enum frame_type type;
	int n = 0;

	open_relay(&relay, &place, address);
	child = come(&place, address);
	ck_assert_ptr_nonnull(child);
	loop_lock();
	for (int i = 0; i < PASSED; i++)
		relay_pass(&relay, FRAME_GATHERED, data, sizeof(data));
	relay_leave_children(&relay);
	loop_unlock();
	while (client_next(child, NULL, clock_ns() + 10000000000u, NULL, &from,
			   &type, &in, why) == DICOMM_SUCCESS)
		n++;
	ck_assert_int_eq(n, PASSED);
	client_close(child);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("control");
	TCase *join = tcase_create("join");
	TCase *gathers = tcase_create("gathers");
	TCase *queries = tcase_create("queries");
	TCase *life = tcase_create("life");
	TCase *tree = tcase_create("tree");

	/* Check ends a case after 4 s, and 500 processes take longer beside
	 * other work. */
	tcase_set_timeout(join, 120);
	setenv("DICOMM_SOCKET_IFNAME", "lo", 1);
	setenv("DICOMM_DEBUG", "none", 1);
	tcase_add_loop_test(join, ranks_meet_and_gather, 0, 10);
	tcase_add_test(join, five_hundred_ranks_come_up);
	tcase_add_test(join, more_ranks_than_the_soft_limit_of_files);
	tcase_add_test(join, ranks_meet_by_the_callers_allgather);
	tcase_add_test(join, a_failing_callback_is_an_error);
	tcase_add_test(join, bad_arguments_are_refused);
	tcase_add_test(join, ids_are_text_and_unlike);
	tcase_add_test(join, communicators_are_independent);
	tcase_add_test(gathers, a_gather_may_have_any_length);
	tcase_add_test(gathers, unlike_lengths_are_an_error_of_all_ranks);
	tcase_add_test(gathers, a_gather_beyond_bounds_is_refused);
	tcase_add_test(gathers, a_gather_that_times_out_names_who_is_missing);
	tcase_add_loop_test(gathers, who_is_at_work_is_waited_for, 0, 2);
	tcase_add_test(gathers, a_gather_can_be_cancelled);
	tcase_add_test(gathers, who_waits_for_a_gather_can_do_something);
	tcase_add_loop_test(queries, every_rank_can_ask_every_rank, 0, 2);
	tcase_add_test(queries, a_query_is_bounded);
	tcase_add_test(queries, a_query_ends_if_who_is_asked_leaves);
	tcase_add_test(queries, queries_and_gathers_mix);
	tcase_add_loop_test(queries, a_report_reaches_all_others_once, 0, 2);
	tcase_add_loop_test(queries,
			    a_report_is_heard_though_its_rank_leaves_at_once, 0,
			    4);
	tcase_add_test(queries, a_report_ends_a_gather);
	tcase_add_loop_test(life, leaving_is_not_dying, 0, 4);
	tcase_add_test(life, a_thousand_cycles_leak_nothing);
	tcase_add_loop_test(
		life, a_child_does_not_touch_the_parents_connections, 0, 2);
	tcase_add_test(life, the_control_thread_does_not_keep_the_process);
	tcase_set_timeout(tree, 60);
	tcase_add_test(tree, results_go_down_a_tree_of_hosts);
	tcase_add_test(tree, gathers_of_any_length_go_down_the_tree);
	tcase_add_loop_test(tree, who_passes_on_nothing_is_passed_over, 0, 2);
	tcase_add_test(tree, the_death_of_who_passes_on_is_told);
	tcase_add_test(tree, more_children_than_the_soft_limit_of_files);
	tcase_add_test(tree, nobody_listens_for_children_that_gave_up);
	tcase_add_test(tree, who_waits_for_its_parent_keeps_nobody_too_long);
	tcase_add_test(tree, only_children_of_a_rank_come_to_it);
	tcase_add_test(tree, what_was_passed_on_comes_though_the_relay_leaves);
	suite_add_tcase(suite, join);
	suite_add_tcase(suite, gathers);
	suite_add_tcase(suite, queries);
	suite_add_tcase(suite, life);
	suite_add_tcase(suite, tree);
	return runner_main(suite);
}
