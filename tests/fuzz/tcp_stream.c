/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a connected rank sends over tcp: heads, messages, credits, reads. The
 * first two bytes say which slots are free, and how many bytes arrive at once.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "transports/tcp/tcp.h"

#define SLOTS 4
#define SLOT_BYTES 4096
#define INPUT_MOST 65536

static struct tp_device dev;
static struct tcp_link links[2];
static struct tcp_in *_Atomic ins[2 * TP_CLASSES];
static struct tcp_out *_Atomic outs[2 * TP_CLASSES];
static struct tcp_out out;
static uint8_t memory[3 * SLOT_BYTES]; /* that the peer may ask for */

static void put(uint8_t *bytes, size_t *len, const void *from, size_t n)
{
	memcpy(bytes + *len, from, n);
	*len += n;
}

static void seed_messages(void)
{
	struct tcp_head head = {.what = TCP_LANE};
	uint8_t bytes[512] = {0, 255};
	size_t len = 2;

	put(bytes, &len, &head, sizeof(head));
	for (unsigned i = 1; i <= 3; i++) {
		head = (struct tcp_head){
			.what = TCP_MESSAGE, .seq = i, .len = 40 * i};
		put(bytes, &len, &head, sizeof(head));
		len += head.len;
	}
	head = (struct tcp_head){.what = TCP_CREDIT, .extra = 2};
	put(bytes, &len, &head, sizeof(head));
	head.what = TCP_BYE;
	put(bytes, &len, &head, sizeof(head));
	fuzz_seed(bytes, len);
}

/* Only this rank can seal what it offers; else it is refused. */
static void seed_read(bool offered)
{
	struct tcp_head head = {.what = TCP_READ, .signature = 1};
	struct tcp_ask ask = {.len = 5000};
	uint8_t bytes[256] = {0, 255};
	size_t len = 2;

	if (offered) {
		ask.ref.addr = (uintptr_t)memory;
		ask.ref.len = sizeof(memory);
		ask.ref.seal = tcp_receive_seal(&dev, &ask.ref);
	}
	put(bytes, &len, &head, sizeof(head));
	put(bytes, &len, &ask, sizeof(ask));
	fuzz_seed(bytes, len);
}

void fuzz_seeds(void)
{
	seed_messages();
	seed_read(true);
	seed_read(false);
}

static void make_device(void)
{
	dev.config.ranks = 2;
	dev.config.slots = SLOTS;
	dev.config.slot_bytes = SLOT_BYTES;
	dev.connections = 1;
	dev.listener = -1;
	dev.epoll = epoll_create1(EPOLL_CLOEXEC);
	dev.links = links;
	dev.in = ins;
	dev.out = outs;
	if (dev.epoll < 0)
		abort();
}

static struct tcp_conn *connect_peer(int *peer)
{
	struct tcp_conn *c;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds))
		abort();
	*peer = fds[1];
	links[1] = (struct tcp_link){
		.dev = &dev, .rank = 1, .count = 1, .open = 1, .ready = true};
	c = tcp_socket_add(&dev, fds[0], TCP_OPEN, EPOLLIN);
	if (!c || tcp_send_open(c) != DICOMM_SUCCESS)
		abort();
	c->link = &links[1];
	c->head.what = TCP_WHATS;
	links[1].conn[0] = c;
	dev.open = 1;
	atomic_store(&out.released, 0);
	atomic_store(&outs[TP_CLASSES], &out);
	return c;
}

static void disconnect(int peer)
{
	tcp_link_drop(&links[1]);
	tcp_socket_bury(&dev);
	close(peer);
	for (int i = 0; i < 2 * TP_CLASSES; i++) {
		struct tcp_in *in = atomic_exchange(&ins[i], NULL);

		if (in)
			tcp_receive_free(in);
	}
	dev.untold = NULL;
	dev.owes = dev.urgent = false;
	dev.open = 0;
}

/* What the peer hears does not matter, but its socket must not fill up. */
static void drain(int peer)
{
	char bytes[4096];

	while (recv(peer, bytes, sizeof(bytes), 0) > 0)
		;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct tcp_conn *c;
	size_t piece;
	int peer;

	if (len < 2 || len > INPUT_MOST)
		return 0;
	if (!dev.links)
		make_device();
	c = connect_peer(&peer);
	piece = data[1] == 255 ? len : data[1] + 1u;
	for (size_t at = 2; at < len && links[1].conn[0] == c; at += piece) {
		size_t n = len - at < piece ? len - at : piece;

		if (send(peer, data + at, n, MSG_NOSIGNAL) != (ssize_t)n)
			break;
		while (tcp_receive(c) && links[1].conn[0] == c)
			;
		if (data[0] & 1 && atomic_load(&ins[TP_CLASSES]))
			atomic_load(&ins[TP_CLASSES])->freed++;
		if (links[1].conn[0] == c)
			tcp_send_more(c);
		drain(peer);
	}
	disconnect(peer);
	return 0;
}
