/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sealed streams: data over tcp, encrypted and signed, and the control
 * plane. The first byte says which, the second how much is read at once; the
 * rest is a script of what a man in the middle does to real records. He gets a
 * right beginning of them through, and then an error that stays.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/boot/net/seal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/disturb.h"
#include "transports/tcp/seal.h"

#define RECORDS 8
#define ROOM (64u << 10)

static const size_t sizes[RECORDS] = {32, 9000, 1, 300, 4097, 64, 2000, 8};
static uint8_t plain[ROOM];
static size_t plain_at[RECORDS + 1];

enum { CONTROL, ENCRYPTED, SIGNED, STREAMS };
static struct {
	uint8_t wire[ROOM];
	size_t at[RECORDS + 1];
} streams[STREAMS];

static const uint8_t secret[TCP_SEAL_KEY] = "secret";
static const struct seal_keys keys = {.send = "s", .receive = "s"};

void fuzz_seeds(void)
{
	static const uint8_t scripts[][2 + 2 * DISTURB_STEP] = {
		{0, 7, 0, 2},
		{0, 200, 1, 3},
		{1, 7, 2, 1, 4},
		{1, 9, 3, 9},
		{0, 77, 4, 1, 1, 3, 0, 5},
	};

	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++)
		fuzz_seed(scripts[i], sizeof(scripts[i]));
}

static void pair(int fds[2])
{
	int bytes = 1 << 20;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) ||
	    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)))
		abort();
}

static struct tcp_seal *open_data(int which, bool caller)
{
	return which == SIGNED ? tcp_seal_open_signed(secret, caller)
			       : tcp_seal_open(secret, caller);
}

static void make_data(int which)
{
	struct tcp_seal *seal = open_data(which, true);
	uint8_t *wire = streams[which].wire;
	size_t *at = streams[which].at;
	int fds[2];

	pair(fds);
	for (int i = 0; i < RECORDS; i++) {
		struct iovec v = {plain + plain_at[i], sizes[i]};
		ssize_t n = tcp_seal_send(seal, fds[0], &v, 1);

		if (n != (ssize_t)sizes[i])
			abort();
		n = recv(fds[1], wire + at[i], ROOM - at[i], 0);
		if (n <= 0)
			abort();
		at[i + 1] = at[i] + (size_t)n;
	}
	close(fds[0]);
	close(fds[1]);
	tcp_seal_close(seal);
}

static void make_control(void)
{
	static struct frame_writer out;
	struct seal *seal = seal_create(&keys);
	uint8_t *wire = streams[CONTROL].wire;
	size_t *at = streams[CONTROL].at;

	for (int i = 0; i < RECORDS; i++) {
		frame_begin(&out, FRAME_GATHERED);
		frame_put_bytes(&out, plain + plain_at[i], sizes[i]);
		at[i + 1] = at[i] +
			    seal_frame(seal, out.data, out.len, wire + at[i]);
	}
	seal_destroy(seal);
}

static void make(void)
{
	for (size_t i = 0; i < ROOM; i++)
		plain[i] = (uint8_t)(i * 2654435761u >> 13);
	for (int i = 0; i < RECORDS; i++)
		plain_at[i + 1] = plain_at[i] + sizes[i];
	make_data(ENCRYPTED);
	make_data(SIGNED);
	make_control();
}

static void check(const uint8_t *out, size_t got, size_t records)
{
	if (got != plain_at[records] || memcmp(out, plain, got))
		abort();
}

static void read_data(int which, const uint8_t *wire, size_t len, size_t right,
		      size_t room)
{
	static uint8_t out[2 * ROOM];
	struct tcp_seal *seal = open_data(which, false);
	size_t got = 0, body_end = 0;
	ssize_t n;
	int fds[2];

	pair(fds);
	if (!seal || send(fds[0], wire, len, 0) != (ssize_t)len ||
	    shutdown(fds[0], SHUT_WR))
		abort();
	do {
		struct iovec v[2];

		/* A body is asked for at one place until it is there. */
		if (got >= body_end)
			body_end = got + room;
		v[0] = (struct iovec){out + got, body_end - got};
		v[1] = (struct iovec){out + body_end, room / 2};
		n = tcp_seal_receive(seal, fds[1], v, 2);
		got += n > 0 ? (size_t)n : 0;
	} while (n > 0 && got < ROOM);
	check(out, got, right);
	if (n >= 0 || !tcp_seal_holds(seal) ||
	    tcp_seal_receive(seal, fds[1], &(struct iovec){out, ROOM}, 1) >= 0)
		abort();
	tcp_seal_close(seal);
	close(fds[0]);
	close(fds[1]);
}

static void read_control(const uint8_t *wire, size_t len, size_t right)
{
	static uint8_t out[2 * ROOM];
	struct seal *seal = seal_create(&keys);
	enum frame_found found;
	enum frame_type type;
	struct frame_reader in;
	size_t used, got = 0;

	while ((found = seal_open(seal, wire, len, FRAME_MAX, &used, &type,
				  &in)) == FRAME_COMPLETE) {
		if (got + in.len > sizeof(out))
			abort();
		memcpy(out + got, in.data, in.len);
		got += in.len;
		wire += used;
		len -= used;
	}
	check(out, got, right);
	if (found != FRAME_MORE &&
	    seal_open(seal, wire, len, FRAME_MAX, &used, &type, &in) != found)
		abort();
	seal_destroy(seal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static uint8_t wire[ROOM];
	size_t n, right;
	int which;

	if (len < 2)
		return 0;
	if (!plain_at[RECORDS])
		make();
	which = data[0] % STREAMS;
	n = disturb(streams[which].wire, streams[which].at, RECORDS, data + 2,
		    len - 2, wire, sizeof(wire));
	right = disturb_right(streams[which].wire, streams[which].at, RECORDS,
			      wire, n);
	if (which == CONTROL)
		read_control(wire, n, right);
	else
		read_data(which, wire, n, right, 1 + (size_t)data[1] * 97);
	return 0;
}
