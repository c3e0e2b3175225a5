/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of several hosts have one table of links, given to any of them, or
 * measured, at init or later. The network is TCP, unless
 * DICOMM_TRANSPORTS says otherwise (tests/vm). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/capture.h"
#include "tests/support/job.h"
#include "tests/support/runner.h"

#define RANKS 3
#define MOST_RANKS 5

struct files {
	const char *of[MOST_RANKS]; /* NULL: none */
	dicomm_result_t status;
	const char *words; /* of the error; NULL: links are unlike */
};

/* Before anything of the library is used. */
static void set_up(const struct job_rank *me, const struct files *f)
{
	const char *top = getenv("srcdir");
	char text[512];

	snprintf(text, sizeof(text), "host%d", me->rank);
	setenv("DICOMM_HOSTID", text, 1);
	setenv("DICOMM_SOCKET_IFNAME", "lo", 1);
	if (!f->of[me->rank])
		return;
	snprintf(text, sizeof(text), "%s/tests/topo/%s", top ? top : ".",
		 f->of[me->rank]);
	setenv("DICOMM_TOPO_FILE", text, 1);
}

static void meet(struct job_rank *me)
{
	const struct files *f = me->arg;
	char text[2048];
	dicomm_result_t status;

	set_up(me, f);
	status =
		dicomm_comm_init_rank(&me->comm, me->ranks, job_id(), me->rank);
	if (f->status != DICOMM_SUCCESS) {
		job_refused(status, f->status, "comm_init_rank", f->words);
		return;
	}
	job_expect(status, DICOMM_SUCCESS, "comm_init_rank");
	JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", 16 << 20,
				    DICOMM_FLOAT32, text, sizeof(text)));
	/* It would be chosen between three hosts that are alike. */
	JOB_CHECK(!strstr(text, "* ring"), "rank %d:\n%s", me->rank, text);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

#define UNEVEN "two_fast_one_slow.json" /* of three hosts */

static const struct files cases[] = {
	{.of = {UNEVEN, UNEVEN, UNEVEN}},
	{.of = {UNEVEN, NULL, NULL}},
	/* Of a file that fits no communicator of three hosts. */
	{.of = {"one_fast.json", "one_fast.json", "one_fast.json"},
	 .status = DICOMM_ERR_INVALID_ARGUMENT,
	 .words = "no node is called"},
	{.of = {UNEVEN, UNEVEN, "one_fast.json"},
	 .status = DICOMM_ERR_INVALID_USAGE,
	 .words = "DICOMM_TOPO_FILE of rank 2"},
	{.of = {NULL, UNEVEN, NULL},
	 .status = DICOMM_ERR_INVALID_USAGE,
	 .words = "DICOMM_TOPO_FILE of rank 1"},
};

START_TEST(ranks_end_with_one_table_or_a_named_error)
{
	job_run(&(struct job){.run = meet,
			      .arg = &cases[_i],
			      .ranks = RANKS,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 40});
}
END_TEST

/* ---- without a file ---- */

#define LARGE (1 << 22)

/* Of what links set the time of, and not how fast a core adds. */
static void explain(struct job_rank *me, char *text, size_t len)
{
	JOB_TRY(dicomm_comm_explain(me->comm, "allgather", LARGE,
				    DICOMM_FLOAT32, text, len));
}

/* What each has written of its choice. */
static void check_alike(const struct job_rank *me, char (*text)[2048])
{
	JOB_CHECK(!strcmp(text[0], text[me->rank]), "rank 0:\n%s\nrank %d:\n%s",
		  text[0], me->rank, text[me->rank]);
}

static uint64_t connected(const struct job_rank *me)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};

	JOB_TRY(dicomm_comm_stats(me->comm, &stats));
	return stats.connected_peers;
}

struct measured {
	const char *probe;
	const char *file; /* NULL: none */
	bool measures;    /* expected */
};

static const struct measured measured[] = {
	{.probe = "off"},
	{.probe = "auto", .measures = true},
	{.probe = "auto", .file = "no_rates.json", .measures = true},
	{.probe = "off", .file = "no_rates.json"},
};

/* All of them explain their choice by the same figures. */
static void measure(struct job_rank *me)
{
	const struct measured *m = me->arg;
	struct files files = {
		.of = {m->file, m->file, m->file, m->file, m->file}};
	char(*text)[2048] = job_board();

	set_up(me, &files);
	setenv("DICOMM_PROBE", m->probe, 1);
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	JOB_CHECK(m->measures == (connected(me) > 0),
		  "rank %d: %llu peers after init", me->rank,
		  (unsigned long long)connected(me));
	explain(me, text[me->rank], sizeof(text[0]));
	job_barrier();
	check_alike(me, text);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(ranks_measure_and_have_one_table)
{
	job_run(&(struct job){.run = measure,
			      .arg = &measured[_i],
			      .ranks = MOST_RANKS,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 40});
}
END_TEST

/* Whether links are measured is nothing that a rank may decide for itself:
 * others would wait for it. */
static void quarrel(struct job_rank *me)
{
	static const struct files none = {.words = ""};
	const char *const *probe = me->arg;

	set_up(me, &none);
	setenv("DICOMM_PROBE", probe[me->rank], 1);
	JOB_REFUSED(
		dicomm_comm_init_rank(&me->comm, me->ranks, job_id(), me->rank),
		DICOMM_ERR_INVALID_USAGE, "has DICOMM_PROBE=");
}

static const char *const unlike[][RANKS] = {
	{"off", "on", "auto"},
	{"on", "auto", "off"},
	{"auto", "auto", "off"},
	{"off", "auto", "auto"},
};

START_TEST(ranks_that_measure_unlike_are_named)
{
	job_run(&(struct job){.run = quarrel,
			      .arg = unlike[_i],
			      .ranks = RANKS,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 20});
}
END_TEST

/* Of rank 1; the others have all that is needed. */
struct hurry {
	int timeout_ms;
	const char *bootstrap_s;
	bool measures; /* expected */
};

static const struct hurry hurries[] = {
	{.timeout_ms = 200, .bootstrap_s = "60"},
	{.timeout_ms = 5000, .bootstrap_s = "2"},
	{.timeout_ms = 5000, .bootstrap_s = "60", .measures = true},
};

/* A rank that may not wait for so long. */
static void hurry(struct job_rank *me)
{
	static const struct files none = {.words = ""};
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	const struct hurry *h = me->arg;

	set_up(me, &none);
	config.timeout_ms = 5000;
	if (me->rank == 1) {
		config.timeout_ms = h->timeout_ms;
		setenv("DICOMM_BOOTSTRAP_TIMEOUT", h->bootstrap_s, 1);
	}
	JOB_TRY(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
					     me->rank, &config));
	JOB_CHECK(h->measures == (connected(me) > 0), "rank %d: %llu peers",
		  me->rank, (unsigned long long)connected(me));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(a_short_timeout_leaves_no_time_to_measure)
{
	job_run(&(struct job){.run = hurry,
			      .arg = &hurries[_i],
			      .ranks = RANKS,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none", "DICOMM_PROBE=on"},
			      .timeout_s = 40});
}
END_TEST

/* ---- communicators made of others ---- */

/* Which ranks go on together, and how. */
struct part {
	const char *probe;      /* DICOMM_PROBE of all */
	const char *file;       /* NULL: none, so the links are measured */
	const char *transports; /* of the part; NULL: as before */
	bool shrinks;           /* else it is split off */
	bool measures;          /* expected */
	/* The transports of the part are not those of the whole, by which its
	 * messages leave a host all the same: it measures only if the whole
	 * used others (tests/vm). */
	bool same_wire;
};

/* The last rank is left out, and the others change places. */
static dicomm_comm_t go_on(const struct job_rank *me, const struct part *p)
{
	bool is_out = me->rank == me->ranks - 1;
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t comm = NULL;
	int out = me->ranks - 1;

	config.transports = p->transports;
	if (!p->shrinks)
		JOB_TRY(dicomm_comm_split(me->comm,
					  is_out ? DICOMM_SPLIT_NOCOLOR : 0,
					  -me->rank, &comm, &config));
	else if (!is_out)
		JOB_TRY(dicomm_comm_shrink(me->comm, &out, 1, &comm, &config));
	return comm;
}

/* What is measured goes over connections, which nothing else has made yet; and
 * all explain their choice by the same figures. */
static void inherit(struct job_rank *me)
{
	const struct part *p = me->arg;
	struct files files = {.of = {p->file, p->file, p->file}};
	char(*text)[2048] = job_board();
	bool measures = p->same_wire ? !job_uses("tcp") : p->measures;
	dicomm_comm_t whole;

	set_up(me, &files);
	setenv("DICOMM_PROBE", p->probe, 1);
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	JOB_CHECK((connected(me) > 0) == !p->file, "rank %d: %llu peers",
		  me->rank, (unsigned long long)connected(me));
	whole = me->comm;
	me->comm = go_on(me, p);
	if (me->comm) {
		JOB_CHECK((connected(me) > 0) == measures,
			  "rank %d: %llu peers of the part", me->rank,
			  (unsigned long long)connected(me));
		explain(me, text[me->rank], sizeof(text[0]));
	}
	job_barrier();
	if (me->comm)
		check_alike(me, text);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	JOB_TRY(dicomm_comm_destroy(whole));
	me->comm = NULL;
}

static const struct part parts[] = {
	{.probe = "auto"},
	{.probe = "auto", .shrinks = true},
	{.probe = "on", .measures = true},
	{.probe = "auto", .transports = "tcp", .same_wire = true},
	/* Its nodes have no names, and are more than those of the part. */
	{.probe = "auto", .file = UNEVEN, .shrinks = true},
};

START_TEST(what_is_known_is_not_measured_again)
{
	job_run(&(struct job){.run = inherit,
			      .arg = &parts[_i],
			      .ranks = RANKS,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 60});
}
END_TEST

/* Communicators by id, one after the other. Rank r is on host r % 2, but the
 * last one is alone on a third one. */
struct meeting {
	unsigned members; /* bit r: rank r */
	bool measures;    /* expected with DICOMM_PROBE=auto */
};

static const struct meeting meetings[] = {
	{.members = 0x03, .measures = true},
	{.members = 0x03},
	/* Ranks 2 and 3 are told, and know it from then on. */
	{.members = 0x0f},
	{.members = 0x0c},
	{.members = 0x13, .measures = true},
	{.members = 0x18},
	/* Rank 1 has newer rates than rank 2. */
	{.members = 0x06},
};
#define MEETINGS (sizeof(meetings) / sizeof(*meetings))

struct rates_board {
	dicomm_unique_id_t id;
	char rates[MEETINGS][120];
};

/* What this process, as rank 0, has last told of rates. */
static void read_rates(char *rates, size_t len)
{
	static const char words[] = " hosts (Gbit/s):";
	const char *at = capture_text(), *last = NULL;

	while ((at = strstr(at, words)))
		last = at += sizeof(words) - 1;
	JOB_CHECK(last, "no%s in: %s", words, capture_text());
	snprintf(rates, len, "%.*s", (int)strcspn(last, "\n"), last);
}

static void meet_once(struct job_rank *me, const struct meeting *m)
{
	bool measures = m->measures || !strcmp(me->arg, "on");
	struct rates_board *board = job_board();
	int first = __builtin_ctz(m->members);
	unsigned lower = m->members & ((1u << me->rank) - 1);
	unsigned host = me->rank == 4 ? 0x10 : me->rank % 2 ? 0x0a : 0x05;
	bool is_member = m->members >> me->rank & 1;

	if (me->rank == first)
		JOB_TRY(dicomm_get_unique_id(&board->id));
	job_barrier();
	if (is_member) {
		JOB_TRY(dicomm_comm_init_rank(
			&me->comm, __builtin_popcount(m->members), board->id,
			__builtin_popcount(lower)));
		/* By the lowest rank of each host. */
		JOB_CHECK((connected(me) > 0) == (measures && !(lower & host)),
			  "rank %d, meeting %td: %llu peers", me->rank,
			  m - meetings, (unsigned long long)connected(me));
		if (me->rank == first)
			read_rates(board->rates[m - meetings],
				   sizeof(board->rates[0]));
		JOB_TRY(dicomm_comm_destroy(me->comm));
		me->comm = NULL;
	}
	job_barrier();
}

static void meet_often(struct job_rank *me)
{
	const struct rates_board *board = job_board();
	char host[8];

	snprintf(host, sizeof(host), "host%d", me->rank < 4 ? me->rank % 2 : 2);
	setenv("DICOMM_HOSTID", host, 1);
	setenv("DICOMM_SOCKET_IFNAME", "lo", 1);
	setenv("DICOMM_PROBE", me->arg, 1);
	capture_start();
	for (size_t i = 0; i < MEETINGS; i++)
		meet_once(me, &meetings[i]);
	for (int i = 1; i < 4 && !strcmp(me->arg, "auto"); i++)
		JOB_CHECK(!strcmp(board->rates[i], board->rates[0]),
			  "meeting %d:%s, before:%s", i, board->rates[i],
			  board->rates[0]);
}

START_TEST(what_a_process_knows_is_not_measured_again)
{
	job_run(&(struct job){.run = meet_often,
			      .arg = _i ? "on" : "auto",
			      .ranks = 5,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=info"},
			      .timeout_s = 60});
}
END_TEST

/* A part of unlike links is not like another one. */
static void take_two(struct job_rank *me)
{
	static const struct files files = {.of = {UNEVEN, UNEVEN, UNEVEN}};
	char(*text)[2048] = job_board();
	dicomm_comm_t part;

	set_up(me, &files);
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	for (int out = 0; out < me->ranks; out++) {
		dicomm_comm_t whole = me->comm;

		JOB_TRY(dicomm_comm_split(
			whole, me->rank == out ? DICOMM_SPLIT_NOCOLOR : 0,
			me->rank, &part, NULL));
		me->comm = part;
		if (part)
			explain(me, text[out], sizeof(text[0]));
		JOB_TRY(dicomm_comm_destroy(part));
		me->comm = whole;
		job_barrier();
	}
	/* The last one is slow. */
	JOB_CHECK(!strcmp(text[0], text[1]), "%s\n%s", text[0], text[1]);
	JOB_CHECK(strcmp(text[0], text[2]) != 0, "%s", text[0]);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(a_part_has_the_rates_of_its_hosts)
{
	job_run(&(struct job){.run = take_two,
			      .ranks = RANKS,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 40});
}
END_TEST

/* ---- links that change ---- */

#define SMALL (1 << 18)

/* A rank that is late must not pass for a slow link. */
static void allreduces(struct job_rank *me, float *data, size_t count,
		       int times)
{
	for (int k = 0; k < times; k++) {
		if (k % me->ranks == me->rank)
			job_sleep_ms(2);
		for (size_t i = 0; i < count; i++)
			data[i] = (float)(i % 1000);
		JOB_TRY(dicomm_allreduce(data, data, count, DICOMM_FLOAT32,
					 DICOMM_SUM, me->comm, NULL));
		for (size_t i = 0; i < count; i++)
			JOB_CHECK(data[i] ==
					  (float)(i % 1000) * (float)me->ranks,
				  "rank %d: element %zu of operation %d is %g",
				  me->rank, i, k, data[i]);
	}
}

/*
 * By the file, time is latency only, so operations that are 16 times as long
 * as those before are predicted to take as long as they, and do not: as if the
 * links had become slower.
 */
static void drift(struct job_rank *me)
{
	static const struct files wrong = {.of = {"latency_only.json",
						  "latency_only.json",
						  "latency_only.json"}};
	char(*text)[2048] = job_board();
	float *data = calloc(LARGE, sizeof(*data));
	char before[2048], after[2048];
	bool on = me->arg;

	set_up(me, &wrong);
	setenv("DICOMM_DRIFT", on ? "1" : "0", 1);
	JOB_CHECK(data, "no memory");
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	explain(me, before, sizeof(before));
	allreduces(me, data, SMALL, 12);
	explain(me, after, sizeof(after));
	JOB_CHECK(!strcmp(before, after), "rank %d: changed from\n%s\nto\n%s",
		  me->rank, before, after);
	allreduces(me, data, LARGE, 13);
	explain(me, text[me->rank], sizeof(text[0]));
	job_barrier();
	check_alike(me, text);
	JOB_CHECK(on == !!strcmp(before, text[0]), "rank %d: from\n%s\nto\n%s",
		  me->rank, before, text[0]);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	free(data);
}

START_TEST(a_new_table_is_adopted_by_all)
{
	job_run(&(struct job){.run = drift,
			      .arg = _i ? "on" : NULL,
			      .ranks = RANKS,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 60});
}
END_TEST

/* Of ever another root, from which and to which data go in turn. */
static void rooted(struct job_rank *me, float *data, int late_ms, int times)
{
	for (int k = 0; k < times; k++) {
		int root = k % me->ranks;
		float expected = 0;

		for (int r = 0; r < me->ranks; r++)
			expected += k & 1 ? (float)r : 0;
		if (!(k & 1))
			expected = (float)root;
		for (size_t i = 0; i < SMALL; i++)
			data[i] = (float)me->rank;
		/* Whom others wait for. */
		if ((root + (k & 1)) % me->ranks == me->rank)
			job_sleep_ms(late_ms);
		if (k & 1)
			JOB_TRY(dicomm_reduce(data, data, SMALL, DICOMM_FLOAT32,
					      DICOMM_SUM, root, me->comm,
					      NULL));
		else
			JOB_TRY(dicomm_broadcast(data, data, SMALL,
						 DICOMM_FLOAT32, root, me->comm,
						 NULL));
		for (size_t i = 0; i < SMALL && (!(k & 1) || root == me->rank);
		     i++)
			JOB_CHECK(data[i] == expected,
				  "rank %d: element %zu of operation %d is %g",
				  me->rank, i, k, data[i]);
	}
}

/* By the file, links are much faster than they are; or so slow that what each
 * operation takes is as predicted, while a rank that is late takes longer. */
static void drift_rooted(struct job_rank *me)
{
	bool fast = me->arg;
	const char *file = fast ? "said_fast.json" : "said_slow.json";
	const struct files wrong = {.of = {file, file, file}};
	char(*text)[2048] = job_board();
	float *data = calloc(SMALL, sizeof(*data));
	char before[2048];

	set_up(me, &wrong);
	JOB_CHECK(data, "no memory");
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	explain(me, before, sizeof(before));
	rooted(me, data, fast ? 0 : 400, 13);
	explain(me, text[me->rank], sizeof(text[0]));
	job_barrier();
	check_alike(me, text);
	JOB_CHECK(fast == !!strcmp(before, text[0]),
		  "rank %d: from\n%s\nto\n%s", me->rank, before, text[0]);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	free(data);
}

START_TEST(operations_with_a_root_tell_of_links_and_not_of_ranks)
{
	job_run(&(struct job){.run = drift_rooted,
			      .arg = _i ? "fast" : NULL,
			      .ranks = RANKS,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 60});
}
END_TEST

/* Without its memory, ranks of one machine are as far from each other as hosts
 * are. */
static void part(struct job_rank *me)
{
	char(*text)[2048] = job_board(), other[2048];
	const char *words;

	setenv("DICOMM_SOCKET_IFNAME", "lo", 1);
	if (me->arg)
		setenv("DICOMM_TRANSPORTS", job_uses("verbs") ? "verbs" : "tcp",
		       1);
	words = job_uses("shm") ? "not for 3 ranks on 1 node\n"
				: "not for 3 ranks on 3 nodes";
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", LARGE,
				    DICOMM_FLOAT32, text[me->rank],
				    sizeof(text[0])));
	job_barrier();
	JOB_CHECK(strstr(text[me->rank], words), "rank %d: no %s in:\n%s",
		  me->rank, words, text[me->rank]);
	check_alike(me, text);
	JOB_TRY(dicomm_explain("allreduce", me->ranks, LARGE, other,
			       sizeof(other)));
	JOB_CHECK(strstr(other, words), "of no communicator: no %s in:\n%s",
		  words, other);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(ranks_of_one_machine_may_be_apart)
{
	job_run(&(struct job){.run = part,
			      .arg = _i ? "apart" : NULL,
			      .ranks = RANKS,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 40});
}
END_TEST

/* Of a cluster that is not there. */
static void plan(struct job_rank *me)
{
	static const struct files chips = {.of = {"four_chips.json"}};
	char text[2048];

	set_up(me, &chips);
	JOB_TRY(dicomm_explain("allreduce", 1024, 1 << 30, text, sizeof(text)));
	JOB_CHECK(strstr(text, "* hierarchical"), "%s", text);
	JOB_REFUSED(
		dicomm_explain("allreduce", 1025, 1 << 30, text, sizeof(text)),
		DICOMM_ERR_INVALID_ARGUMENT, "the cluster has 1024");
}

START_TEST(a_cluster_that_nobody_has_is_explained)
{
	job_run(&(struct job){.run = plan,
			      .ranks = 1,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 40});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("topology");
	TCase *tc = tcase_create("all");

	setenv("DICOMM_TRANSPORTS", "shm,tcp", 0);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, ranks_end_with_one_table_or_a_named_error, 0,
			    sizeof(cases) / sizeof(*cases));
	tcase_add_loop_test(tc, ranks_measure_and_have_one_table, 0,
			    sizeof(measured) / sizeof(*measured));
	tcase_add_loop_test(tc, ranks_that_measure_unlike_are_named, 0,
			    sizeof(unlike) / sizeof(*unlike));
	tcase_add_loop_test(tc, a_short_timeout_leaves_no_time_to_measure, 0,
			    sizeof(hurries) / sizeof(*hurries));
	tcase_add_loop_test(tc, what_is_known_is_not_measured_again, 0,
			    sizeof(parts) / sizeof(*parts));
	tcase_add_loop_test(tc, what_a_process_knows_is_not_measured_again, 0,
			    2);
	tcase_add_test(tc, a_part_has_the_rates_of_its_hosts);
	tcase_add_loop_test(tc, a_new_table_is_adopted_by_all, 0, 2);
	tcase_add_loop_test(
		tc, operations_with_a_root_tell_of_links_and_not_of_ranks, 0,
		2);
	tcase_add_loop_test(tc, ranks_of_one_machine_may_be_apart, 0, 2);
	tcase_add_test(tc, a_cluster_that_nobody_has_is_explained);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
