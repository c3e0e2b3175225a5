/* SPDX-License-Identifier: BSD-3-Clause */
/* What only the TCP transport does. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/auth.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "tests/support/capture.h"
#include "tests/support/disturb.h"
#include "tests/support/runner.h"
#include "tests/transports/ranks.h"
#include "transports/tcp/nh.h"
#include "transports/tcp/seal.h"
#include "transports/tcp/tcp.h"

#define LARGE (3u << 20)

static const struct transport *t;

/* ---- records ---- */

static struct tcp_seal *one, *other;
static int ends[2];
static bool signs;

static void open_ends(void)
{
	uint8_t secret[TCP_SEAL_KEY] = {7};

	ck_assert_int_eq(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
	one = (signs ? tcp_seal_open_signed : tcp_seal_open)(secret, true);
	other = (signs ? tcp_seal_open_signed : tcp_seal_open)(secret, false);
	ck_assert(one && other);
}

static void close_ends(void)
{
	tcp_seal_close(one);
	tcp_seal_close(other);
	close(ends[0]);
	close(ends[1]);
}

/* Where to receive: the rest of a body, which is asked for at one place until
 * it is there, and a stage behind it. */
static int places(uint8_t *out, size_t got, size_t *body_end, size_t next_body,
		  size_t stage, struct iovec v[2])
{
	if (got >= *body_end)
		*body_end = got + next_body;
	v[0] = (struct iovec){out + got, *body_end - got};
	v[1] = (struct iovec){out + *body_end, stage};
	return 2;
}

/* Messages of any length, received in other pieces at an end that is slow. */
START_TEST(what_is_sealed_comes_out_as_it_was)
{
	size_t len = LARGE, sent = 0, got = 0, body_end = 0;
	uint8_t *in = malloc(len), *out = malloc(len + 200000);

	signs = _i;
	open_ends();
	ranks_fill(in, len, 3);
	for (unsigned turn = 1; got < len; turn++) {
		size_t n = (turn * 7919) % 170000, m = (turn * 104729) % 100000;
		struct iovec v[2], w[2];
		ssize_t k;

		n = n < len - sent ? n : len - sent;
		v[0] = (struct iovec){in + sent, turn % 3 ? n / 3 : n % 50};
		v[1] = (struct iovec){in + sent + v[0].iov_len,
				      n - v[0].iov_len};
		k = tcp_seal_send(one, ends[0], v, 2);
		ck_assert_int_ge(k, 0);
		sent += (size_t)k;
		k = tcp_seal_receive(
			other, ends[1], w,
			places(out, got, &body_end, m, turn % 9000, w));
		ck_assert_int_ge(k, 0);
		got += (size_t)k;
	}
	ck_assert_uint_eq(got, len);
	ck_assert_uint_eq(ranks_check(out, len, 3), len);
	ck_assert(!tcp_seal_waits(one));
	free(in);
	free(out);
	close_ends();
}
END_TEST

/* Each kernel of NH, over lengths that are no multiple of anything. */
START_TEST(every_processor_hashes_alike)
{
	static uint8_t key[NH_KEY], data[NH_BLOCK];
	uint8_t first[NH_HASH], hash[NH_HASH];

	ranks_fill(key, sizeof(key), 1);
	ranks_fill(data, sizeof(data), 2);
	for (size_t len = 1; len <= NH_BLOCK; len += 1 + len / 9) {
		nh_hash(nh_plain, key, data, len, first);
		for (int i = 0; nh_usable(i); i++) {
			nh_hash(nh_usable(i), key, data, len, hash);
			ck_assert_mem_eq(hash, first, NH_HASH);
		}
		data[len - 1] ^= 1;
		nh_hash(nh_plain, key, data, len, hash);
		ck_assert_mem_ne(hash, first, NH_HASH);
		data[len - 1] ^= 1;
	}
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

	signs = _i / ((9 + 16) * 8);
	open_ends();
	len = record_of(0, record);
	/* A length that is too long waits for the rest, in vain: not here. */
	record[4 + (size_t)_i / 8 % (9 + 16)] ^= (uint8_t)(1 << (_i % 8));
	takes(record, len, false);
	close_ends();
}
END_TEST

START_TEST(no_record_is_taken_twice_or_in_another_place)
{
	uint8_t record[RECORDS][256];
	size_t len[RECORDS];

	signs = _i / 2;
	open_ends();
	for (int i = 0; i < RECORDS; i++)
		len[i] = record_of(i, record[i]);
	takes(record[0], len[0], true);
	if (_i % 2)
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

	signs = _i;
	open_ends();
	len = record_of(0, record);
	ck_assert_int_eq(send(ends[1], record, len, 0), (ssize_t)len);
	ck_assert_int_lt(tcp_seal_receive(one, ends[0], &v, 1), 0);
	ck_assert_int_eq(errno, EBADMSG);
	close_ends();
}
END_TEST

/* ---- a man in the middle, who does not know the secret ---- */

#define STREAM_RECORDS 12
#define STREAM_ROOM (256u << 10)
#define LONGEST (16384 + 20) /* record */
#define DISTURBANCES 1500

static struct {
	uint8_t plain[STREAM_ROOM], wire[STREAM_ROOM];
	size_t plain_at[STREAM_RECORDS + 1], at[STREAM_RECORDS + 1];
} stream;
static unsigned seed;

static size_t draw(size_t below)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 8) % below;
}

static void make_stream(void)
{
	open_ends();
	ranks_fill(stream.plain, sizeof(stream.plain), 11);
	for (int i = 0; i < STREAM_RECORDS; i++) {
		size_t *at = stream.plain_at + i, *wire = stream.at + i;
		struct iovec v = {stream.plain + *at,
				  1 + draw(i % 4 ? 300 : 16384)};
		ssize_t n = tcp_seal_send(one, ends[0], &v, 1);

		ck_assert_int_eq(n, (ssize_t)v.iov_len);
		at[1] = at[0] + v.iov_len;
		n = recv(ends[1], stream.wire + *wire, STREAM_ROOM - *wire, 0);
		ck_assert_int_gt(n, 0);
		wire[1] = wire[0] + (size_t)n;
	}
	close_ends();
}

/* All that is handed out, whatever is asked for; *error is how it ends. */
static size_t take_all(uint8_t *out, int *error)
{
	size_t got = 0, body_end = 0;
	ssize_t n = 0;

	for (int calls = 0; calls < 100000; calls++) {
		size_t body = draw(3) ? 1 + draw(400) : 20000 + draw(9000);
		struct iovec v[2];

		if (got + 30000 + 4096 > STREAM_ROOM)
			break;
		places(out, got, &body_end, body, draw(4096), v);
		n = tcp_seal_receive(other, ends[1], v, 2);
		if (n < 0)
			break;
		got += (size_t)n;
	}
	*error = errno;
	ck_assert_int_lt(n, 0);
	return got;
}

/* Nor is a good record taken after that. */
static void stays_over(int error)
{
	uint8_t room[64];
	struct iovec v = {room, sizeof(room)};

	for (int i = 0; i < 3; i++) {
		errno = 0;
		ck_assert_int_lt(tcp_seal_receive(other, ends[1], &v, 1), 0);
		ck_assert_int_eq(errno, error);
		ck_assert(tcp_seal_holds(other));
	}
}

START_TEST(a_right_beginning_is_all_that_a_disturbed_stream_gives)
{
	static uint8_t wire[STREAM_ROOM], out[STREAM_ROOM];
	uint8_t script[3 * DISTURB_STEP];
	size_t len, right, got;
	int error;

	signs = _i;
	make_stream();
	for (seed = 1; seed <= DISTURBANCES; seed++) {
		unsigned keep = seed;

		for (size_t i = 0; i < sizeof(script); i++)
			script[i] = (uint8_t)draw(256);
		len = disturb(stream.wire, stream.at, STREAM_RECORDS, script,
			      DISTURB_STEP * (1 + draw(3)), wire, sizeof(wire));
		right = disturb_right(stream.wire, stream.at, STREAM_RECORDS,
				      wire, len);
		open_ends();
		/* Room for all of it, so that nobody has to wait. */
		setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &(int){1 << 20},
			   sizeof(int));
		ck_assert_int_eq(send(ends[0], wire, len, 0), (ssize_t)len);
		shutdown(ends[0], SHUT_WR);
		got = take_all(out, &error);
		ck_assert_msg(got == stream.plain_at[right] &&
				      !memcmp(out, stream.plain, got),
			      "%u: %zu bytes, not %zu", keep, got,
			      stream.plain_at[right]);
		/* What goes on behind the right records is told from an end. */
		if (len >= stream.at[right] + LONGEST)
			ck_assert_msg(error == EBADMSG, "%u: %s", keep,
				      strerror(error));
		stays_over(error);
		close_ends();
		seed = keep;
	}
}
END_TEST

/* ---- ranks whose traffic is protected, on several connections, or both ----
 */

static const char *const modes[][2] = {{"off", "1"},  {"on", "1"},
				       {"off", "4"},  {"on", "3"},
				       {"sign", "1"}, {"sign", "3"}};
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

/* ---- somebody between two ranks, who writes everything down ---- */

#define HELLO_BYTES (48 + 3 * 32)
#define ANSWER_BYTES (64 + 3 * 32)
#define CONFIRM_BYTES 32
#define LIES 3

static struct {
	int listener;
	struct tp_blob to;
	uint8_t up[1 << 20], down[1 << 20];
	_Atomic size_t up_len, down_len; /* recorded by the thread between */
} between;

/* First he answers himself, and cannot prove anything. */
static bool lie(bool refuses)
{
	uint8_t noise[HELLO_BYTES > ANSWER_BYTES ? HELLO_BYTES : ANSWER_BYTES];
	const uint8_t refusal[64] = "DCT5\2\0\0\0go away";
	int fd = accept(between.listener, NULL, NULL);
	bool done = fd >= 0 &&
		    recv(fd, noise, HELLO_BYTES, MSG_WAITALL) == HELLO_BYTES;

	randombytes_buf(noise, sizeof(noise));
	if (refuses)
		memcpy(noise, refusal, sizeof(refusal));
	done = done &&
	       send(fd, noise, ANSWER_BYTES, MSG_NOSIGNAL) == ANSWER_BYTES;
	close(fd);
	return done;
}

/* False: that direction has ended. */
static bool relay(int from, int to, uint8_t *record, _Atomic size_t *len)
{
	ssize_t n = recv(from, record + *len, sizeof(between.up) - *len, 0);

	if (n <= 0 || send(to, record + *len, (size_t)n, MSG_NOSIGNAL) != n) {
		shutdown(to, SHUT_WR);
		return false;
	}
	*len += (size_t)n;
	return true;
}

static void *stay_between(void *arg)
{
	struct pollfd p[2];
	int open = 2;

	for (int i = 0; i < LIES; i++)
		if (!lie(i))
			return arg;
	p[0] = (struct pollfd){accept(between.listener, NULL, NULL), POLLIN, 0};
	p[1] = (struct pollfd){call(&between.to), POLLIN, 0};
	while (open && poll(p, 2, 20000) > 0)
		for (int i = 0; i < 2; i++) {
			if (!p[i].revents ||
			    relay(p[i].fd, p[!i].fd,
				  i ? between.down : between.up,
				  i ? &between.down_len : &between.up_len))
				continue;
			p[i].events = 0;
			p[i].fd = ~p[i].fd; /* poll() skips it */
			open--;
		}
	return arg;
}

/* Are these the keys of what was written down? */
static bool reads(const uint8_t secret[TCP_SEAL_KEY], bool is_signed)
{
	struct tcp_seal *seal = (is_signed ? tcp_seal_open_signed
					   : tcp_seal_open)(secret, false);
	size_t at = HELLO_BYTES + CONFIRM_BYTES;
	uint8_t room[64];
	struct iovec v = {room, sizeof(room)};
	ssize_t n;
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) ||
	    send(fd[0], between.up + at, 20000, 0) <= 0)
		return false;
	n = tcp_seal_receive(seal, fd[1], &v, 1);
	tcp_seal_close(seal);
	close(fd[0]);
	close(fd[1]);
	return n > 0;
}

/* Who learns the secret of the communicator later knows all but the key pairs.
 */
static void read_later(struct rank *r, bool is_signed)
{
	uint8_t all[HELLO_BYTES + ANSWER_BYTES], secret[TCP_SEAL_KEY];

	EXPECT(r, between.up_len > 20500, "%zu bytes", (size_t)between.up_len);
	memcpy(all, between.up, HELLO_BYTES);
	memcpy(all + HELLO_BYTES, between.down, ANSWER_BYTES);
	auth_prove(r->config.key, "dicomm signed wires", all, sizeof(all),
		   secret);
	EXPECT(r, reads(secret, is_signed) == is_signed, "the hash of words");
	crypto_generichash(secret, sizeof(secret), all, sizeof(all),
			   r->config.key, sizeof(r->config.key));
	EXPECT(r, !reads(secret, is_signed), "another hash of words");
}

/* Somebody is between: a thread. */
static void connect_through(struct rank *r, void *(*thread_of)(void *))
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	struct tcp_address *address;
	pthread_t thread;

	between.to = r->area->address[1];
	between.listener = socket(AF_INET, SOCK_STREAM, 0);
	EXPECT(r,
	       !bind(between.listener, (struct sockaddr *)&at, len) &&
		       !listen(between.listener, 8) &&
		       !getsockname(between.listener, (struct sockaddr *)&at,
				    &len),
	       "listen");
	EXPECT(r,
	       !pthread_create(&thread, NULL, thread_of, NULL) &&
		       !pthread_detach(thread),
	       "thread");
	address = r->dev->links[1].address;
	snprintf(address->listen, sizeof(address->listen), "127.0.0.1:%d",
		 ntohs(at.sin_port));
	ranks_connect_out(r, 1, TP_COLLECTIVE);
	RANKS_WAIT(r, r->dev->links[1].ready);
	atomic_store(&r->area->flag[0], 1);
}

static void run_between(struct rank *r)
{
	if (r->rank == 0)
		connect_through(r, stay_between);
	RANKS_WAIT(r, atomic_load(&r->area->flag[0]));
	exchange(r);
	if (r->rank == 0)
		read_later(r, r->dev->protection == TCP_SIGNED);
}

START_TEST(who_is_between_is_not_believed_and_reads_nothing_later)
{
	struct ranks_job job = {.t = t,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_between};

	setenv("DICOMM_SOCKET_FAMILY", "AF_INET", 1);
	setenv("DICOMM_ENCRYPT", _i ? "sign" : "on", 1);
	ranks_run(&job);
}
END_TEST

/* ---- the same, at some connections of a link ---- */

static void *pass_on(void *arg)
{
	int *end = arg;
	struct pollfd p[2] = {{end[0], POLLIN, 0}, {end[1], POLLIN, 0}};
	bool open = true;
	char bytes[4096];

	while (open && poll(p, 2, 20000) > 0)
		for (int i = 0; i < 2 && open; i++) {
			ssize_t n = p[i].revents ? recv(p[i].fd, bytes,
							sizeof(bytes), 0)
						 : -1;

			open = !p[i].revents ||
			       (n > 0 && send(p[!i].fd, bytes, (size_t)n,
					      MSG_NOSIGNAL) == n);
		}
	close(end[0]);
	close(end[1]);
	return arg;
}

/* The second connection, and what is connected in its place at first. */
static void *lie_to_some(void *arg)
{
	static int pair[TCP_CONNECTIONS][2];
	pthread_t thread;

	for (int i = 0; i < TCP_CONNECTIONS; i++) {
		if (i == 1 || i == 3) {
			if (!lie(true))
				break;
			continue;
		}
		pair[i][0] = accept(between.listener, NULL, NULL);
		pair[i][1] = call(&between.to);
		if (pthread_create(&thread, NULL, pass_on, pair[i]) ||
		    pthread_detach(thread))
			break;
	}
	return arg;
}

static void run_some_lies(struct rank *r)
{
	if (r->rank == 0)
		connect_through(r, lie_to_some);
	RANKS_WAIT(r, atomic_load(&r->area->flag[0]));
	exchange(r);
}

START_TEST(a_lie_at_one_connection_does_not_break_a_link)
{
	struct ranks_job job = {.t = t,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_some_lies};

	setenv("DICOMM_SOCKET_FAMILY", "AF_INET", 1);
	setenv("DICOMM_ENCRYPT", modes[_i][0], 1);
	setenv("DICOMM_TCP_CONNECTIONS", "3", 1);
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
	capture_nothing();
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
	ranks_stop(r, 1);
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
	/* Encrypted, and signed */
	tcase_add_loop_test(tc, what_is_sealed_comes_out_as_it_was, 0, 2);
	tcase_add_test(tc, every_processor_hashes_alike);
	/* "message 0" and its tag */
	tcase_add_loop_test(tc, each_bit_of_a_record_counts, 0,
			    2 * (9 + 16) * 8);
	tcase_add_loop_test(tc, no_record_is_taken_twice_or_in_another_place, 0,
			    2 * 2);
	tcase_add_loop_test(tc, a_record_does_not_go_back, 0, 2);
	tcase_add_loop_test(
		tc, a_right_beginning_is_all_that_a_disturbed_stream_gives, 0,
		2);
	tcase_add_loop_test(tc, a_rank_that_is_away_is_read_from, 0,
			    MODES * RANKS_KINDS);
	tcase_add_test(tc, strangers_change_nothing);
	tcase_add_loop_test(
		tc, who_is_between_is_not_believed_and_reads_nothing_later, 0,
		2);
	/* In the clear, and encrypted */
	tcase_add_loop_test(tc, a_lie_at_one_connection_does_not_break_a_link,
			    0, 2);
	tcase_add_test(tc, the_dead_are_named);
	tcase_add_test(tc, who_connects_to_a_stopped_rank_does_not_block);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
