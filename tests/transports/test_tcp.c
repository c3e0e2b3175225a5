/* SPDX-License-Identifier: BSD-3-Clause */
/* What only the TCP transport does. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/net/sock.h"
#include "tests/support/runner.h"
#include "tests/transports/ranks.h"
#include "transports/tcp/seal.h"

#define LARGE (3u << 20)

static const struct transport *t;

static void no_log(int level, const char *message, void *ctx)
{
	(void)level;
	(void)message;
	(void)ctx;
}

/* ---- records ---- */

static struct tcp_seal *one, *other;
static int ends[2];

static void open_ends(void)
{
	uint8_t secret[TCP_SEAL_KEY] = {7};

	ck_assert_int_eq(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
	one = tcp_seal_open(secret, true);
	other = tcp_seal_open(secret, false);
	ck_assert(one && other);
}

static void close_ends(void)
{
	tcp_seal_close(one);
	tcp_seal_close(other);
	close(ends[0]);
	close(ends[1]);
}

/* Pieces of any length, cut anew at the other end, which is slow. */
START_TEST(what_is_sealed_comes_out_as_it_was)
{
	size_t len = LARGE, sent = 0, got = 0;
	uint8_t *in = malloc(len), *out = malloc(len);

	open_ends();
	ranks_fill(in, len, 3);
	for (unsigned turn = 1; got < len; turn++) {
		size_t n = (turn * 7919) % 70000, m = (turn * 104729) % 50000;
		struct iovec v[2] = {{in + sent, n / 3},
				     {in + sent + n / 3, n - n / 3}};
		struct iovec w[2] = {{out + got, m / 5},
				     {out + got + m / 5, m - m / 5}};
		ssize_t k;

		if (sent + n > len)
			v[0] = (struct iovec){in + sent, len - sent};
		k = tcp_seal_send(one, ends[0], v, sent + n > len ? 1 : 2);
		ck_assert_int_ge(k, 0);
		sent += (size_t)k;
		if (got + m > len)
			w[0] = (struct iovec){out + got, len - got};
		k = tcp_seal_receive(other, ends[1], w, got + m > len ? 1 : 2);
		ck_assert_int_ge(k, 0);
		got += (size_t)k;
	}
	ck_assert_uint_eq(ranks_check(out, len, 3), len);
	ck_assert(!tcp_seal_waits(one));
	free(in);
	free(out);
	close_ends();
}
END_TEST

/* Records as they are on the wire. */
#define RECORDS 3
static size_t record_of(int i, uint8_t out[256])
{
	char text[32];
	struct iovec v = {text, 0};
	ssize_t n;

	v.iov_len = (size_t)snprintf(text, sizeof(text), "message %d", i);
	ck_assert_int_eq(tcp_seal_send(one, ends[0], &v, 1),
			 (ssize_t)v.iov_len);
	n = recv(ends[1], out, 256, 0);
	ck_assert_int_eq(n, (ssize_t)v.iov_len + 20);
	return (size_t)n;
}

static void takes(const uint8_t *record, size_t len, bool good)
{
	uint8_t room[64];
	struct iovec v = {room, sizeof(room)};
	ssize_t n;

	ck_assert_int_eq(send(ends[0], record, len, 0), (ssize_t)len);
	errno = 0;
	n = tcp_seal_receive(other, ends[1], &v, 1);
	if (good)
		ck_assert_int_eq(n, (ssize_t)len - 20);
	else
		ck_assert_msg(n < 0 && errno == EBADMSG, "%zd, %d", n, errno);
}

START_TEST(each_bit_of_a_record_counts)
{
	uint8_t record[256];
	size_t len;

	open_ends();
	len = record_of(0, record);
	/* A length that is too long waits for the rest, in vain: not here. */
	record[4 + (size_t)_i / 8] ^= (uint8_t)(1 << (_i % 8));
	takes(record, len, false);
	close_ends();
}
END_TEST

START_TEST(no_record_is_taken_twice_or_in_another_place)
{
	uint8_t record[RECORDS][256];
	size_t len[RECORDS];

	open_ends();
	for (int i = 0; i < RECORDS; i++)
		len[i] = record_of(i, record[i]);
	takes(record[0], len[0], true);
	if (_i)
		takes(record[0], len[0], false); /* again */
	else
		takes(record[2], len[2], false); /* one is left out */
	close_ends();
}
END_TEST

START_TEST(a_record_does_not_go_back)
{
	uint8_t record[256], room[64];
	struct iovec v = {room, sizeof(room)};
	size_t len;

	open_ends();
	len = record_of(0, record);
	ck_assert_int_eq(send(ends[1], record, len, 0), (ssize_t)len);
	ck_assert_int_lt(tcp_seal_receive(one, ends[0], &v, 1), 0);
	ck_assert_int_eq(errno, EBADMSG);
	close_ends();
}
END_TEST

/* ---- ranks whose traffic is encrypted, on several connections, or both ----
 */

static const char *const modes[][2] = {
	{"off", "1"}, {"on", "1"}, {"off", "4"}, {"on", "3"}};
#define MODES (int)(sizeof(modes) / sizeof(*modes))

static void set_mode(int i)
{
	setenv("DICOMM_ENCRYPT", modes[i][0], 1);
	setenv("DICOMM_TCP_CONNECTIONS", modes[i][1], 1);
}

static void exchange(struct rank *r)
{
	const uint64_t messages = 400;
	int peer = !r->rank;
	uint8_t body[4096];
	const uint8_t *got;

	ranks_connect(r, peer, TP_COLLECTIVE);
	for (uint64_t q = 1; q <= messages; q++) {
		uint64_t len = (q * 37) % sizeof(body);

		ranks_fill(body, len, q + (uint64_t)r->rank);
		ranks_put(r, peer, TP_COLLECTIVE, q, body, len);
		ranks_get(r, peer, TP_COLLECTIVE, q, &got);
		EXPECT(r, ranks_check(got, len, q + (uint64_t)peer) == len,
		       "message %d", (int)q);
		EXPECT_OK(r, r->t->release(r->peer[peer], TP_COLLECTIVE, q));
	}
}

static void run_read(struct rank *r)
{
	uint8_t *large = malloc(LARGE);
	const uint8_t *room;
	struct tp_ref ref;

	exchange(r);
	EXPECT(r, large, "out of memory");
	if (r->rank == 0) {
		dicomm_result_t status;

		ranks_fill(large, LARGE, 5);
		EXPECT(r,
		       r->t->offer(r->peer[1], large, LARGE, TP_WANT_COPY,
				   &ref),
		       "no offer");
		RANKS_WAIT(r, (status = r->t->put(r->peer[1], TP_COLLECTIVE,
						  401, 7, TP_REF, &ref,
						  LARGE)) != DICOMM_AGAIN);
		EXPECT_OK(r, status);
		/* It is away: neither polls nor does anything else. */
		for (int i = 0; i < 10000 && !atomic_load(&r->area->flag[1]);
		     i++)
			usleep(1000);
		EXPECT(r, atomic_load(&r->area->flag[1]), "it was not read");
		RANKS_WAIT(r, atomic_load_explicit(
				      r->out[1][TP_COLLECTIVE].released,
				      memory_order_acquire) >= 401);
	} else {
		ranks_get(r, 0, TP_COLLECTIVE, 401, &room);
		memcpy(&ref, room, sizeof(ref));
		ranks_read(r, 0, TP_COLLECTIVE, 401, &ref, 0, large, LARGE);
		EXPECT(r, ranks_check(large, LARGE, 5) == LARGE, "wrong data");
		EXPECT_OK(r, r->t->release(r->peer[0], TP_COLLECTIVE, 401));
		atomic_store(&r->area->flag[1], 1);
	}
	free(large);
}

START_TEST(a_rank_that_is_away_is_read_from)
{
	struct ranks_job job = {.t = t,
				.kind = (enum ranks_kind)(_i % RANKS_KINDS),
				.ranks = 2,
				.run = run_read};

	set_mode(_i / RANKS_KINDS);
	ranks_run(&job);
}
END_TEST

/* ---- strangers ---- */

static int call(const struct tp_blob *address)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	const char *text = NULL;
	char host[64];
	int fd = socket(AF_INET, SOCK_STREAM, 0), port;

	for (uint32_t i = 0; i < address->len && !text; i++)
		if (sscanf((const char *)address->data + i, "%63[0-9.]:%d",
			   host, &port) == 2 &&
		    inet_pton(AF_INET, host, &to.sin_addr) == 1)
			text = host;
	to.sin_port = htons((uint16_t)port);
	if (!text || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* More than a rank keeps */
#define SILENT 300

static void run_strangers(struct rank *r)
{
	uint8_t noise[4096];
	int silent[SILENT], fd;

	for (int i = 0; r->rank == 0 && i < SILENT; i++) {
		silent[i] = call(&r->area->address[1]);
		EXPECT(r, silent[i] >= 0, "no connection: %d", i);
		if (i >= 20)
			continue;
		fd = call(&r->area->address[1]);
		EXPECT(r, fd >= 0, "no connection: %d", i);
		randombytes_buf(noise, sizeof(noise));
		EXPECT(r, write(fd, noise, (size_t)i * 200 + 1) > 0, "write");
		close(fd);
	}
	exchange(r);
	for (int i = 0; r->rank == 0 && i < SILENT; i++)
		close(silent[i]);
}

START_TEST(strangers_change_nothing)
{
	struct ranks_job job = {.t = t,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_strangers};

	setenv("DICOMM_SOCKET_FAMILY", "AF_INET", 1);
	ranks_run(&job);
}
END_TEST

/* ---- a peer that dies is noticed and named ---- */

static void run_death(struct rank *r)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	uint64_t begin;
	int named = -1;

	exchange(r);
	if (r->rank == 1) {
		atomic_store(&r->area->flag[1], 1);
		pause();
	}
	RANKS_WAIT(r, atomic_load(&r->area->flag[1]));
	log_set_sink(no_log, NULL);
	begin = clock_ms();
	kill(r->area->pid[1], SIGKILL);
	while (status == DICOMM_SUCCESS && clock_ms() < begin + 5000) {
		r->t->poll(r->dev);
		status = r->t->broken(r->dev, &named);
		usleep(1000);
	}
	EXPECT(r, status == DICOMM_ERR_REMOTE && named == 1, "%d, rank %d",
	       (int)status, named);
	EXPECT(r, strstr(log_last_error(), "rank 1"), "%s", log_last_error());
	EXPECT(r,
	       ranks_try_put(r, 1, TP_COLLECTIVE, 401, "x", 1) ==
		       DICOMM_ERR_REMOTE,
	       "a put to the dead");
}

START_TEST(the_dead_are_named)
{
	struct ranks_job job = {.t = t,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.killed = 2,
				.run = run_death};

	ranks_run(&job);
}
END_TEST

/* ---- nobody waits in connecting ---- */

/* The peer is stopped before they connect: all that is said is AGAIN, at once,
 * and the message gets there when it goes on. */
static void run_stopped(struct rank *r)
{
	const uint8_t *body;
	uint64_t begin, longest = 0;
	dicomm_result_t status = DICOMM_AGAIN;
	int others = 0;

	if (r->rank == 1) {
		ranks_connect_in(r, 0, TP_COLLECTIVE);
		ranks_get(r, 0, TP_COLLECTIVE, 1, &body);
		EXPECT(r, *body == 'x', "wrong data");
		return;
	}
	kill(r->area->pid[1], SIGSTOP);
	ranks_connect_out(r, 1, TP_COLLECTIVE);
	for (int i = 0; i < 200; i++) {
		begin = clock_ms();
		status = ranks_try_put(r, 1, TP_COLLECTIVE, 1, "x", 1);
		r->t->poll(r->dev);
		if (clock_ms() - begin > longest)
			longest = clock_ms() - begin;
		others += status != DICOMM_AGAIN;
		usleep(1000);
	}
	kill(r->area->pid[1], SIGCONT);
	EXPECT(r, !others, "%d puts were not told to come again", others);
	EXPECT(r, longest < 3000, "%d ms in a call", (int)longest);
	ranks_put(r, 1, TP_COLLECTIVE, 1, "x", 1);
}

START_TEST(who_connects_to_a_stopped_rank_does_not_block)
{
	struct ranks_job job = {.t = t,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_stopped};

	ranks_run(&job);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tcp");
	TCase *tc = tcase_create("all");

	t = transport_find("tcp");
	if (sodium_init() < 0)
		return 99;
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, what_is_sealed_comes_out_as_it_was);
	/* "message 0" and its tag */
	tcase_add_loop_test(tc, each_bit_of_a_record_counts, 0, (9 + 16) * 8);
	tcase_add_loop_test(tc, no_record_is_taken_twice_or_in_another_place, 0,
			    2);
	tcase_add_test(tc, a_record_does_not_go_back);
	tcase_add_loop_test(tc, a_rank_that_is_away_is_read_from, 0,
			    MODES * RANKS_KINDS);
	tcase_add_test(tc, strangers_change_nothing);
	tcase_add_test(tc, the_dead_are_named);
	tcase_add_test(tc, who_connects_to_a_stopped_rank_does_not_block);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
