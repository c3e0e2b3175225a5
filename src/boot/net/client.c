/* SPDX-License-Identifier: BSD-3-Clause */
/* Connects to an id server or a hub; the client's side of the handshake. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "src/boot/net/client.h"
#include "src/boot/net/handshake.h"

#define POLL_MS 20 /* a cancellation is noticed within this time */
/* A rank that tries says so after this time, and again after each such time. */
#define SAY_NS UINT64_C(10000000000)
#define RETRY_FIRST_MS 5
#define RETRY_MAX_MS 500
/* The first question comes this long before the deadline. */
#define ASK_NS 10000000000ull
/* The last question comes this long before the deadline. */
#define ASK_LAST_NS 20000000ull
#define ATTEMPT_NS 20000000000ull /* for one connection with its handshake */

static bool is_cancelled(const _Atomic bool *cancelled)
{
	return cancelled && atomic_load(cancelled);
}

uint64_t client_next_ask(uint64_t until_ns)
{
	uint64_t now = clock_ns(), left;

	if (now + ASK_LAST_NS >= until_ns)
		return until_ns;
	left = (until_ns - now) / 2;
	return until_ns - (left < ASK_NS ? left : ASK_NS);
}

static void released(struct loop_source *s)
{
	conn_fini((struct conn *)s);
	free(s);
}

void client_close(struct client *c)
{
	if (!c)
		return;
	loop_lock();
	conn_drop(&c->conn);
	loop_unlock();
}

void client_linger(struct client *c)
{
	if (!c)
		return;
	loop_lock();
	conn_linger(&c->conn);
	loop_unlock();
}

/* The frames of joining are small and fit into an empty socket buffer. If one
 * does not, the next flush sends it. */
void client_send(struct client *c, const struct frame_writer *frame)
{
	conn_send(&c->conn, frame);
	conn_flush(&c->conn);
}

/* Sleeps until a connection may have something to read, for at most POLL_MS. */
static void wait_readable(struct client *const c[2], uint64_t until_ns)
{
	struct pollfd p[2];
	uint64_t now = clock_ns();
	nfds_t n = 0;
	int ms = POLL_MS;

	for (int i = 0; i < 2; i++)
		if (c[i])
			p[n++] = (struct pollfd){
				.fd = c[i]->conn.source.fd,
				.events = conn_has_output(&c[i]->conn)
						  ? POLLIN | POLLOUT
						  : POLLIN};
	if (until_ns < now + POLL_MS * 1000000ull)
		ms = until_ns > now ? (int)((until_ns - now) / 1000000u) + 1
				    : 0;
	poll(p, n, ms);
}

/* Returns true if there is a result: a frame, or the loss of the connection. */
static bool look(struct client *c, dicomm_result_t *status,
		 enum frame_type *type, struct frame_reader *in, char *why)
{
	enum frame_found found = FRAME_MORE;
	int err;

	conn_flush(&c->conn);
	if (c->conn.in)
		found = conn_next(&c->conn, type, in);
	if (found == FRAME_MORE) {
		err = conn_fill(&c->conn);
		if (err && err != EAGAIN) {
			conn_reason(err, why);
			*status = DICOMM_ERR_REMOTE;
			return true;
		}
		found = conn_next(&c->conn, type, in);
	}
	if (found == FRAME_GARBAGE || found == FRAME_FORGED) {
		snprintf(why, FRAME_TEXT, "%s",
			 found == FRAME_FORGED ? conn_forged
					       : "it sent what does not parse");
		*status = DICOMM_ERR_REMOTE;
		return true;
	}
	*status = DICOMM_SUCCESS;
	return found == FRAME_COMPLETE;
}

dicomm_result_t client_next(struct client *a, struct client *b,
			    uint64_t until_ns, const _Atomic bool *cancelled,
			    struct client **from, enum frame_type *type,
			    struct frame_reader *in, char why[FRAME_TEXT])
{
	struct client *c[2] = {a, b};
	dicomm_result_t status;

	for (;;) {
		for (int i = 0; i < 2; i++) {
			*from = c[i];
			if (c[i] && look(c[i], &status, type, in, why))
				return status;
		}
		if (is_cancelled(cancelled)) {
			snprintf(why, FRAME_TEXT, "aborted by this rank");
			return DICOMM_ERR_ABORTED;
		}
		if (clock_ns() >= until_ns) {
			snprintf(why, FRAME_TEXT, "no answer");
			return DICOMM_ERR_TIMEOUT;
		}
		wait_readable(c, until_ns);
	}
}

/* Before a proof: whoever says it, the caller tries again. */
static dicomm_result_t unproved(struct client *c, dicomm_result_t claimed,
				char *why, const char *words)
{
	c->claimed = claimed;
	snprintf(why, FRAME_TEXT, "%.900s (it has not proved who it is)",
		 words);
	return DICOMM_ERR_REMOTE;
}

/* Waits for the frame that the handshake expects now. Returns DICOMM_ERR_REMOTE
 * for any other frame: the other end does not belong to this library, or no
 * longer does, or refuses without a proof, so the caller may try again. */
static dicomm_result_t expect(struct client *c, enum frame_type wanted,
			      const struct client_patience *p,
			      uint64_t until_ns, struct frame_reader *in,
			      char *why)
{
	enum frame_type type;
	struct client *from;
	char words[FRAME_TEXT];
	uint32_t code;

	TRY(client_next(c, NULL, until_ns, p->cancelled, &from, &type, in,
			why));
	if (type == wanted)
		return DICOMM_SUCCESS;
	if (type == FRAME_REFUSED) {
		code = frame_get_u32(in);
		frame_get_text(in, words, sizeof(words));
		if (frame_done(in))
			return unproved(c, frame_status(code), why, words);
	}
	snprintf(why, FRAME_TEXT, "it does not keep to the handshake");
	return DICOMM_ERR_REMOTE;
}

static dicomm_result_t receive_challenge(struct client *c, struct handshake *h,
					 const struct client_patience *p,
					 uint64_t until_ns, char *why)
{
	struct frame_reader in;
	char words[128];
	uint64_t magic;
	uint32_t protocol;

	TRY(expect(c, FRAME_CHALLENGE, p, until_ns, &in, why));
	magic = frame_get_u64(&in);
	protocol = frame_get_u32(&in);
	if (magic == HANDSHAKE_MAGIC && protocol != HANDSHAKE_PROTOCOL) {
		snprintf(words, sizeof(words),
			 "it speaks version %u of the join protocol, this "
			 "rank version %u",
			 protocol, HANDSHAKE_PROTOCOL);
		return unproved(c, DICOMM_ERR_INVALID_USAGE, why, words);
	}
	frame_get_bytes(&in, h->listener_nonce, sizeof(h->listener_nonce));
	frame_get_bytes(&in, h->listener_public, sizeof(h->listener_public));
	if (frame_done(&in) && magic == HANDSHAKE_MAGIC)
		return DICOMM_SUCCESS;
	snprintf(why, FRAME_TEXT, "something else listens there");
	return DICOMM_ERR_REMOTE;
}

static dicomm_result_t receive_welcome(struct client *c,
				       const struct handshake *h,
				       const uint8_t key[AUTH_KEY],
				       const struct client_patience *p,
				       uint64_t until_ns, char *why)
{
	uint8_t proof[AUTH_PROOF];
	struct frame_reader in;

	TRY(expect(c, FRAME_WELCOME, p, until_ns, &in, why));
	frame_get_bytes(&in, proof, sizeof(proof));
	if (frame_done(&in) &&
	    handshake_check(h, key, HANDSHAKE_LISTENER, proof))
		return DICOMM_SUCCESS;
	snprintf(why, FRAME_TEXT,
		 "what listens there does not know the secret");
	return DICOMM_ERR_REMOTE;
}

static dicomm_result_t seal(struct client *c, const struct handshake *h,
			    const uint8_t key[AUTH_KEY],
			    const struct auth_pair *pair, char *why)
{
	struct seal_keys keys;
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!handshake_keys(h, key, HANDSHAKE_CLIENT, pair, &keys)) {
		snprintf(why, FRAME_TEXT, "its public key is not a valid one");
		status = DICOMM_ERR_REMOTE;
	} else if (!conn_seal(&c->conn, &keys)) {
		snprintf(why, FRAME_TEXT, "out of memory");
		status = DICOMM_ERR_NO_MEMORY;
	}
	auth_forget(&keys, sizeof(keys));
	return status;
}

static dicomm_result_t shake_hands(struct client *c,
				   const uint8_t key[AUTH_KEY],
				   const struct client_patience *p,
				   uint64_t until_ns, char *why)
{
	uint8_t proof[AUTH_PROOF];
	struct frame_writer out;
	struct auth_pair pair;
	dicomm_result_t status;
	struct handshake h;

	/* Meanwhile the other end finds the connection. */
	auth_make_pair(&pair);
	status = receive_challenge(c, &h, p, until_ns, why);
	if (status != DICOMM_SUCCESS) {
		auth_forget(&pair, sizeof(pair));
		return status;
	}
	auth_random(h.client_nonce, sizeof(h.client_nonce));
	memcpy(h.client_public, pair.public, sizeof(h.client_public));
	handshake_prove(&h, key, p->asks ? HANDSHAKE_ASKER : HANDSHAKE_CLIENT,
			proof);
	frame_begin(&out, p->asks ? FRAME_ASKER : FRAME_PROOF);
	frame_put_bytes(&out, h.client_nonce, sizeof(h.client_nonce));
	frame_put_bytes(&out, h.client_public, sizeof(h.client_public));
	frame_put_bytes(&out, proof, sizeof(proof));
	client_send(c, &out);
	status = receive_welcome(c, &h, key, p, until_ns, why);
	if (status == DICOMM_SUCCESS)
		status = seal(c, &h, key, &pair, why);
	auth_forget(&pair, sizeof(pair));
	return status;
}

static dicomm_result_t create(const struct sock_address *address,
			      const char *text, struct client **out, char *why)
{
	struct client *c = calloc(1, sizeof(*c));
	int fd;

	if (!c) {
		snprintf(why, FRAME_TEXT, "out of memory");
		return DICOMM_ERR_NO_MEMORY;
	}
	/* With the lock held, no fork can happen between socket() and
	 * conn_init(): a child of fork() closes only registered sockets. */
	loop_lock();
	fd = sock_create(address);
	if (fd >= 0)
		conn_init(&c->conn, fd, FRAME_MAX);
	else
		snprintf(why, FRAME_TEXT, "socket: %m");
	loop_unlock();
	if (fd < 0) {
		free(c);
		return DICOMM_ERR_SYSTEM;
	}
	c->conn.source.released = released;
	snprintf(c->conn.remote, sizeof(c->conn.remote), "%s", text);
	tcp_tune(fd);
	*out = c;
	return DICOMM_SUCCESS;
}

/* Tries once. DICOMM_ERR_TIMEOUT and DICOMM_ERR_REMOTE are worth a retry. */
static dicomm_result_t attempt(const char *text, unsigned turn,
			       const uint8_t key[AUTH_KEY],
			       const struct client_patience *p, bool *nobody,
			       dicomm_result_t *claimed, struct client **out,
			       char *why)
{
	uint64_t until_ns = clock_ns() + ATTEMPT_NS;
	struct sock_address address;
	dicomm_result_t status;
	struct client *c;
	const char *reason;
	int err;

	*nobody = false;
	*claimed = DICOMM_SUCCESS;
	if (until_ns > p->until_ns)
		until_ns = p->until_ns;
	if (!sock_resolve_turn(text, turn, &address, &reason)) {
		snprintf(why, FRAME_TEXT, "resolve: %s", reason);
		return DICOMM_ERR_REMOTE;
	}
	TRY(create(&address, text, &c, why));
	err = sock_connect(c->conn.source.fd, &address, until_ns, p->cancelled);
	if (err) {
		snprintf(why, FRAME_TEXT, "%s", strerror(err));
		*nobody = err == ECONNREFUSED;
		status = err == ECANCELED ? DICOMM_ERR_ABORTED
					  : DICOMM_ERR_REMOTE;
	} else {
		status = shake_hands(c, key, p, until_ns, why);
		*claimed = c->claimed;
	}
	if (status == DICOMM_SUCCESS)
		*out = c;
	else
		client_close(c);
	return status;
}

/* The pause has a random part, so that hundreds of ranks do not retry in
 * step. */
static void pause_ms(unsigned ms)
{
	uint8_t r;

	auth_random(&r, 1);
	ms += ms * r / 255;
	nanosleep(&(struct timespec){.tv_sec = ms / 1000,
				     .tv_nsec = ms % 1000 * 1000000},
		  NULL);
}

/* What the attempts so far have found. */
struct findings {
	char why[FRAME_TEXT]; /* the last that is worth telling */
	dicomm_result_t claimed;
	bool told;
};

static void keep_finding(struct findings *f, const char *address,
			 dicomm_result_t status, dicomm_result_t claimed,
			 char *why)
{
	/* The deadline may cut the last attempt short, and who has refused may
	 * be gone; so report what an earlier one found. */
	if (status == DICOMM_ERR_REMOTE && (claimed || !f->claimed)) {
		memcpy(f->why, why, sizeof(f->why));
		f->claimed = claimed;
	} else if (f->why[0]) {
		memcpy(why, f->why, sizeof(f->why));
	}
	if (claimed && !f->told)
		log_warn("%s: %s: trying again", address, why);
	f->told |= claimed != DICOMM_SUCCESS;
}

dicomm_result_t client_open(const char *address, const uint8_t key[AUTH_KEY],
			    const struct client_patience *p,
			    struct client **out, char why[FRAME_TEXT])
{
	uint64_t begin_ns = clock_ns(), say_ns = begin_ns + SAY_NS, now;
	unsigned ms = RETRY_FIRST_MS, turn = 0;
	struct findings found = {.why = ""};
	dicomm_result_t status, claimed;
	bool nobody;

	for (;;) {
		status = attempt(address, turn++, key, p, &nobody, &claimed,
				 out, why);
		if (status != DICOMM_ERR_REMOTE && status != DICOMM_ERR_TIMEOUT)
			return status;
		if (claimed && p->asks)
			return claimed;
		keep_finding(&found, address, status, claimed, why);
		if (nobody && !p->until_it_listens)
			return found.claimed ? found.claimed
					     : DICOMM_ERR_REMOTE;
		now = clock_ns();
		if (now + ms * 1000000ull >= p->until_ns)
			return found.claimed ? found.claimed
					     : DICOMM_ERR_TIMEOUT;
		if (now >= say_ns && p->says) {
			log_warn("%s at %s does not answer, since %d s: %s",
				 p->says, address,
				 (int)((now - begin_ns) / 1000000000u), why);
			say_ns += SAY_NS;
		}
		log_debug("%s: %s, trying again", address, why);
		pause_ms(ms);
		if (is_cancelled(p->cancelled))
			return DICOMM_ERR_ABORTED;
		if (ms < RETRY_MAX_MS)
			ms *= 2;
	}
}
