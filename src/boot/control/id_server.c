/* SPDX-License-Identifier: BSD-3-Clause */
/* The server of an id, run by the control thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/boot/control/hub.h"
#include "src/boot/control/id_server.h"
#include "src/boot/control/job_port.h"
#include "src/boot/control/members.h"
#include "src/boot/net/interface.h"

#define SECOND_NS 1000000000ull
/* For this long an id of which nobody comes is served: the ranks may have a
 * time-out of their own, or none. */
#define UNUSED_S 86400
/* for this long after a failure, late ranks can ask why */
#define FAILED_NS (10 * SECOND_NS)

struct id_server {
	struct loop_source source; /* only a deadline; no descriptor */
	struct listener *listener; /* NULL once all ranks are connected */
	struct members members;
	int peers; /* ranks that are connected now */
	char address[SOCK_NAME];
	char own[SOCK_TEXT]; /* the same for ranks of this process */
	char hub[SOCK_TEXT]; /* where rank 0's hub listens */
	uint8_t nonce[AUTH_NONCE];
	bool awaits_reason;  /* of a rank that has come to say that it gives up
			      */
	struct hub *own_hub; /* of rank 0 in this process; NULL: none */
	struct id_server *next, **link;
};

static struct id_server *id_servers; /* all servers of this process */

static void close_server(struct id_server *s)
{
	if (s->source.dead)
		return;
	for (int i = 0; i < s->members.ranks; i++)
		if (s->members.list[i].peer)
			conn_linger(&s->members.list[i].peer->conn);
	listener_close(s->listener);
	s->listener = NULL;
	*s->link = s->next;
	if (s->next)
		s->next->link = s->link;
	loop_drop(&s->source);
}

static void extend_deadline(struct id_server *s)
{
	uint64_t patience_s =
		config_is_default(CONFIG_BOOTSTRAP_TIMEOUT)
			? UNUSED_S
			: (uint64_t)config_int(CONFIG_BOOTSTRAP_TIMEOUT);

	loop_deadline(&s->source,
		      clock_ns() + (s->members.failed
					    ? FAILED_NS
					    : patience_s * SECOND_NS));
}

static void fail(struct id_server *s, dicomm_result_t status, int culprit,
		 const char *text)
{
	members_fail(&s->members, status, culprit, text);
	extend_deadline(s);
}

static void expired(struct loop_source *source)
{
	struct id_server *s = (struct id_server *)source;

	/* Connected ranks have their own time-out, which may be longer. */
	if (s->peers && !s->members.failed) {
		extend_deadline(s);
		return;
	}
	log_debug("id server at %s: closed", s->address);
	close_server(s);
}

static void released(struct loop_source *source)
{
	struct id_server *s = (struct id_server *)source;

	members_fini(&s->members);
	free(s);
}

static void remove_peer(struct id_server *s, struct peer_conn *peer)
{
	s->members.list[peer->rank].peer = NULL;
	s->peers--;
	conn_linger(&peer->conn);
	if (!s->listener && !s->peers)
		close_server(s);
}

static void give_up(struct id_server *s, struct peer_conn *peer,
		    struct frame_reader *in)
{
	dicomm_result_t status = frame_status(frame_get_u32(in));
	char text[FRAME_TEXT], said[FRAME_TEXT];

	frame_get_text(in, said, sizeof(said));
	/* What that rank found concerns all ranks. An abort concerns only
	 * itself, so the others get DICOMM_ERR_REMOTE. */
	if (status == DICOMM_ERR_ABORTED)
		status = DICOMM_ERR_REMOTE;
	if (status == DICOMM_ERR_REMOTE)
		snprintf(text, sizeof(text), "rank %d (%s) gave up: %.800s",
			 peer->rank, s->members.list[peer->rank].where, said);
	else
		snprintf(text, sizeof(text), "%s", said);
	fail(s, status, peer->rank, text);
	remove_peer(s, peer);
}

static void frame(struct conn *c, enum frame_type type, struct frame_reader *in)
{
	struct peer_conn *peer = (struct peer_conn *)c;
	struct id_server *s = peer->owner;

	if (type == FRAME_ASK_MISSING)
		members_send_missing(&s->members, peer, 0);
	else if (type == FRAME_BYE)
		remove_peer(s, peer);
	else if (type == FRAME_GAVE_UP)
		give_up(s, peer, in);
	else
		log_warn(
			"id server: rank %d (%s) sent an unexpected frame (%s)",
			peer->rank, s->members.list[peer->rank].where,
			frame_type_name(type));
}

static void lost(struct conn *c, const char *why)
{
	struct peer_conn *peer = (struct peer_conn *)c;
	struct id_server *s = peer->owner;
	char text[FRAME_TEXT];

	snprintf(text, sizeof(text),
		 "rank %d (%s) %s while the ranks joined: %s", peer->rank,
		 s->members.list[peer->rank].where,
		 why == conn_forged ? "was cut off" : "died", why);
	/* If the rank was cut off, it is alive; it is told too. */
	fail(s, DICOMM_ERR_REMOTE, peer->rank, text);
	s->members.list[peer->rank].peer = NULL;
	s->peers--;
	if (why == conn_forged)
		conn_linger(c);
	else
		conn_drop(c);
	if (!s->listener && !s->peers)
		close_server(s);
}

static void send_all_to_hub(struct id_server *s)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_HUB);
	frame_put_text(&out, s->hub);
	frame_put_bytes(&out, s->nonce, sizeof(s->nonce));
	members_broadcast(&s->members, &out, NULL);
	listener_close(s->listener);
	s->listener = NULL;
}

/* The ranks keep their connections, and do not notice. */
static void give_all_to_hub(struct id_server *s)
{
	hub_adopt(s->own_hub, &s->members, s->listener);
	s->own_hub = NULL;
	s->listener = NULL;
	s->peers = 0;
	close_server(s);
}

static void admit(void *owner, struct peer_conn *peer, struct frame_reader *in)
{
	struct id_server *s = owner;
	char hub[SOCK_TEXT];
	uint8_t nonce[AUTH_NONCE];
	struct rank_info info;

	rank_info_get(in, &info);
	frame_get_text(in, hub, sizeof(hub));
	frame_get_bytes(in, nonce, sizeof(nonce));
	if (!frame_done(in)) {
		log_warn("id server: refused %s: its join request does not "
			 "parse",
			 peer->conn.remote);
		listener_refuse(peer, DICOMM_ERR_INVALID_USAGE,
				"this join request does not parse here");
		return;
	}
	interface_learn(peer->conn.source.fd);
	peer->owner = s;
	peer->conn.frame = frame;
	peer->conn.lost = lost;
	if (!members_admit(&s->members, peer, s->listener->pending, &info)) {
		extend_deadline(s);
		return;
	}
	s->peers++;
	if (!strcmp(hub, ID_SERVER_GIVES_UP)) {
		s->awaits_reason = true;
	} else if (info.rank == 0) {
		memcpy(s->hub, hub, sizeof(hub));
		memcpy(s->nonce, nonce, sizeof(nonce));
	}
	extend_deadline(s);
	/* A rank 0 without a hub says why in its next frame. */
	if (s->members.came < s->members.ranks || s->awaits_reason)
		return;
	if (*s->hub)
		send_all_to_hub(s);
	else if (s->own_hub)
		give_all_to_hub(s);
}

dicomm_result_t id_server_open(int fd, const uint8_t key[AUTH_KEY],
			       const char *address,
			       const struct handshake_alive *alive)
{
	struct id_server *s = calloc(1, sizeof(*s));
	struct handshake_alive *copy = NULL;
	dicomm_result_t status;

	if (s && alive)
		copy = malloc(sizeof(*copy));
	if (!s || (alive && !copy)) {
		free(s);
		close(fd);
		return FAIL(DICOMM_ERR_NO_MEMORY, "id server: out of memory");
	}
	if (copy)
		*copy = *alive;
	s->source.fd = -1;
	s->source.expired = expired;
	s->source.released = released;
	snprintf(s->address, sizeof(s->address), "%s", address);
	sock_own(fd, s->own);
	loop_lock();
	status = listener_open(fd, key, "id server", &s->listener);
	if (status != DICOMM_SUCCESS) {
		free(copy);
		free(s);
		goto unlock;
	}
	s->listener->admit = admit;
	s->listener->owner = s;
	s->listener->alive = copy;
	loop_add(&s->source);
	s->next = id_servers;
	s->link = &id_servers;
	if (s->next)
		s->next->link = &s->next;
	id_servers = s;
	extend_deadline(s);
unlock:
	loop_unlock();
	return status;
}

/* Returns true if the reason has been sent to all ranks. Bytes that the kernel
 * has accepted arrive even if this process ends. */
static bool all_are_told(struct id_server *s, int come)
{
	const struct members *list = &s->members;

	if (come == ID_SERVER_ALL)
		come = list->ranks;
	if (!list->failed || list->came + list->refused < come)
		return false;
	for (int i = 0; i < list->ranks; i++)
		if (list->list[i].peer &&
		    conn_flush(&list->list[i].peer->conn) == EAGAIN)
			return false;
	return true;
}

static struct id_server *find(const char *address)
{
	struct id_server *s = id_servers;

	while (s && (s->source.dead || strcmp(s->address, address) != 0))
		s = s->next;
	return s;
}

void id_server_let_ask(const char *address, const uint8_t asker_key[AUTH_KEY])
{
	struct id_server *s;

	loop_lock();
	s = find(address);
	if (s && s->listener)
		job_port_serve(s->listener, asker_key);
	loop_unlock();
}

bool id_server_is_open(const char *address)
{
	const struct id_server *s = find(address);

	return s && s->listener;
}

void id_server_reach(const char *address, char reach[SOCK_NAME])
{
	const struct id_server *s;

	loop_lock();
	s = find(address);
	snprintf(reach, SOCK_NAME, "%s", s ? s->own : address);
	loop_unlock();
}

static dicomm_result_t give_hub(struct id_server *s,
				const struct rank_info *info, struct hub *hub,
				char *why, size_t len)
{
	struct members *m = &s->members;
	unsigned connected = s->listener->pending + (unsigned)s->peers;
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!m->failed)
		status = members_init(m, info, connected, why, len);
	if (status != DICOMM_SUCCESS)
		fail(s, status, 0, why);
	if (!m->failed) {
		s->own_hub = hub;
		return DICOMM_SUCCESS;
	}
	m->refused++; /* it knows now */
	snprintf(why, len, "%s", m->text);
	return m->status;
}

dicomm_result_t id_server_give_hub(const char *address,
				   const struct rank_info *info,
				   struct hub *hub, bool *given)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	char why[FRAME_TEXT];
	struct id_server *s;

	loop_lock();
	s = find(address);
	*given = s && s->listener && !s->own_hub;
	if (*given)
		status = give_hub(s, info, hub, why, sizeof(why));
	loop_unlock();
	return status == DICOMM_SUCCESS ? status : FAIL(status, "%s", why);
}

void id_server_take_hub(const char *address, const struct hub *hub)
{
	struct id_server *s;

	loop_lock();
	s = find(address);
	if (s && s->own_hub == hub)
		s->own_hub = NULL;
	loop_unlock();
}

void id_server_refuse(const char *address, dicomm_result_t status,
		      const char *text)
{
	struct id_server *s;

	loop_lock();
	s = find(address);
	if (s && s->listener)
		fail(s, status, 0, text);
	loop_unlock();
}

void id_server_flush(const char *address, int come, uint64_t until_ns)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct id_server *s;
	bool done;

	for (;;) {
		loop_lock();
		s = find(address);
		done = !s || all_are_told(s, come);
		loop_unlock();
		if (done || clock_ns() >= until_ns)
			return;
		nanosleep(&pause, NULL);
	}
}

static void close_those(const char *address, bool failed)
{
	struct id_server *s, *next;

	loop_lock();
	for (s = id_servers; s; s = next) {
		next = s->next;
		if ((s->members.failed || !failed) &&
		    !strcmp(s->address, address))
			close_server(s);
	}
	loop_unlock();
}

void id_server_close_failed(const char *address)
{
	close_those(address, true);
}

void id_server_close(const char *address)
{
	close_those(address, false);
}
