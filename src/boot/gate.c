/* SPDX-License-Identifier: BSD-3-Clause */
/* The listener's side of the handshake. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "src/boot/gate.h"
#include "src/boot/handshake.h"

#define STRANGERS_MAX 2048 /* at a time; more push out the oldest */
#define PAUSE_NS 200000000ull

uint64_t gate_patience_ns = 10000000000u;

static void forget(struct guest *guest)
{
	struct gate *g = guest->gate;

	if (!g)
		return;
	*guest->link = guest->next;
	if (guest->next)
		guest->next->link = guest->link;
	else
		g->last = guest->link;
	g->strangers--;
	guest->gate = NULL;
}

/* Who has proved himself is not asked to come again: his hello may be here
 * already, and he takes what happens then for the end of the meeting. */
static struct guest *oldest_unproved(const struct gate *g)
{
	struct guest *guest = g->first;

	while (guest && guest->proved)
		guest = guest->next;
	return guest;
}

static void turn_away(struct guest *guest, const char *why)
{
	log_warn("%s: dropped %s: %s", guest->gate->name, guest->conn.peer,
		 why);
	forget(guest);
	conn_drop(&guest->conn);
}

void gate_refuse(struct guest *guest, dicomm_result_t status, const char *why)
{
	struct wire_out out;

	forget(guest);
	wire_begin(&out, WIRE_REFUSED);
	wire_put_u32(&out, (uint32_t)status);
	wire_put_text(&out, why);
	wire_end(&out);
	conn_send(&guest->conn, &out);
	conn_linger(&guest->conn);
}

static void check_proof(struct guest *guest, struct wire_in *in)
{
	struct gate *g = guest->gate;
	uint8_t nonce[AUTH_NONCE], proof[AUTH_PROOF];
	struct wire_out out;

	wire_bytes(in, nonce, sizeof(nonce));
	wire_bytes(in, proof, sizeof(proof));
	if (!wire_done(in)) {
		turn_away(guest, "it sent what does not parse");
		return;
	}
	if (!auth_check(g->key, AUTH_GUEST, guest->nonce, nonce, proof)) {
		log_warn("%s: refused %s: it does not know the secret", g->name,
			 guest->conn.peer);
		gate_refuse(guest, DICOMM_ERR_INVALID_USAGE,
			    "wrong secret: the id or DICOMM_COMM_KEY is not "
			    "the one of this job");
		return;
	}
	auth_prove(g->key, AUTH_LISTENER, guest->nonce, nonce, proof);
	wire_begin(&out, WIRE_WELCOME);
	wire_put_bytes(&out, proof, sizeof(proof));
	wire_end(&out);
	conn_send(&guest->conn, &out);
	guest->proved = true;
	guest->conn.limit = WIRE_MAX;
}

static void stranger_frame(struct conn *c, enum wire_type type,
			   struct wire_in *in)
{
	struct guest *guest = (struct guest *)c;
	struct gate *g = guest->gate;

	if (!guest->proved && type == WIRE_PROOF) {
		check_proof(guest, in);
	} else if (guest->proved && type == WIRE_HELLO) {
		forget(guest);
		loop_deadline(&c->source, 0);
		g->admit(g->owner, guest, in);
	} else {
		turn_away(guest, "it does not keep to the handshake");
	}
}

static void stranger_lost(struct conn *c, const char *why)
{
	struct guest *guest = (struct guest *)c;

	if (c->in_len) {
		turn_away(guest, why);
		return;
	}
	/* Who only looks whether somebody listens does so without a word. */
	log_debug("%s: %s left without a word: %s", guest->gate->name, c->peer,
		  why);
	forget(guest);
	conn_drop(c);
}

static void stranger_expired(struct loop_source *s)
{
	turn_away((struct guest *)s, "it did not complete the handshake");
}

static void guest_released(struct loop_source *s)
{
	conn_fini((struct conn *)s);
	free(s);
}

static void challenge(struct guest *guest)
{
	struct wire_out out;

	auth_random(guest->nonce, sizeof(guest->nonce));
	wire_begin(&out, WIRE_CHALLENGE);
	wire_put_u64(&out, HANDSHAKE_MAGIC);
	wire_put_u32(&out, HANDSHAKE_PROTOCOL);
	wire_put_bytes(&out, guest->nonce, sizeof(guest->nonce));
	wire_end(&out);
	conn_send(&guest->conn, &out);
}

static void receive_guest(struct gate *g, int fd)
{
	struct guest *guest = calloc(1, sizeof(*guest));

	if (!guest) {
		log_warn("%s: out of memory for a connection", g->name);
		close(fd);
		return;
	}
	tcp_tune(fd);
	sock_peer(fd, guest->conn.peer);
	conn_init(&guest->conn, fd, HANDSHAKE_LIMIT);
	guest->conn.source.released = guest_released;
	guest->conn.source.expired = stranger_expired;
	guest->conn.frame = stranger_frame;
	guest->conn.lost = stranger_lost;
	guest->gate = g;
	guest->link = g->last;
	*g->last = guest;
	g->last = &guest->next;
	g->strangers++;
	loop_deadline(&guest->conn.source, clock_ns() + gate_patience_ns);
	challenge(guest);
	if (conn_serve(&guest->conn) != DICOMM_SUCCESS)
		turn_away(guest, "it cannot be watched");
	else if (g->strangers > STRANGERS_MAX)
		turn_away(oldest_unproved(g), "too many have come at once");
}

/* Who hangs about unproved goes first. */
static void make_room(struct gate *g)
{
	struct guest *guest = oldest_unproved(g);

	if (!g->told_shortage)
		log_warn("%s: accept: %m", g->name);
	g->told_shortage = true;
	if (guest) {
		turn_away(guest, "its descriptor is needed");
		return;
	}
	loop_watch(&g->source, 0);
	loop_deadline(&g->source, clock_ns() + PAUSE_NS);
}

static void gate_expired(struct loop_source *s)
{
	loop_watch(s, EPOLLIN);
}

static void gate_ready(struct loop_source *s, uint32_t events)
{
	struct gate *g = (struct gate *)s;

	(void)events;
	for (int i = 0; i < 64; i++) {
		int fd = descriptors_high(accept4(
			s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

		if (fd >= 0) {
			receive_guest(g, fd);
		} else if (tcp_is_short(errno)) {
			make_room(g);
			return;
		} else if (errno == EWOULDBLOCK) {
			return;
		}
		/* Anything else concerns one connection that has gone. */
	}
}

static void gate_released(struct loop_source *s)
{
	free(s);
}

dicomm_result_t gate_open(int fd, const uint8_t key[AUTH_KEY], const char *name,
			  struct gate **out)
{
	struct gate *g = calloc(1, sizeof(*g));
	dicomm_result_t status;

	if (!g) {
		close(fd);
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: out of memory", name);
	}
	g->source.fd = fd;
	g->source.ready = gate_ready;
	g->source.expired = gate_expired;
	g->source.released = gate_released;
	g->name = name;
	g->last = &g->first;
	memcpy(g->key, key, AUTH_KEY);
	loop_add(&g->source);
	status = loop_watch(&g->source, EPOLLIN);
	if (status != DICOMM_SUCCESS)
		loop_drop(&g->source);
	else
		*out = g;
	return status;
}

void gate_close(struct gate *g)
{
	struct guest *guest;

	if (!g)
		return;
	/* Honest late-comers try again, and learn that it is over. */
	while ((guest = g->first)) {
		forget(guest);
		conn_drop(&guest->conn);
	}
	loop_drop(&g->source);
	auth_forget(g->key, sizeof(g->key));
}
