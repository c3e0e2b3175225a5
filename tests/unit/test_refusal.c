/* SPDX-License-Identifier: BSD-3-Clause */
/* Meetings that fail, or that somebody disturbs. */
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/net/client.h"
#include "src/boot/control/control.h"
#include "src/boot/net/listener.h"
#include "src/boot/net/handshake.h"
#include "src/boot/control/rank_info.h"
#include "src/boot/control/id.h"
#include "src/boot/control/id_server.h"
#include "src/boot/control/join.h"
#include "src/boot/net/loop.h"
#include "tests/support/capture.h"
#include "tests/support/meet.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

/* What a process may lack its core; who was not told would wait for longer. */
#define SOON_MS (4000 + starved_ms())

static void check_all(const struct meet *m, dicomm_result_t status,
		      const char *word)
{
	for (int i = 0; i < m->ranks; i++) {
		if (m->absent[i])
			continue;
		ck_assert_msg(m->rank[i].opened == status, "rank %d: %d %s", i,
			      (int)m->rank[i].opened, m->rank[i].error);
		ck_assert_msg(!word || strstr(m->rank[i].error, word),
			      "rank %d: no \"%s\" in: %s", i, word,
			      m->rank[i].error);
	}
}

static void gather_once(struct meet_rank *r)
{
	int all[MEET_MAX], mine = r->rank;

	ck_assert_int_eq(
		control_allgather(r->control, &mine, all, sizeof(mine), 10000),
		DICOMM_SUCCESS);
	for (int i = 0; i < r->meet->ranks; i++)
		ck_assert_int_eq(all[i], i);
}

/* --- who does not come ---------------------------------------------------- */

static const struct {
	int ranks;
	bool absent[MEET_MAX];
	const char *text;
} missing[] = {
	{3, {[2] = true}, "rank 2 of 3 did not come within 700 ms"},
	{3, {[0] = true}, "rank 0 of 3 did not come"},
	{8,
	 {[1] = true, [4] = true, [5] = true, [6] = true},
	 "ranks 1, 4-6 of 8 did not come"},
	{2, {[0] = true}, "rank 0 of 2 did not come"},
};

START_TEST(who_does_not_come_is_named)
{
	struct meet *m = meet_create(_i & 1 ? MEET_PROCESSES : MEET_THREADS,
				     missing[_i / 2].ranks);

	memcpy(m->absent, missing[_i / 2].absent, sizeof(m->absent));
	m->timeout_ms = 700;
	meet_run(m);
	check_all(m, DICOMM_ERR_TIMEOUT, missing[_i / 2].text);
	for (int i = 0; i < m->ranks; i++)
		ck_assert_uint_lt(m->rank[i].open_ms, 700 + SOON_MS);
}
END_TEST

START_TEST(who_comes_late_is_told_why)
{
	struct meet *m = meet_create(MEET_THREADS, 3);
	struct control_config config = {
		.rank = 2, .ranks = 3, .id = &m->id, .timeout_ms = 5000};
	struct control *c;

	m->absent[2] = true;
	m->timeout_ms = 300;
	meet_run(m);
	ck_assert_int_eq(control_open(&config, &c), DICOMM_ERR_TIMEOUT);
	ck_assert_msg(strstr(log_last_error(), "rank 2 of 3 did not come"),
		      "%s", log_last_error());
}
END_TEST

static void be_impatient(struct meet_rank *r, struct control_config *config)
{
	if (r->rank == 1)
		config->timeout_ms = 300;
}

/* The others need not wait for their own time-outs. */
START_TEST(one_time_out_ends_the_id_server)
{
	struct meet *m = meet_create(MEET_THREADS, 4);

	m->absent[3] = true;
	m->adjust = be_impatient;
	meet_run(m);
	check_all(m, DICOMM_ERR_TIMEOUT, "rank 3 of 4 did not come within 300");
	ck_assert_uint_lt(m->rank[0].open_ms, 300 + SOON_MS);
}
END_TEST

START_TEST(a_meeting_can_be_cancelled)
{
	struct meet *m = meet_create(MEET_THREADS, 3);

	m->absent[2] = true;
	meet_start(m);
	meet_sleep_ms(200);
	atomic_store(&m->rank[1].cancelled, true);
	meet_wait(m);
	ck_assert_int_eq(m->rank[1].opened, DICOMM_ERR_ABORTED);
	ck_assert_uint_lt(m->rank[1].open_ms, 200 + SOON_MS);
	ck_assert_int_eq(m->rank[0].opened, DICOMM_ERR_REMOTE);
	ck_assert_ptr_nonnull(strstr(m->rank[0].error, "rank 1"));
	ck_assert_ptr_nonnull(strstr(m->rank[0].error, "gave up"));
}
END_TEST

START_TEST(nobody_listens)
{
	dicomm_unique_id_t id = {
		.text = "dicomm1:127.0.0.1:1:"
			"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"};
	struct control_config config = {
		.rank = 1, .ranks = 2, .id = &id, .timeout_ms = 300};
	uint64_t begin = meet_now_ms();
	struct control *c;

	ck_assert_int_eq(control_open(&config, &c), DICOMM_ERR_TIMEOUT);
	ck_assert_uint_lt(meet_now_ms() - begin, 300 + SOON_MS);
	ck_assert_msg(strstr(log_last_error(), "127.0.0.1:1 within 300 ms") &&
			      strstr(log_last_error(), "refused"),
		      "%s", log_last_error());
}
END_TEST

START_TEST(an_unused_id_is_dropped)
{
	dicomm_unique_id_t id[20];

	setenv("DICOMM_BOOTSTRAP_TIMEOUT", "1", 1);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(id_create(&id[i]), DICOMM_SUCCESS);
	ck_assert_int_eq(meet_sockets(), 20);
	MEET_UNTIL(meet_sockets() == 0);
}
END_TEST

/* --- who is not alike ----------------------------------------------------- */

static int unlike; /* what rank 2 says */

static void say_unlike(struct rank_info *h)
{
	if (h->rank != 2)
		return;
	switch (unlike) {
	case 0:
		h->abi = 99;
		break;
	case 1:
		h->version = 120304;
		break;
	case 2:
		h->byte_order = 0x04030201;
		break;
	case 3:
		h->pointer_bytes = 4;
		break;
	case 4:
		snprintf(h->features, sizeof(h->features), "control 77");
		break;
	case 5:
		h->ranks = 4;
		break;
	case 6:
		h->config_hash ^= 1;
		snprintf(h->config, sizeof(h->config),
			 "DICOMM_ALGO=ring DICOMM_SHM_SLOTS=64");
		break;
	}
}

#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)
#define OWN_VERSION                   \
	TEXT_OF(DICOMM_VERSION_MAJOR) \
	"." TEXT_OF(DICOMM_VERSION_MINOR) "." TEXT_OF(DICOMM_VERSION_PATCH)

static const char *const unlike_words[][3] = {
	{"ABI version", "has 99", "has 1"},
	{"library version", "has 12.3.4", "has " OWN_VERSION},
	{"byte order", "has big", "has little"},
	{"pointer size", "has 4", "has 8"},
	{"build", "has control 77", "has control 8 plan 1 shm 3 window 2"},
	{"number of ranks", "has 4", "has 3"},
	{"setting", "DICOMM_SHM_SLOTS=64", "DICOMM_SHM_SLOTS=16"},
};
#define UNLIKES (int)(sizeof(unlike_words) / sizeof(*unlike_words))

static dicomm_result_t gather_by_file(const void *mine, void *all, size_t len,
				      void *ctx)
{
	struct meet_rank *r = ctx;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint8_t board[8][1024];
	static int posted;
	bool complete;

	ck_assert_uint_le(len, sizeof(board[0]));
	pthread_mutex_lock(&lock);
	memcpy(board[r->rank], mine, len);
	posted++;
	pthread_mutex_unlock(&lock);
	do {
		meet_sleep_ms(1);
		pthread_mutex_lock(&lock);
		complete = posted == r->meet->ranks;
		for (int i = 0; i < r->meet->ranks; i++)
			memcpy((uint8_t *)all + (size_t)i * len, board[i], len);
		pthread_mutex_unlock(&lock);
	} while (!complete);
	return DICOMM_SUCCESS;
}

static void use_callback(struct meet_rank *r, struct control_config *config)
{
	config->id = NULL;
	config->allgather = gather_by_file;
	config->allgather_ctx = r;
}

START_TEST(who_is_unlike_is_refused_on_both_sides)
{
	struct meet *m = meet_create(MEET_THREADS, 3);

	unlike = _i % UNLIKES;
	rank_info_test_hook = say_unlike;
	if (_i >= UNLIKES)
		m->adjust = use_callback;
	meet_run(m);
	check_all(m, DICOMM_ERR_INVALID_USAGE, "rank 2 (");
	for (int k = 0; k < 3; k++)
		check_all(m, DICOMM_ERR_INVALID_USAGE, unlike_words[unlike][k]);
	for (int i = 0; i < m->ranks; i++)
		ck_assert_uint_lt(m->rank[i].open_ms, SOON_MS);
}
END_TEST

static void be_rank_1(struct meet_rank *r, struct control_config *config)
{
	if (r->rank == 2)
		config->rank = 1;
}

START_TEST(a_rank_that_comes_twice_is_named)
{
	struct meet *m = meet_create(MEET_PROCESSES, 3);
	char pid[32];

	m->adjust = be_rank_1;
	meet_run(m);
	check_all(m, DICOMM_ERR_INVALID_USAGE, "rank 1 came twice");
	for (int i = 1; i < 3; i++) {
		snprintf(pid, sizeof(pid), "pid %d", (int)m->rank[i].pid);
		check_all(m, DICOMM_ERR_INVALID_USAGE, pid);
	}
}
END_TEST

/* --- who has no business here --------------------------------------------- */

static void spoil_secret(struct meet_rank *r, struct control_config *config)
{
	static dicomm_unique_id_t id;
	char *secret;

	if (r->rank != 2)
		return;
	id = *config->id;
	secret = strrchr(id.text, ':') + 1;
	secret[3] = secret[3] == 'A' ? 'B' : 'A';
	config->id = &id;
	config->rank = 1;
}

/* It has a rank's number, and yet the true rank 1 is not disturbed. */
START_TEST(a_wrong_secret_is_refused)
{
	struct meet *m = meet_create(MEET_PROCESSES, 2);
	struct meet_rank liar = {.meet = m, .rank = 2};
	struct control_config config = {.ranks = 2, .timeout_ms = 500};
	struct control *c;

	ck_assert_int_eq(id_create(&m->id), DICOMM_SUCCESS);
	config.id = &m->id;
	spoil_secret(&liar, &config);
	ck_assert_int_eq(control_open(&config, &c), DICOMM_ERR_INVALID_USAGE);
	ck_assert_msg(strstr(log_last_error(), "wrong secret"), "%s",
		      log_last_error());
	ck_assert_msg(strstr(log_last_error(), "has not proved"), "%s",
		      log_last_error());
	m->run = gather_once;
	meet_run(m);
	check_all(m, DICOMM_SUCCESS, NULL);
}
END_TEST

static int connect_to(const dicomm_unique_id_t *id)
{
	char address[SOCK_NAME];
	uint8_t key[AUTH_KEY];
	struct sock_address a;
	const char *why;
	int fd;

	ck_assert_int_eq(id_parse(id, address, key), DICOMM_SUCCESS);
	ck_assert(sock_resolve(address, &a, &why));
	fd = sock_create(&a);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(sock_connect(fd, &a, clock_ns() + 5000000000u, NULL),
			 0);
	return fd;
}

/* Read until the other side ends it; false after ms. */
static bool is_ended(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t end = meet_now_ms() + (uint64_t)ms;
	char buf[4096];
	ssize_t n;

	while (meet_now_ms() < end) {
		poll(&p, 1, 10);
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return true;
	}
	return false;
}

static void say(int fd, const void *data, size_t len)
{
	ck_assert_int_eq(send(fd, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void say_frame(int fd, uint16_t mark, uint16_t type, uint32_t len,
		      size_t sent)
{
	uint8_t frame[4096] = {(uint8_t)mark, (uint8_t)(mark >> 8),
			       (uint8_t)type, (uint8_t)(type >> 8)};

	for (int i = 0; i < 4; i++)
		frame[4 + i] = (uint8_t)(len >> 8 * i);
	say(fd, frame, 8 + sent);
}

static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/* What strangers say; true if they are to be sent away at once. */
static bool say_nonsense(int fd, int what)
{
	uint8_t bytes[512];

	switch (what) {
	case 0:
		return false; /* nothing */
	case 1:
		say(fd, http, sizeof(http) - 1);
		return true;
	case 2:
		auth_random(bytes, sizeof(bytes));
		bytes[0] = 0;
		say(fd, bytes, sizeof(bytes));
		return true;
	case 3: /* a frame of 2 GiB */
		say_frame(fd, 0xd1c0, FRAME_PROOF, 0x80000000u, 0);
		return true;
	case 4: /* larger than strangers may send */
		say_frame(fd, 0xd1c0, FRAME_PROOF, HANDSHAKE_LIMIT + 1, 0);
		return true;
	case 5: /* half a frame */
		say_frame(fd, 0xd1c0, FRAME_PROOF, 64, 20);
		return false;
	case 6: /* half a header */
		say(fd, "\xc0\xd1\x02", 3);
		return false;
	case 7: /* not its turn */
		say_frame(fd, 0xd1c0, FRAME_JOIN, 64, 64);
		return true;
	case 8: /* too short for a proof */
		say_frame(fd, 0xd1c0, FRAME_PROOF, 12, 12);
		return true;
	case 9: /* a proof of nothing */
		say_frame(fd, 0xd1c0, FRAME_PROOF, 96, 96);
		return true;
	case 10: /* a type there is not */
		say_frame(fd, 0xd1c0, 4711, 0, 0);
		return true;
	default: /* goes away by itself */
		shutdown(fd, SHUT_RDWR);
		return true;
	}
}

#define NONSENSE 12

static int stranger_lines(void)
{
	return capture_count(" dropped 127.0.0.1:") +
	       capture_count(" refused 127.0.0.1:");
}

/* Those in the lines, and those that the lines count. */
static int strangers_told(void)
{
	static const char *const words[] = {"(and ", "dropped or refused "};
	const char *text;
	int n = stranger_lines();

	for (int i = 0; i < 2; i++)
		for (text = capture_text(); (text = strstr(text, words[i]));) {
			text += strlen(words[i]);
			n += atoi(text);
		}
	return n;
}

START_TEST(strangers_are_dropped_and_disturb_nobody)
{
	struct meet *m = meet_create(MEET_THREADS, 3);
	int fd[2 * NONSENSE];
	bool at_once;

	setenv("DICOMM_DEBUG", "warn", 1);
	capture_start();
	listener_patience_ns = 1500000000u;
	ck_assert_int_eq(id_create(&m->id), DICOMM_SUCCESS);
	for (int i = 0; i < NONSENSE; i++) {
		fd[i] = connect_to(&m->id);
		at_once = say_nonsense(fd[i], i);
		ck_assert_msg(is_ended(fd[i], at_once ? 700 : 100) == at_once,
			      "stranger %d", i);
	}
	/* While some of them still hang about. */
	for (int i = NONSENSE; i < 2 * NONSENSE; i++) {
		fd[i] = connect_to(&m->id);
		say_nonsense(fd[i], i - NONSENSE);
	}
	m->run = gather_once;
	meet_run(m);
	check_all(m, DICOMM_SUCCESS, NULL);
	for (int i = 0; i < NONSENSE; i++)
		close(fd[i]);
	for (int i = NONSENSE; i < 2 * NONSENSE; i++)
		ck_assert(is_ended(fd[i], 10000));
	ck_assert_int_ge(strangers_told(), NONSENSE - 4);
	ck_assert_int_eq(capture_count(" ERROR "), 0);
}
END_TEST

START_TEST(a_silent_stranger_is_dropped_in_time)
{
	dicomm_unique_id_t id;
	int fd[3];

	setenv("DICOMM_DEBUG", "warn", 1);
	capture_start();
	listener_patience_ns = 300000000u;
	ck_assert_int_eq(id_create(&id), DICOMM_SUCCESS);
	for (int i = 0; i < 3; i++) {
		fd[i] = connect_to(&id);
		say_nonsense(fd[i], (const int[]){0, 5, 6}[i]);
	}
	for (int i = 0; i < 3; i++)
		ck_assert(is_ended(fd[i], 10000));
	ck_assert_int_eq(capture_count("did not complete the handshake"), 1);
	id_forget(&id);
	ck_assert_int_eq(strangers_told(), 3);
}
END_TEST

/* Anybody can connect as often as he likes; a line for each fills a disk. */
START_TEST(many_strangers_cost_a_line_a_second)
{
	uint64_t begin = meet_now_ms(), seconds;
	dicomm_unique_id_t id;

	setenv("DICOMM_DEBUG", "warn", 1);
	capture_start();
	ck_assert_int_eq(id_create(&id), DICOMM_SUCCESS);
	for (int i = 0; i < 300; i++) {
		int fd = connect_to(&id);

		say_nonsense(fd, 1 + i % 4);
		ck_assert(is_ended(fd, 5000));
		close(fd);
	}
	id_forget(&id);
	seconds = (meet_now_ms() - begin) / 1000;
	ck_assert_int_eq(strangers_told(), 300);
	ck_assert_msg(stranger_lines() <= (int)seconds + 1, "%d lines in %d s",
		      stranger_lines(), (int)seconds);
}
END_TEST

/* A process that makes an id and may open only so many files. */
static pid_t start_id_server(struct meet *m, rlim_t files)
{
	struct rlimit limit = {files, files};
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		setrlimit(RLIMIT_NOFILE, &limit);
		if (id_create(&m->id) != DICOMM_SUCCESS)
			_exit(1);
		atomic_store(&m->flag[0], 1);
		for (;;)
			pause();
	}
	MEET_UNTIL(atomic_load(&m->flag[0]));
	return pid;
}

/* No descriptors left: the oldest strangers go, and ranks still come through.
 * That is told, once. */
START_TEST(a_crowd_of_strangers_does_not_lock_ranks_out)
{
	struct meet *m = meet_create(MEET_THREADS, 4);
	int fd[200];
	pid_t pid;

	setenv("DICOMM_DEBUG", "warn", 1);
	capture_start();
	pid = start_id_server(m, 40);
	for (int i = 0; i < 200; i++)
		fd[i] = connect_to(&m->id);
	m->run = gather_once;
	meet_run(m);
	check_all(m, DICOMM_SUCCESS, NULL);
	ck_assert(is_ended(fd[0], 5000));
	ck_assert_int_eq(capture_count("accept: Too many open files"), 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

/* Between its proof and its join request a rank does not try again. */
START_TEST(a_crowd_of_strangers_does_not_push_out_who_has_proved_himself)
{
	struct meet *m = meet_create(MEET_THREADS, 2);
	pid_t pid = start_id_server(m, 40);
	struct client_patience p = {.until_ns = clock_ns() + 5000000000u};
	char address[SOCK_NAME], why[FRAME_TEXT];
	uint8_t key[AUTH_KEY];
	struct client *client;
	int fd[100];

	ck_assert_int_eq(id_parse(&m->id, address, key), DICOMM_SUCCESS);
	ck_assert_int_eq(loop_start(), DICOMM_SUCCESS);
	ck_assert_int_eq(client_open(address, key, &p, &client, why),
			 DICOMM_SUCCESS);
	for (int i = 0; i < 100; i++)
		fd[i] = connect_to(&m->id);
	ck_assert(is_ended(fd[0], 5000));
	ck_assert(!is_ended(client->conn.source.fd, 100));
	for (int i = 0; i < 100; i++)
		close(fd[i]);
	client_close(client);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

/* A host of two addresses, as one that has an IPv6 and an IPv4 address. */
int getaddrinfo(const char *restrict host, const char *restrict port,
		const struct addrinfo *restrict hints,
		struct addrinfo **restrict out)
{
	int (*real)(const char *, const char *, const struct addrinfo *,
		    struct addrinfo **);
	int err;

	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	if (strcmp(host, "two.test"))
		return real(host, port, hints, out);
	err = real("127.0.0.2", port, hints, out);
	return err ? err : real("127.0.0.1", port, hints, &(*out)->ai_next);
}

START_TEST(all_addresses_of_a_host_are_tried)
{
	struct client_patience p = {.until_ns = clock_ns() + 5000000000u,
				    .until_it_listens = true};
	char address[SOCK_NAME], name[SOCK_TEXT], why[FRAME_TEXT];
	struct client *client;
	uint8_t key[AUTH_KEY];
	dicomm_unique_id_t id;

	ck_assert_int_eq(id_create(&id), DICOMM_SUCCESS);
	ck_assert_int_eq(id_parse(&id, address, key), DICOMM_SUCCESS);
	ck_assert_int_eq(strncmp(address, "127.0.0.1:", 10), 0);
	snprintf(name, sizeof(name), "two.test:%s", strrchr(address, ':') + 1);
	ck_assert_msg(client_open(name, key, &p, &client, why) ==
			      DICOMM_SUCCESS,
		      "%s", why);
	client_close(client);
	id_forget(&id);
}
END_TEST

/* Ranks 0 and 1 wait; rank 2 has failed before it could join. */
START_TEST(a_rank_that_cannot_join_tells_why)
{
	struct meet *m = meet_create(MEET_THREADS, 3);
	uint64_t begin = meet_now_ms();

	m->absent[2] = true;
	meet_start(m);
	if (_i)
		meet_sleep_ms(200);
	log_error("no such device");
	control_cannot_open(&m->id, 2, 3);
	ck_assert_str_eq(log_last_error(), "no such device");
	meet_wait(m);
	ck_assert_uint_lt(meet_now_ms() - begin, 3000 + starved_ms());
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(m->rank[i].opened, DICOMM_ERR_REMOTE);
		ck_assert_msg(strstr(m->rank[i].error, "rank 2 (") &&
				      strstr(m->rank[i].error,
					     "gave up: no such device"),
			      "%s", m->rank[i].error);
	}
}
END_TEST

/* Without anybody to tell, it does not take long either. */
START_TEST(a_rank_that_cannot_tell_goes_on)
{
	uint64_t begin = meet_now_ms();
	dicomm_unique_id_t id;

	ck_assert_int_eq(id_create(&id), DICOMM_SUCCESS);
	id_forget(&id);
	log_error("no such device");
	control_cannot_open(&id, 1, 2);
	ck_assert_str_eq(log_last_error(), "no such device");
	memset(&id, 'x', sizeof(id));
	control_cannot_open(&id, 1, 2);
	ck_assert_uint_lt(meet_now_ms() - begin, 7000 + starved_ms());
}
END_TEST

/* An address that leads nowhere else is a mistake to be told. */
START_TEST(a_refusal_at_loopback_names_the_variable)
{
	struct control_config config = {.ranks = 2, .timeout_ms = 300};
	uint8_t key[AUTH_KEY] = {1};
	dicomm_unique_id_t id;
	struct control *c;

	ck_assert_int_eq(auth_init(), DICOMM_SUCCESS);
	ck_assert_int_eq(id_format(_i ? "[::1]:1" : "127.0.0.1:1", key, &id),
			 DICOMM_SUCCESS);
	config.id = &id;
	config.rank = 1;
	ck_assert_int_eq(control_open(&config, &c), DICOMM_ERR_TIMEOUT);
	ck_assert_msg(strstr(log_last_error(), "(has rank 0, ") &&
			      strstr(log_last_error(), "DICOMM_SOCKET_IFNAME"),
		      "%s", log_last_error());
}
END_TEST

START_TEST(the_end_of_the_id_server_is_noticed)
{
	struct meet *m = meet_create(MEET_THREADS, 3);
	pid_t pid = start_id_server(m, 100);

	m->absent[2] = true;
	meet_start(m);
	meet_sleep_ms(200);
	kill(pid, SIGKILL);
	meet_wait(m);
	check_all(m, DICOMM_ERR_REMOTE, "the process that made the id");
	ck_assert_uint_lt(m->rank[0].open_ms, 200 + SOON_MS);
	waitpid(pid, NULL, 0);
}
END_TEST

/* --- who knows the secret and sends nonsense ------------------------------ */

static struct client *come_in(const dicomm_unique_id_t *id)
{
	struct client_patience p = {.until_ns = clock_ns() + 5000000000u};
	char address[SOCK_NAME], why[FRAME_TEXT];
	uint8_t key[AUTH_KEY];
	struct client *c;

	ck_assert_int_eq(id_parse(id, address, key), DICOMM_SUCCESS);
	ck_assert_msg(client_open(address, key, &p, &c, why) == DICOMM_SUCCESS,
		      "%s", why);
	return c;
}

static dicomm_result_t next(struct client *c, enum frame_type *type)
{
	struct client *from;
	char why[FRAME_TEXT];
	struct frame_reader in;

	return client_next(c, NULL, clock_ns() + 5000000000u, NULL, &from, type,
			   &in, why);
}

START_TEST(a_broken_join_request_is_refused)
{
	struct meet *m = meet_create(MEET_THREADS, 2);
	enum frame_type type;
	struct frame_writer full, part;
	struct rank_info h;
	struct client *c;

	ck_assert_int_eq(id_create(&m->id), DICOMM_SUCCESS);
	rank_info_self(&h, 0, 2);
	frame_begin(&full, FRAME_JOIN);
	rank_info_put(&full, &h);
	frame_put_text(&full, "127.0.0.1:1");
	for (size_t len = FRAME_HEADER; len < full.len; len += 7) {
		c = come_in(&m->id);
		frame_begin(&part, FRAME_JOIN);
		frame_put_bytes(&part, full.data + FRAME_HEADER,
				len - FRAME_HEADER);
		client_send(c, &part);
		ck_assert_int_eq(next(c, &type), DICOMM_SUCCESS);
		ck_assert_int_eq(type, FRAME_REFUSED);
		client_close(c);
	}
	m->run = gather_once;
	meet_run(m);
	check_all(m, DICOMM_SUCCESS, NULL);
}
END_TEST

START_TEST(a_rank_beyond_the_ranks_is_refused)
{
	static const uint32_t bad[][2] = {
		{2, 2}, {0, 0}, {7, 1u << 31}, {0xffffffff, 0xffffffff}};
	dicomm_unique_id_t id;
	enum frame_type type;
	struct frame_writer out;
	struct rank_info h;
	struct client *c;

	ck_assert_int_eq(id_create(&id), DICOMM_SUCCESS);
	rank_info_self(&h, 0, 2);
	h.rank = bad[_i][0];
	h.ranks = bad[_i][1];
	c = come_in(&id);
	frame_begin(&out, FRAME_JOIN);
	rank_info_put(&out, &h);
	frame_put_text(&out, "");
	frame_put_bytes(&out, &h, AUTH_NONCE);
	client_send(c, &out);
	ck_assert_int_eq(next(c, &type), DICOMM_SUCCESS);
	ck_assert_int_eq(type, FRAME_REFUSED);
	client_close(c);
}
END_TEST

/* A generator of our own: the same frames in every run. */
static uint32_t state;

static uint32_t draw(uint32_t n)
{
	state = state * 1664525u + 1013904223u;
	return (state >> 8) % n;
}

static void send_nonsense(struct client *c)
{
	struct frame_writer out;
	uint32_t words = draw(12), n = draw(60);
	uint8_t bytes[64];

	frame_begin(&out, (enum frame_type)(1 + draw(FRAME_TYPES - 1)));
	/* Numbers that may be ranks, gathers, lengths. */
	for (uint32_t i = 0; i < words; i++)
		frame_put_u32(&out, draw(4) ? draw(4) : draw(1 << 16) * 65521u);
	for (uint32_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)draw(256);
	frame_put_bytes(&out, bytes, n);
	/* These two would end it, as they should. */
	if (out.data[2] != FRAME_BYE && out.data[2] != FRAME_GAVE_UP)
		client_send(c, &out);
}

/* The first all-gather, which control_open() waits for. */
static void send_name(struct client *c)
{
	const char name[RANK_INFO_WHERE] = "here pid 1";
	struct frame_writer out;

	frame_begin(&out, FRAME_GATHER);
	frame_put_u64(&out, 1);
	frame_put_u64(&out, sizeof(name));
	frame_put_bytes(&out, name, sizeof(name));
	client_send(c, &out);
}

static bool answer(void *ctx, int peer, uint32_t class, uint64_t number,
		   uint32_t *signature, char *text, size_t len)
{
	(void)ctx;
	(void)peer;
	*signature = class + (uint32_t)number;
	snprintf(text, len, "yes");
	return true;
}

static void answer_queries(struct meet_rank *r, struct control_config *config)
{
	(void)r;
	config->events.query = answer;
}

static void query_others_until_told(struct meet_rank *r)
{
	uint32_t signature;
	char text[64];
	bool known;

	MEET_UNTIL(atomic_load(&r->meet->flag[0]));
	/* The hub and its honest peers have kept their heads. */
	for (int i = 0; i < 3; i++) {
		if (i == r->meet->flag[1])
			continue;
		ck_assert_int_eq(control_query(r->control, i, 4, 5, 5000,
					       &known, &signature, text,
					       sizeof(text)),
				 DICOMM_SUCCESS);
		ck_assert_uint_eq(signature, 9);
	}
	atomic_fetch_add(&r->meet->flag[2], 1);
	MEET_UNTIL(atomic_load(&r->meet->flag[2]) == 2);
}

START_TEST(nonsense_of_a_rank_does_no_harm)
{
	struct meet *m = meet_create(MEET_THREADS, 3);
	struct join_result joined;
	struct control_config config = {.ranks = 3, .timeout_ms = 10000};
	int rank = _i & 1;

	state = (uint32_t)_i;
	config.rank = rank;
	m->absent[rank] = true;
	m->flag[1] = rank;
	m->run = query_others_until_told;
	m->adjust = answer_queries;
	meet_start(m);
	config.id = &m->id;
	ck_assert_int_eq(join_all(&config, &joined), DICOMM_SUCCESS);
	send_name(joined.client);
	for (int i = 0; i < 3000; i++)
		send_nonsense(joined.client);
	atomic_store(&m->flag[0], 1);
	MEET_UNTIL(atomic_load(&m->flag[2]) == 2);
	meet_wait(m);
	check_all(m, DICOMM_SUCCESS, NULL);
	client_close(joined.client);
	hub_close(joined.hub, DICOMM_SUCCESS, "");
	free(joined.where);
}
END_TEST

/* --- false id_servers --------------------------------------------------------
 */

static int false_kind;

/* Without any proof: who it is, or another version. */
static void say_unproved(int fd, bool refuses)
{
	struct frame_writer out;

	frame_begin(&out, refuses ? FRAME_REFUSED : FRAME_CHALLENGE);
	if (refuses) {
		frame_put_u32(&out, DICOMM_ERR_INVALID_USAGE);
		frame_put_text(&out, "go away");
	} else {
		frame_put_u64(&out, HANDSHAKE_MAGIC);
		frame_put_u32(&out, HANDSHAKE_PROTOCOL + 1);
	}
	send(fd, out.data, out.len, MSG_NOSIGNAL);
}

static void *run_false_server(void *arg)
{
	int listener = *(int *)arg, fd, n = 0;
	struct frame_writer out;
	uint8_t bytes[64] = {0};
	struct pollfd p = {.fd = listener, .events = POLLIN};
	int held[256];

	while (n < 256 && poll(&p, 1, 700) > 0) {
		fd = accept(listener, NULL, NULL);
		if (fd < 0)
			continue;
		held[n++] = fd;
		if (false_kind == 1) {
			say(fd, "220 ESMTP ready\r\n", 17);
		} else if (false_kind == 2) {
			frame_begin(&out, FRAME_CHALLENGE);
			frame_put_u64(&out, HANDSHAKE_MAGIC);
			frame_put_u32(&out, HANDSHAKE_PROTOCOL);
			frame_put_bytes(&out, bytes, AUTH_NONCE);
			frame_put_bytes(&out, bytes, AUTH_PUBLIC);
			say(fd, out.data, out.len);
			frame_begin(&out, FRAME_WELCOME);
			frame_put_bytes(&out, bytes, AUTH_PROOF);
			send(fd, out.data, out.len, MSG_NOSIGNAL);
		} else if (false_kind == 3) {
			shutdown(fd, SHUT_RDWR);
		} else if (false_kind >= 4) {
			say_unproved(fd, false_kind == 4);
		}
	}
	while (n)
		close(held[--n]);
	return NULL;
}

static const char *const false_words[] = {"no answer",
					  "does not parse",
					  "does not know the secret",
					  "connection closed",
					  "go away (it has not proved",
					  "of the join protocol"};

/* Something else has the port: no harm, and a time-out that says so. */
START_TEST(a_false_id_server_is_not_believed)
{
	struct control_config config = {.ranks = 2, .timeout_ms = 500};
	uint8_t key[AUTH_KEY] = {1};
	char address[SOCK_TEXT];
	dicomm_unique_id_t id;
	struct control *c;
	pthread_t t;
	int fd;

	false_kind = _i;
	ck_assert_int_eq(sock_listen(&fd, address), DICOMM_SUCCESS);
	ck_assert_int_eq(id_format(address, key, &id), DICOMM_SUCCESS);
	pthread_create(&t, NULL, run_false_server, &fd);
	config.id = &id;
	ck_assert_int_eq(control_open(&config, &c),
			 _i < 4 ? DICOMM_ERR_TIMEOUT
				: DICOMM_ERR_INVALID_USAGE);
	ck_assert_msg(strstr(log_last_error(), false_words[_i]), "%s",
		      log_last_error());
	pthread_join(t, NULL);
	close(fd);
}
END_TEST

struct late_server {
	int fd;
	uint8_t key[AUTH_KEY];
	char address[SOCK_TEXT];
};

/* A stranger has the port before the id server has it. */
static void *run_late_server(void *arg)
{
	struct late_server *late = arg;
	struct pollfd p = {.fd = late->fd, .events = POLLIN};

	for (int i = 0; i < 4 && poll(&p, 1, 5000) > 0; i++) {
		int fd = accept(late->fd, NULL, NULL);

		if (fd < 0)
			continue;
		say_unproved(fd, i % 2);
		close(fd);
	}
	if (loop_start() == DICOMM_SUCCESS)
		id_server_open(late->fd, late->key, late->address, NULL);
	return NULL;
}

START_TEST(what_a_stranger_says_ends_no_rank)
{
	struct meet *m = meet_create(MEET_PROCESSES, 2);
	struct late_server late = {.key = {1}};
	pthread_t t;

	ck_assert_int_eq(sock_listen(&late.fd, late.address), DICOMM_SUCCESS);
	ck_assert_int_eq(id_format(late.address, late.key, &m->id),
			 DICOMM_SUCCESS);
	/* The thread sanitizer mistakes threads of a child for this one. */
	m->run = gather_once;
	meet_start(m);
	pthread_create(&t, NULL, run_late_server, &late);
	meet_wait(m);
	pthread_join(t, NULL);
	check_all(m, DICOMM_SUCCESS, NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("refusal");
	TCase *absent = tcase_create("absent");
	TCase *alike = tcase_create("alike");
	TCase *strange = tcase_create("strange");
	TCase *nonsense = tcase_create("nonsense");

	setenv("DICOMM_SOCKET_IFNAME", "lo", 1);
	setenv("DICOMM_DEBUG", "none", 1);
	tcase_set_timeout(absent, 20);
	tcase_add_loop_test(absent, who_does_not_come_is_named, 0,
			    2 * (int)(sizeof(missing) / sizeof(*missing)));
	tcase_add_test(absent, who_comes_late_is_told_why);
	tcase_add_test(absent, one_time_out_ends_the_id_server);
	tcase_add_test(absent, a_meeting_can_be_cancelled);
	tcase_add_test(absent, nobody_listens);
	tcase_add_loop_test(absent, a_rank_that_cannot_join_tells_why, 0, 2);
	tcase_add_test(absent, a_rank_that_cannot_tell_goes_on);
	tcase_add_loop_test(absent, a_refusal_at_loopback_names_the_variable, 0,
			    2);
	tcase_add_test(absent, the_end_of_the_id_server_is_noticed);
	tcase_add_test(absent, an_unused_id_is_dropped);
	tcase_add_loop_test(alike, who_is_unlike_is_refused_on_both_sides, 0,
			    2 * UNLIKES);
	tcase_add_test(alike, a_rank_that_comes_twice_is_named);
	tcase_add_test(strange, a_wrong_secret_is_refused);
	tcase_add_test(strange, strangers_are_dropped_and_disturb_nobody);
	tcase_add_test(strange, a_silent_stranger_is_dropped_in_time);
	tcase_add_test(strange, many_strangers_cost_a_line_a_second);
	tcase_add_test(strange, a_crowd_of_strangers_does_not_lock_ranks_out);
	tcase_add_test(
		strange,
		a_crowd_of_strangers_does_not_push_out_who_has_proved_himself);
	tcase_add_test(strange, all_addresses_of_a_host_are_tried);
	tcase_add_loop_test(strange, a_false_id_server_is_not_believed, 0, 6);
	tcase_add_test(strange, what_a_stranger_says_ends_no_rank);
	tcase_add_test(nonsense, a_broken_join_request_is_refused);
	tcase_add_loop_test(nonsense, a_rank_beyond_the_ranks_is_refused, 0, 4);
	tcase_add_loop_test(nonsense, nonsense_of_a_rank_does_no_harm, 0, 8);
	suite_add_tcase(suite, absent);
	suite_add_tcase(suite, alike);
	suite_add_tcase(suite, strange);
	suite_add_tcase(suite, nonsense);
	return runner_main(suite);
}
