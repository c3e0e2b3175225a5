/* SPDX-License-Identifier: BSD-3-Clause */
/* The listener's side of the handshake. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "src/base/descriptors.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "src/boot/net/listener.h"

/* Ranks that may come at the same time: this one does not know how many there
 * are before they have come. */
#define RANKS_MOST 2048
#define PAUSE_NS 200000000ull
#define TURN 64 /* connections accepted at a time */
#define LOG_NS 1000000000ull
/* The same for one that stays for the life of a job */
#define LOG_RETIRED_NS 60000000000ull
/* So many connections are accepted before a pause, when no rank is waited for:
 * who connects without end takes no core. */
#define RETIRED_TURN 16
#define RETIRED_PAUSE_NS 50000000ull

uint64_t listener_patience_ns = 10000000000u;

static void unlink_pending(struct peer_conn *peer)
{
	struct listener *l = peer->listener;

	if (!l)
		return;
	*peer->link = peer->next;
	if (peer->next)
		peer->next->link = peer->link;
	strangers_remove(&l->unproved, &peer->stranger);
	l->pending--;
	peer->listener = NULL;
}

/* Logs a stranger: the first one at once, then one line per second with the
 * number of strangers in between, because anybody can connect as often as he
 * likes. */
static void log_stranger(struct listener *l, const char *remote,
			 const char *what, const char *why)
{
	uint64_t now = clock_ns();

	if (l->told_ns &&
	    now - l->told_ns < (l->retired ? LOG_RETIRED_NS : LOG_NS)) {
		l->strangers++;
		return;
	}
	if (l->strangers)
		log_warn("%s: %s %s: %s (and %u other connections before it)",
			 l->name, what, remote, why, l->strangers);
	else
		log_warn("%s: %s %s: %s", l->name, what, remote, why);
	l->told_ns = now;
	l->strangers = 0;
}

static void drop_pending(struct peer_conn *peer, const char *why)
{
	log_stranger(peer->listener, peer->conn.remote, "dropped", why);
	unlink_pending(peer);
	conn_drop(&peer->conn);
}

void listener_refuse(struct peer_conn *peer, dicomm_result_t status,
		     const char *why)
{
	struct frame_writer out;

	unlink_pending(peer);
	frame_begin(&out, FRAME_REFUSED);
	frame_put_u32(&out, (uint32_t)status);
	frame_put_text(&out, why);
	conn_send(&peer->conn, &out);
	conn_linger(&peer->conn);
}

static bool seal(struct peer_conn *peer, const uint8_t key[AUTH_KEY])
{
	struct listener *l = peer->listener;
	struct seal_keys keys;
	bool sealed = handshake_keys(&peer->handshake, key, HANDSHAKE_LISTENER,
				     &l->pair, &keys) &&
		      conn_seal(&peer->conn, &keys);

	auth_forget(&keys, sizeof(keys));
	return sealed;
}

/* Checks the proof of a client or an asker, and answers it. Otherwise refuses
 * or drops it, and returns false. */
static bool check_proof(struct peer_conn *peer, enum handshake_role role,
			const uint8_t key[AUTH_KEY], struct frame_reader *in)
{
	struct listener *l = peer->listener;
	struct handshake *h = &peer->handshake;
	uint8_t proof[AUTH_PROOF];
	struct frame_writer out;

	frame_get_bytes(in, h->client_nonce, sizeof(h->client_nonce));
	frame_get_bytes(in, h->client_public, sizeof(h->client_public));
	frame_get_bytes(in, proof, sizeof(proof));
	if (!frame_done(in)) {
		drop_pending(peer, "it sent what does not parse");
		return false;
	}
	if (!handshake_check(h, key, role, proof)) {
		log_stranger(l, peer->conn.remote, "refused",
			     "it does not know the secret");
		listener_refuse(peer, DICOMM_ERR_INVALID_USAGE,
				"wrong secret: the id or DICOMM_COMM_KEY is "
				"not the one of this job");
		/* Whoever lingers is not counted, and a port that stays open
		 * serves strangers as long as the job runs. */
		if (l->retired && conn_flush(&peer->conn) != EAGAIN)
			conn_drop(&peer->conn);
		return false;
	}
	handshake_prove(h, key, HANDSHAKE_LISTENER, proof);
	frame_begin(&out, FRAME_WELCOME);
	frame_put_bytes(&out, proof, sizeof(proof));
	conn_send(&peer->conn, &out);
	if (!seal(peer, key)) {
		drop_pending(peer, "no key for it, or no memory");
		return false;
	}
	return true;
}

static void check_client(struct peer_conn *peer, struct frame_reader *in)
{
	struct listener *l = peer->listener;

	if (!check_proof(peer, HANDSHAKE_CLIENT, l->key, in))
		return;
	/* From now on it must not be dropped. Its join request may have
	 * arrived, and the rank would conclude that the id server has ended. */
	peer->proved = true;
	strangers_remove(&l->unproved, &peer->stranger);
	peer->conn.limit = FRAME_MAX;
}

static void check_asker(struct peer_conn *peer, struct frame_reader *in)
{
	struct listener *l = peer->listener;

	if (!check_proof(peer, HANDSHAKE_ASKER, l->asker_key, in))
		return;
	unlink_pending(peer);
	loop_deadline(&peer->conn.source, 0);
	l->asked(peer);
}

/* A rank of a later meeting. Whatever it were told, it would fail of it. */
static void turn_away(struct peer_conn *peer)
{
	struct listener *l = peer->listener;
	uint64_t now = clock_ns();

	if (!l->turned_ns || now - l->turned_ns >= LOG_RETIRED_NS) {
		log_info("%s: %s wants to join: all ranks are there", l->name,
			 peer->conn.remote);
		l->turned_ns = now;
	}
	unlink_pending(peer);
	conn_drop(&peer->conn);
}

static void answer_probe(struct peer_conn *peer, struct frame_reader *in)
{
	struct frame_writer out;

	if (!handshake_answer(peer->listener->alive, in, &out)) {
		drop_pending(peer, "it sent what does not parse");
		return;
	}
	unlink_pending(peer);
	conn_send(&peer->conn, &out);
	conn_linger(&peer->conn);
}

static void pending_frame(struct conn *c, enum frame_type type,
			  struct frame_reader *in)
{
	struct peer_conn *peer = (struct peer_conn *)c;
	struct listener *l = peer->listener;

	if (!peer->proved && type == FRAME_PROBE && l->alive) {
		answer_probe(peer, in);
	} else if (!peer->proved && type == FRAME_ASKER && l->asked) {
		check_asker(peer, in);
	} else if (!peer->proved && type == FRAME_PROOF && l->retired) {
		turn_away(peer);
	} else if (!peer->proved && type == FRAME_PROOF) {
		check_client(peer, in);
	} else if (peer->proved && type == FRAME_JOIN) {
		unlink_pending(peer);
		loop_deadline(&c->source, 0);
		l->admit(l->owner, peer, in);
	} else {
		drop_pending(peer, "it does not keep to the handshake");
	}
}

static void pending_lost(struct conn *c, const char *why)
{
	struct peer_conn *peer = (struct peer_conn *)c;

	if (why == conn_forged) {
		log_stranger(peer->listener, c->remote, "refused", why);
		listener_refuse(peer, DICOMM_ERR_REMOTE, why);
		return;
	}
	if (c->in_len) {
		drop_pending(peer, why);
		return;
	}
	/* A rank that probes whether this one is alive may close without
	 * sending. */
	log_debug("%s: %s closed without sending: %s", peer->listener->name,
		  c->remote, why);
	unlink_pending(peer);
	conn_drop(c);
}

static void pending_expired(struct loop_source *s)
{
	drop_pending((struct peer_conn *)s,
		     "it did not complete the handshake in time");
}

static void peer_released(struct loop_source *s)
{
	conn_fini((struct conn *)s);
	free(s);
}

static void challenge(struct peer_conn *peer)
{
	struct listener *l = peer->listener;
	struct handshake *h = &peer->handshake;
	struct frame_writer out;

	/* Of most listeners nobody comes. */
	if (!l->has_pair)
		auth_make_pair(&l->pair);
	l->has_pair = true;
	auth_random(h->listener_nonce, sizeof(h->listener_nonce));
	memcpy(h->listener_public, l->pair.public, sizeof(h->listener_public));
	frame_begin(&out, FRAME_CHALLENGE);
	frame_put_u64(&out, HANDSHAKE_MAGIC);
	frame_put_u32(&out, HANDSHAKE_PROTOCOL);
	frame_put_bytes(&out, h->listener_nonce, sizeof(h->listener_nonce));
	frame_put_bytes(&out, h->listener_public, sizeof(h->listener_public));
	conn_send(&peer->conn, &out);
}

static void accept_peer(struct listener *l, int fd)
{
	struct peer_conn *peer = calloc(1, sizeof(*peer));

	if (!peer) {
		log_warn("%s: out of memory for a connection", l->name);
		close(fd);
		return;
	}
	tcp_tune(fd);
	sock_peer(fd, peer->conn.remote);
	conn_init(&peer->conn, fd, HANDSHAKE_LIMIT);
	peer->conn.source.released = peer_released;
	peer->conn.source.expired = pending_expired;
	peer->conn.frame = pending_frame;
	peer->conn.lost = pending_lost;
	peer->listener = l;
	peer->link = &l->first;
	peer->next = l->first;
	if (peer->next)
		peer->next->link = &peer->next;
	l->first = peer;
	l->pending++;
	strangers_add(&l->unproved, &peer->stranger, peer);
	loop_deadline(&peer->conn.source, clock_ns() + listener_patience_ns);
	challenge(peer);
	if (conn_serve(&peer->conn) != DICOMM_SUCCESS)
		drop_pending(peer, "it cannot be watched");
	peer = strangers_surplus(&l->unproved, l->retired ? 0 : RANKS_MOST);
	if (peer)
		drop_pending(peer, "too many have come at once");
}

/* accept() is short of descriptors or memory: drops the oldest connection that
 * has proved nothing, or pauses accepting. */
static void make_room(struct listener *l)
{
	struct peer_conn *peer = strangers_oldest(&l->unproved);

	if (!l->told_shortage)
		log_warn("%s: accept: %m", l->name);
	l->told_shortage = true;
	if (peer) {
		drop_pending(peer, "its descriptor is needed");
		return;
	}
	loop_watch(&l->source, 0);
	loop_deadline(&l->source, clock_ns() + PAUSE_NS);
}

static void listener_expired(struct loop_source *s)
{
	loop_watch(s, EPOLLIN);
}

static void listener_ready(struct loop_source *s, uint32_t events)
{
	struct listener *l = (struct listener *)s;

	(void)events;
	if (l->retired) {
		loop_watch(s, 0);
		loop_deadline(s, clock_ns() + RETIRED_PAUSE_NS);
	}
	for (int i = 0; i < (l->retired ? RETIRED_TURN : TURN); i++) {
		int fd = descriptors_high(accept4(
			s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

		if (fd >= 0) {
			accept_peer(l, fd);
		} else if (tcp_is_short(errno)) {
			make_room(l);
			return;
		} else if (errno == EWOULDBLOCK) {
			return;
		}
		/* Any other error concerns one connection that is gone
		 * already. */
	}
}

static void listener_released(struct loop_source *s)
{
	struct listener *l = (struct listener *)s;

	if (l->alive)
		auth_forget(l->alive, sizeof(*l->alive));
	free(l->alive);
	free(l);
}

dicomm_result_t listener_open(int fd, const uint8_t key[AUTH_KEY],
			      const char *name, struct listener **out)
{
	struct listener *l = calloc(1, sizeof(*l));
	dicomm_result_t status;

	if (!l) {
		close(fd);
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: out of memory", name);
	}
	l->source.fd = fd;
	l->source.ready = listener_ready;
	l->source.expired = listener_expired;
	l->source.released = listener_released;
	l->name = name;
	memcpy(l->key, key, AUTH_KEY);
	loop_add(&l->source);
	status = loop_watch(&l->source, EPOLLIN);
	if (status != DICOMM_SUCCESS)
		loop_drop(&l->source);
	else
		*out = l;
	return status;
}

/* Ranks among these connections try again, and learn that this listener is
 * closed. */
static void drop_all(struct listener *l)
{
	struct peer_conn *peer;

	while ((peer = l->first)) {
		unlink_pending(peer);
		conn_drop(&peer->conn);
	}
}

void listener_retire(struct listener *l)
{
	drop_all(l);
	l->retired = true;
	l->admit = NULL;
	l->owner = NULL;
	auth_forget(l->key, sizeof(l->key));
}

void listener_close(struct listener *l)
{
	if (!l)
		return;
	drop_all(l);
	if (l->strangers)
		log_warn("%s: dropped or refused %u other connections", l->name,
			 l->strangers);
	loop_drop(&l->source);
	auth_forget(l->key, sizeof(l->key));
	auth_forget(l->asker_key, sizeof(l->asker_key));
	auth_forget(&l->pair, sizeof(l->pair));
}
