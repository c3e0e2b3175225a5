/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How two ranks make a connection. The initiator sends a hello, the acceptor
 * sends an answer, and the initiator sends a confirm. Each of these words
 * contains a proof that its sender knows the key of the communicator, over the
 * nonces that both have just made.
 *
 * If both ranks connect, the connection that the lower rank began counts: the
 * lower rank refuses the other's hello, and the other rank drops its own
 * connections when it gets the hello of the lower one.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/seal.h"
#include "transports/tcp/tcp.h"

#define STRANGER_MS 10000
/* A peer whose hello was right may be stopped before it sends the confirm. If
 * this rank closed the connection then, the peer would take it for broken. */
#define PROVED_MS 600000
/* A rank whose connection ends before an answer connects again: its peer may
 * have been without descriptors, or full of strangers. */
#define ATTEMPTS_MAX 20
#define RETRY_MS 100
/* Whatever runs on a host, its kernel answers a connect, or refuses it. So who
 * gets no answer for this long while ranks meet, as they do over other ports of
 * the same hosts, is cut off by a firewall. Later, the network may be down. */
#define UNANSWERED_MS 9000
#define MEETING_MS 60000
#define TICK_MS 50

/* Send a word; all of it fits into an empty socket. */
static bool send_word(struct tcp_conn *c, void *word, size_t len)
{
	struct iovec v = {word, len};

	return tcp_socket_send(c, &v, 1) == (ssize_t)len;
}

/* SUCCESS: all of the word is there. AGAIN: not yet. REMOTE: the connection has
 * ended, and errno says why. No byte beyond the word is read. */
static dicomm_result_t receive_word(struct tcp_conn *c, void *word, size_t len)
{
	struct tcp_handshake *g = c->handshake;
	struct iovec v = {(uint8_t *)word + g->have, len - g->have};
	ssize_t n = tcp_socket_receive(c, &v, 1);

	if (n < 0)
		return DICOMM_ERR_REMOTE;
	g->have += (size_t)n;
	if (g->have < len)
		return DICOMM_AGAIN;
	g->have = 0;
	return DICOMM_SUCCESS;
}

/* ---- open ---- */

/* NULL: it can be used. */
static const char *seal(struct tcp_conn *c)
{
	uint8_t secret[TCP_SEAL_KEY];

	if (c->dev->protection == TCP_CLEAR)
		return NULL;
	if (!tcp_handshake_secret(c, secret))
		return "its public key is not a valid one";
	c->seal = c->dev->protection == TCP_ENCRYPTED
			  ? tcp_seal_open(secret, c->link->initiator)
			  : tcp_seal_open_signed(secret, c->link->initiator);
	sodium_memzero(secret, sizeof(secret));
	return c->seal ? NULL : "out of memory";
}

static void open_conn(struct tcp_conn *c)
{
	struct tcp_link *link = c->link;
	const char *why = seal(c);

	tcp_handshake_end(c);
	if (!why && tcp_send_open(c, tcp_link_lost) != DICOMM_SUCCESS)
		why = "out of memory";
	if (why) {
		framed_link_fail(&link->base, DICOMM_ERR_REMOTE, "%s", why);
		return;
	}
	c->state = TCP_OPEN;
	c->dev->open++;
	tcp_socket_watch(c, EPOLLIN);
	if (++link->open == link->count)
		tcp_link_ready(link);
}

/* ---- the initiator ---- */

static void connect_failed(struct tcp_link *link, int error)
{
	framed_link_fail(&link->base, DICOMM_ERR_REMOTE, "connect to %s: %s",
			 link->address->listen, strerror(error));
}

static void send_hello(struct tcp_conn *c)
{
	const struct tp_config *config = &c->dev->base.config;
	struct tcp_hello *h = &c->handshake->hello;

	h->type = TCP_HELLO;
	h->from_rank = (uint32_t)config->rank;
	h->to_rank = c->link->base.rank;
	h->ranks = (uint32_t)config->ranks;
	h->slots = config->slots;
	h->slot_bytes = config->slot_bytes;
	h->index = c->index;
	h->count = c->link->count;
	h->token = c->link->address->base.token;
	h->protection = c->dev->protection;
	randombytes_buf(h->nonce, sizeof(h->nonce));
	tcp_handshake_make_pair(c, h->public);
	tcp_handshake_prove_hello(h, config->key, h->proof);
	c->state = TCP_HELLO_SENT;
	c->deadline_ms = 0;
	tcp_socket_watch(c, EPOLLIN);
	if (!send_word(c, h, sizeof(*h)))
		framed_link_fail(&c->link->base, DICOMM_ERR_REMOTE,
				 "send a hello to %s: %s",
				 c->link->address->listen, strerror(errno));
}

/* 0: as long as the kernel tries. */
static uint64_t connect_until_ms(const struct tp_device *dev)
{
	uint64_t now_ms = clock_ms();

	if (now_ms - dev->opened_ms < MEETING_MS)
		return now_ms + UNANSWERED_MS;
	return dev->silent_ms ? now_ms + dev->silent_ms : 0;
}

static void connect_one(struct tcp_link *link, uint32_t index)
{
	struct tcp_conn *c = NULL;
	int fd = tcp_socket_connect(link->base.dev, link->address->listen);

	if (fd >= 0)
		c = tcp_socket_add(link->base.dev, fd, TCP_CONNECTING,
				   EPOLLOUT);
	if (!c) {
		connect_failed(link, fd < 0 ? errno : ENOMEM);
		return;
	}
	c->link = link;
	c->index = index;
	c->deadline_ms = connect_until_ms(link->base.dev);
	link->conn[index] = c;
	if (!tcp_handshake_begin(c))
		connect_failed(link, ENOMEM);
}

/* Connect those connections of the link that are missing. */
static void connect_all(struct tcp_link *link)
{
	for (uint32_t i = 0;
	     i < link->count && !atomic_load(&link->base.status); i++)
		if (!link->conn[i])
			connect_one(link, i);
}

void tcp_join_connect(struct tcp_link *link)
{
	if (link->count || link->closed || atomic_load(&link->base.status))
		return;
	link->initiator = true;
	link->count = link->base.dev->connections;
	connect_all(link);
}

static void drop_connections(struct tcp_link *link)
{
	tcp_link_drop(link);
	link->count = 0;
	link->initiator = false;
}

/* The connection has ended before an answer, or the answer proves nothing.
 * Anybody who can disturb the network may have caused that, so try again. The
 * peer keeps the other connections of the link: it would take their end for
 * that of this rank, or refuse others in their place. */
static void retry_later(struct tcp_conn *c, const char *why)
{
	struct tcp_link *link = c->link;

	if (!link->retry && ++link->attempts > ATTEMPTS_MAX) {
		framed_link_fail(&link->base, DICOMM_ERR_REMOTE,
				 "%s does not answer a hello: %s",
				 link->address->listen, why);
		return;
	}
	tcp_socket_drop(c);
	if (link->retry)
		return;
	link->retry_ms = clock_ms() + RETRY_MS;
	link->retry = true;
	link->base.dev->pending++;
}

static void on_connected(struct tcp_conn *c)
{
	socklen_t len = sizeof(int);
	int error = 0;

	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len);
	if (error)
		connect_failed(c->link, error);
	else
		send_hello(c);
}

/* This process may have been stopped since the answer came. */
static bool is_answered(const struct tcp_conn *c)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	return getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
	       info.tcpi_state != TCP_SYN_SENT;
}

static void on_unanswered(struct tcp_conn *c)
{
	if (!is_answered(c))
		framed_link_fail(
			&c->link->base, DICOMM_ERR_REMOTE,
			"no answer to connect to %s (does a firewall "
			"drop it? DICOMM_PORT_RANGE says which ports are "
			"used)",
			c->link->address->listen);
}

static void on_answer(struct tcp_conn *c)
{
	struct tcp_handshake *g = c->handshake;
	struct tcp_link *link = c->link;
	const uint8_t *key = c->dev->base.config.key;
	dicomm_result_t status = receive_word(c, &g->answer, sizeof(g->answer));
	uint8_t proof[TCP_PROOF];

	if (status == DICOMM_AGAIN)
		return;
	if (status != DICOMM_SUCCESS) {
		retry_later(c, errno ? strerror(errno) : "connection closed");
		return;
	}
	tcp_handshake_prove_answer(g, key, proof);
	if (sodium_memcmp(proof, g->answer.proof, sizeof(proof)) ||
	    g->answer.type != TCP_ANSWER || g->answer.why[55]) {
		retry_later(c, "its answer does not prove who it is");
		return;
	}
	if (g->answer.verdict == TCP_CROSSED) {
		drop_connections(link); /* the peer connects */
		return;
	}
	if (g->answer.verdict != TCP_WELCOME) {
		framed_link_fail(&link->base, DICOMM_ERR_REMOTE,
				 "%s refuses: %s", link->address->listen,
				 g->answer.why);
		return;
	}
	tcp_handshake_prove_confirm(g, key, g->confirm.proof);
	if (send_word(c, &g->confirm, sizeof(g->confirm)))
		open_conn(c);
	else
		framed_link_fail(&link->base, DICOMM_ERR_REMOTE,
				 "send a confirm to %s: %s",
				 link->address->listen, strerror(errno));
}

/* ---- the acceptor ---- */

void tcp_join_accept(struct tp_device *dev)
{
	uint32_t most = (uint32_t)dev->base.config.ranks * TCP_CONNECTIONS;
	struct tcp_conn *c;
	int fd = tcp_socket_accept(dev);

	if (fd < 0)
		return;
	c = tcp_socket_add(dev, fd, TCP_ACCEPTED, EPOLLIN);
	if (!c)
		return;
	if (!tcp_handshake_begin(c)) {
		tcp_socket_drop(c);
		return;
	}
	c->deadline_ms = clock_ms() + STRANGER_MS;
	strangers_add(&dev->strangers, &c->stranger, c);
	/* Its hello is often there, and then it is no stranger any more. */
	tcp_join_advance(c);
	c = strangers_surplus(&dev->strangers, most);
	if (c)
		tcp_socket_drop(c);
}

/* Why a genuine hello is refused; NULL: it is not. */
static const char *refusal(const struct tp_device *dev,
			   const struct tcp_hello *h)
{
	const struct tp_config *config = &dev->base.config;
	const struct tcp_link *link;

	if (h->to_rank != (uint32_t)config->rank ||
	    h->ranks != (uint32_t)config->ranks || h->from_rank >= h->ranks ||
	    h->from_rank == h->to_rank)
		return "no such rank";
	if (h->slots != config->slots || h->slot_bytes != config->slot_bytes)
		return "its slots are not like mine";
	if (!h->count || h->count > TCP_CONNECTIONS || h->index >= h->count)
		return "no such number of connections";
	/* Addresses contain that, too, so no rank of the job comes so far. */
	if (h->protection != dev->protection)
		return "its DICOMM_ENCRYPT is another";
	link = &dev->links[h->from_rank];
	if (link->closed || atomic_load(&link->base.status))
		return "it has closed its side";
	if (!link->initiator && link->count &&
	    (link->count != h->count || link->conn[h->index]))
		return "it is connected already";
	return NULL;
}

static bool attach(struct tcp_conn *c, const struct tcp_hello *h)
{
	struct tcp_link *link = &c->dev->links[h->from_rank];

	/* The peer is the lower one. */
	if (link->initiator)
		drop_connections(link);
	link->count = h->count;
	link->conn[h->index] = c;
	c->link = link;
	c->index = h->index;
	return true;
}

static void send_answer(struct tcp_conn *c)
{
	struct tp_device *dev = c->dev;
	struct tcp_handshake *g = c->handshake;
	struct tcp_answer *a = &g->answer;
	const char *why = refusal(dev, &g->hello);
	const struct tcp_link *link;

	a->type = TCP_ANSWER;
	a->verdict = why ? TCP_REFUSED : TCP_WELCOME;
	if (why)
		snprintf(a->why, sizeof(a->why), "%s", why);
	link = why ? NULL : &dev->links[g->hello.from_rank];
	if (link && link->initiator &&
	    link->base.rank > (uint32_t)dev->base.config.rank)
		a->verdict = TCP_CROSSED;
	randombytes_buf(a->nonce, sizeof(a->nonce));
	tcp_handshake_make_pair(c, a->public);
	tcp_handshake_prove_answer(g, dev->base.config.key, a->proof);
	if (!send_word(c, a, sizeof(*a)) || a->verdict != TCP_WELCOME) {
		tcp_socket_drop(c);
		return;
	}
	attach(c, &g->hello);
	strangers_remove(&dev->strangers, &c->stranger);
	c->state = TCP_ANSWER_SENT;
	c->deadline_ms = clock_ms() + PROVED_MS;
}

static void on_hello(struct tcp_conn *c)
{
	struct tcp_hello *h = &c->handshake->hello;
	dicomm_result_t status = receive_word(c, h, sizeof(*h));
	uint8_t proof[TCP_PROOF];

	if (status == DICOMM_AGAIN)
		return;
	tcp_handshake_prove_hello(h, c->dev->base.config.key, proof);
	if (status == DICOMM_SUCCESS && h->type == TCP_HELLO &&
	    h->token == c->dev->base.token &&
	    !sodium_memcmp(proof, h->proof, sizeof(proof))) {
		send_answer(c);
		return;
	}
	log_debug("tcp: a stranger is turned away");
	tcp_socket_drop(c);
}

/* The hello may have been a copy: its link becomes free for the true peer. */
static void drop_unproved(struct tcp_conn *c)
{
	struct tcp_link *link = c->link;

	tcp_socket_drop(c);
	if (link && !link->open) {
		for (uint32_t i = 0; i < TCP_CONNECTIONS; i++)
			if (link->conn[i])
				return;
		link->count = 0;
	}
}

static void on_confirm(struct tcp_conn *c)
{
	struct tcp_handshake *g = c->handshake;
	dicomm_result_t status =
		receive_word(c, &g->confirm, sizeof(g->confirm));
	uint8_t proof[TCP_PROOF];

	if (status == DICOMM_AGAIN)
		return;
	tcp_handshake_prove_confirm(g, c->dev->base.config.key, proof);
	if (status == DICOMM_SUCCESS &&
	    !sodium_memcmp(proof, g->confirm.proof, sizeof(proof)))
		open_conn(c);
	else
		drop_unproved(c);
}

/* ---- both ---- */

void tcp_join_advance(struct tcp_conn *c)
{
	if (c->state == TCP_CONNECTING)
		on_connected(c);
	else if (c->state == TCP_HELLO_SENT)
		on_answer(c);
	else if (c->state == TCP_ACCEPTED)
		on_hello(c);
	else if (c->state == TCP_ANSWER_SENT)
		on_confirm(c);
}

static void retry_due(struct tp_device *dev, uint64_t now_ms)
{
	for (int r = 0; r < dev->base.config.ranks; r++) {
		struct tcp_link *link = &dev->links[r];

		if (!link->retry || link->retry_ms > now_ms)
			continue;
		link->retry = false;
		dev->pending--;
		connect_all(link);
	}
}

void tcp_join_tick(struct tp_device *dev, uint64_t now_ms)
{
	struct tcp_conn *next;

	if (now_ms < dev->tick_ms)
		return;
	dev->tick_ms = now_ms + TICK_MS;
	tcp_socket_resume(dev);
	for (struct tcp_conn *c = dev->conns; c; c = next) {
		next = c->next;
		if (!c->deadline_ms || c->state == TCP_OPEN ||
		    now_ms <= c->deadline_ms)
			continue;
		if (c->state == TCP_CONNECTING) {
			/* All of its link have gone with it: the next tick sees
			 * to the rest. */
			on_unanswered(c);
			break;
		}
		drop_unproved(c);
	}
	retry_due(dev, now_ms);
}
