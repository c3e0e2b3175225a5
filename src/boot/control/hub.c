/* SPDX-License-Identifier: BSD-3-Clause */
/* The hub of rank 0: ranks that join, leave, die or fail. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/control/gather.h"
#include "src/boot/control/hub.h"
#include "src/boot/control/job_port.h"
#include "src/boot/control/members.h"
#include "src/boot/control/relay.h"
#include "src/boot/net/interface.h"

/* after a failure, ranks that arrive late can ask why */
#define AFTER_FAILURE_NS 5000000000ull
/* If more bytes than this are queued for a rank, queries and answers to it are
 * dropped. */
#define QUEUED_MAX (1 << 20)
/* A rank that has said that it is at work is so for that long: it says so every
 * half second, on a machine that may be busy. */
#define BUSY_NS 10000000000ull

struct hub {
	/* only a deadline that ends the hub; no descriptor */
	struct loop_source source;
	struct listener *listener; /* NULL once all ranks have joined */
	struct members members;
	struct gather gather;
	struct job_comm job;
	bool started;
};

static void expired(struct loop_source *s)
{
	struct hub *hub = (struct hub *)s;

	listener_close(hub->listener);
	hub->listener = NULL;
	loop_drop(s);
}

static void released(struct loop_source *s)
{
	struct hub *hub = (struct hub *)s;

	gather_fini(&hub->gather);
	members_fini(&hub->members);
	free(hub);
}

static const char *where(const struct hub *hub, int rank)
{
	return hub->members.list[rank].where;
}

static void broadcast_text(struct hub *hub, enum frame_type type, int rank,
			   const char *text)
{
	struct frame_writer out;

	frame_begin(&out, type);
	frame_put_u32(&out, (uint32_t)rank);
	if (text)
		frame_put_text(&out, text);
	members_broadcast(&hub->members, &out, NULL);
}

/* Tells a rank why the hub ends its connection. The rank lives, but its
 * connection can no longer be trusted. */
static void send_failed(struct peer_conn *peer, dicomm_result_t status,
			int culprit, const char *text)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_FAILED);
	frame_put_u32(&out, (uint32_t)status);
	frame_put_u32(&out, (uint32_t)culprit);
	frame_put_text(&out, text);
	conn_send(&peer->conn, &out);
}

static void lost(struct conn *c, const char *why)
{
	struct peer_conn *peer = (struct peer_conn *)c;
	struct hub *hub = peer->owner;
	char text[FRAME_TEXT];

	snprintf(text, sizeof(text), "rank %d (%s) %s: %s", peer->rank,
		 where(hub, peer->rank),
		 why == conn_forged ? "was cut off" : "died", why);
	hub->members.list[peer->rank].peer = NULL;
	if (why == conn_forged)
		send_failed(peer, DICOMM_ERR_REMOTE, peer->rank, text);
	if (why == conn_forged)
		conn_linger(c);
	else
		conn_drop(c);
	if (hub->started)
		broadcast_text(hub, FRAME_DIED, peer->rank, text);
	else
		members_fail(&hub->members, DICOMM_ERR_REMOTE, peer->rank,
			     text);
}

static void leave(struct hub *hub, struct peer_conn *peer)
{
	hub->members.list[peer->rank].peer = NULL;
	conn_linger(&peer->conn);
	if (hub->started)
		broadcast_text(hub, FRAME_LEFT, peer->rank, NULL);
	else
		members_fail(&hub->members, DICOMM_ERR_REMOTE, peer->rank,
			     "a rank left before all had come");
}

static void give_up(struct hub *hub, struct peer_conn *peer,
		    struct frame_reader *in)
{
	dicomm_result_t status = frame_status(frame_get_u32(in));
	char text[FRAME_TEXT], said[FRAME_TEXT];

	frame_get_text(in, said, sizeof(said));
	snprintf(text, sizeof(text), "rank %d (%s) gave up: %.800s", peer->rank,
		 where(hub, peer->rank), said);
	if (!hub->started)
		members_fail(&hub->members,
			     status == DICOMM_ERR_ABORTED ? DICOMM_ERR_REMOTE
							  : status,
			     peer->rank, text);
	leave(hub, peer);
}

static void send_place(struct hub *hub, int rank, int children,
		       const uint8_t key[AUTH_KEY])
{
	struct member *m = &hub->members.list[rank];
	struct frame_writer out;

	frame_begin(&out, FRAME_TREE);
	frame_put_text(&out, where(hub, 0));
	frame_put_u32(&out, (uint32_t)(m->parent + 1));
	frame_put_u32(&out, (uint32_t)children);
	frame_put_bytes(&out, key, AUTH_KEY);
	conn_send(&m->peer->conn, &out);
	auth_forget(out.data, out.len);
}

/* Without memory for it, or with one host, there is no tree. Returns true if
 * there is one. */
static bool send_places(struct hub *hub)
{
	size_t n = (size_t)hub->members.ranks;
	uint64_t *host = calloc(n, sizeof(*host));
	int *parent = calloc(n, sizeof(*parent));
	int *children = calloc(n, sizeof(*children));
	bool planned;
	uint8_t key[AUTH_KEY];

	for (size_t i = 0; host && i < n; i++)
		host[i] = hub->members.list[i].node;
	auth_random(key, sizeof(key));
	planned = host && parent && children &&
		  relay_plan(host, (int)n, parent, children);
	for (size_t i = 0; i < n; i++) {
		if (planned)
			hub->members.list[i].parent = parent[i];
		send_place(hub, (int)i, planned ? children[i] : 0, key);
	}
	auth_forget(key, sizeof(key));
	free(host);
	free(parent);
	free(children);
	return planned;
}

static void start(struct hub *hub)
{
	struct frame_writer out;

	if (!gather_init(&hub->gather, &hub->members)) {
		members_fail(&hub->members, DICOMM_ERR_NO_MEMORY, 0,
			     "rank 0: out of memory for the control plane");
		return;
	}
	frame_begin(&out, FRAME_START);
	/* Through a tree, rank 0 need not send them to everybody. */
	if (!send_places(hub))
		members_put_names(&hub->members, &out);
	members_broadcast(&hub->members, &out, NULL);
	hub->started = true;
	job_port_add(&hub->job, &hub->members, hub->listener);
	hub->listener = NULL;
}

static void answer_gone(struct hub *hub, struct peer_conn *asker, uint64_t tag,
			int rank)
{
	struct frame_writer out;
	char text[FRAME_TEXT];

	snprintf(text, sizeof(text), "rank %d (%s) is gone", rank,
		 where(hub, rank));
	frame_begin(&out, FRAME_ANSWER);
	frame_put_u64(&out, tag);
	frame_put_u32(&out, (uint32_t)asker->rank);
	frame_put_u32(&out, DICOMM_ERR_REMOTE);
	frame_put_u32(&out, 0);
	frame_put_u32(&out, 0);
	frame_put_text(&out, text);
	conn_send(&asker->conn, &out);
}

static void pass_on(struct peer_conn *to, const struct frame_writer *out)
{
	/* Do not queue without limit for a process that is stopped. The rank
	 * that asks has a time-out. */
	if (to->conn.out_len < QUEUED_MAX)
		conn_send(&to->conn, out);
}

static bool query(struct hub *hub, struct peer_conn *peer,
		  struct frame_reader *in)
{
	uint64_t tag = frame_get_u64(in), number;
	uint32_t to, class;
	struct frame_writer out;

	frame_get_u32(in); /* ignored; the connection tells which rank asks */
	to = frame_get_u32(in);
	class = frame_get_u32(in);
	number = frame_get_u64(in);
	if (!frame_done(in) || to >= (uint32_t)hub->members.ranks)
		return false;
	if (!hub->members.list[to].peer) {
		answer_gone(hub, peer, tag, (int)to);
		return true;
	}
	frame_begin(&out, FRAME_QUERY);
	frame_put_u64(&out, tag);
	frame_put_u32(&out, (uint32_t)peer->rank);
	frame_put_u32(&out, to);
	frame_put_u32(&out, class);
	frame_put_u64(&out, number);
	pass_on(hub->members.list[to].peer, &out);
	return true;
}

static bool answer(struct hub *hub, struct frame_reader *in)
{
	uint64_t tag = frame_get_u64(in);
	uint32_t to = frame_get_u32(in), status = frame_get_u32(in);
	uint32_t known = frame_get_u32(in), signature = frame_get_u32(in);
	struct frame_writer out;
	char text[FRAME_TEXT];

	frame_get_text(in, text, sizeof(text));
	if (!frame_done(in) || to >= (uint32_t)hub->members.ranks)
		return false;
	if (!hub->members.list[to].peer)
		return true;
	frame_begin(&out, FRAME_ANSWER);
	frame_put_u64(&out, tag);
	frame_put_u32(&out, to);
	frame_put_u32(&out, status);
	frame_put_u32(&out, known);
	frame_put_u32(&out, signature);
	frame_put_text(&out, text);
	pass_on(hub->members.list[to].peer, &out);
	return true;
}

/* A rank that is gone reads no letters; the sender hears of that anyway. */
static bool letter(struct hub *hub, struct peer_conn *peer,
		   struct frame_reader *in)
{
	uint32_t to;
	uint64_t key;
	struct frame_writer out;
	const uint8_t *data;
	size_t n;

	frame_get_u32(in); /* ignored, as in query() */
	to = frame_get_u32(in);
	key = frame_get_u64(in);
	data = frame_get_rest(in, &n);
	if (!frame_done(in) || to >= (uint32_t)hub->members.ranks)
		return false;
	if (!hub->members.list[to].peer)
		return true;
	frame_begin(&out, FRAME_LETTER);
	frame_put_u32(&out, (uint32_t)peer->rank);
	frame_put_u32(&out, to);
	frame_put_u64(&out, key);
	frame_put_bytes(&out, data, n);
	pass_on(hub->members.list[to].peer, &out);
	return true;
}

static void broadcast_failed(struct hub *hub, const struct peer_conn *except,
			     uint32_t status, uint32_t culprit,
			     const char *text)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_FAILED);
	frame_put_u32(&out, status);
	frame_put_u32(&out, culprit);
	frame_put_text(&out, text);
	members_broadcast(&hub->members, &out, except);
}

static bool flood(struct hub *hub, struct peer_conn *peer,
		  struct frame_reader *in)
{
	uint32_t status = frame_get_u32(in), culprit = frame_get_u32(in);
	char text[FRAME_TEXT];

	frame_get_text(in, text, sizeof(text));
	if (!frame_done(in) || culprit >= (uint32_t)hub->members.ranks)
		return false;
	broadcast_failed(hub, peer, status, culprit, text);
	return true;
}

void hub_report(struct hub *hub, dicomm_result_t status, int culprit,
		const char *text)
{
	broadcast_failed(hub, hub->members.list[0].peer, (uint32_t)status,
			 (uint32_t)culprit, text);
}

static bool ask_missing(struct hub *hub, struct peer_conn *peer,
			struct frame_reader *in)
{
	uint64_t number = frame_get_u64(in);
	bool awaits = !hub->started || number == hub->gather.number;

	if (!frame_done(in))
		return false;
	/* If the result is on its way, nobody is missing. An answer tells a
	 * rank that lost bytes of the result that it did. */
	members_send_missing(awaits ? &hub->members : NULL, peer, number);
	return true;
}

/* It says so again and again, since a rank that is stopped is not at work. */
static bool busy(struct hub *hub, struct peer_conn *peer,
		 struct frame_reader *in)
{
	struct member *m = &hub->members.list[peer->rank];
	char text[FRAME_TEXT];

	frame_get_text(in, text, sizeof(text));
	if (!frame_done(in))
		return false;
	snprintf(m->doing, sizeof(m->doing), "%.60s", text);
	m->busy_ns = *text ? clock_ns() + BUSY_NS : 0;
	return true;
}

/* Tells the children of a rank where it listens. */
static bool relay(struct hub *hub, const struct peer_conn *peer,
		  struct frame_reader *in)
{
	char address[SOCK_TEXT];
	struct frame_writer out;

	frame_get_text(in, address, sizeof(address));
	if (!frame_done(in))
		return false;
	frame_begin(&out, FRAME_RELAY);
	frame_put_text(&out, address);
	for (int i = 0; i < hub->members.ranks; i++) {
		const struct member *m = &hub->members.list[i];

		if (m->parent == peer->rank && m->peer)
			conn_send(&m->peer->conn, &out);
	}
	return true;
}

static bool child(struct hub *hub, const struct peer_conn *peer,
		  struct frame_reader *in)
{
	struct member *m = &hub->members.list[peer->rank];
	bool has_parent = frame_get_u32(in);

	if (!frame_done(in) || m->parent < 0)
		return false;
	m->has_parent = has_parent;
	return true;
}

static bool resend(const struct hub *hub, const struct peer_conn *peer,
		   struct frame_reader *in)
{
	uint64_t number = frame_get_u64(in);

	if (!frame_done(in))
		return false;
	gather_resend(&hub->gather, peer->rank, number);
	return true;
}

/* Returns false if the frame is invalid or unexpected in this state. */
static bool take(struct hub *hub, struct peer_conn *peer, enum frame_type type,
		 struct frame_reader *in)
{
	switch (type) {
	case FRAME_ASK_MISSING:
		return ask_missing(hub, peer, in);
	case FRAME_GAVE_UP:
		give_up(hub, peer, in);
		return true;
	case FRAME_BYE:
		leave(hub, peer);
		return true;
	case FRAME_BUSY:
		return hub->started && busy(hub, peer, in);
	case FRAME_GATHER:
		hub->members.list[peer->rank].busy_ns = 0;
		return hub->started &&
		       gather_take(&hub->gather, peer->rank, in);
	case FRAME_RELAY:
		return hub->started && relay(hub, peer, in);
	case FRAME_CHILD:
		return hub->started && child(hub, peer, in);
	case FRAME_RESEND:
		return hub->started && resend(hub, peer, in);
	case FRAME_QUERY:
		return hub->started && query(hub, peer, in);
	case FRAME_ANSWER:
		return hub->started && answer(hub, in);
	case FRAME_LETTER:
		return hub->started && letter(hub, peer, in);
	case FRAME_FAILED:
		return hub->started && flood(hub, peer, in);
	case FRAME_TOLD:
		return hub->started && job_port_told(&hub->job, peer->rank, in);
	default:
		return false;
	}
}

static void frame(struct conn *c, enum frame_type type, struct frame_reader *in)
{
	struct peer_conn *peer = (struct peer_conn *)c;
	struct hub *hub = peer->owner;

	if (!take(hub, peer, type, in))
		log_warn("rank 0: dropped a frame (%s) of rank %d (%s)",
			 frame_type_name(type), peer->rank,
			 where(hub, peer->rank));
}

static void admit(void *owner, struct peer_conn *peer, struct frame_reader *in)
{
	struct hub *hub = owner;
	struct rank_info info;

	rank_info_get(in, &info);
	if (!frame_done(in)) {
		log_warn("rank 0: refused %s: its join request does not parse",
			 peer->conn.remote);
		listener_refuse(peer, DICOMM_ERR_INVALID_USAGE,
				"this join request does not parse here");
		return;
	}
	interface_learn(peer->conn.source.fd);
	peer->owner = hub;
	peer->conn.frame = frame;
	peer->conn.lost = lost;
	if (members_admit(&hub->members, peer, 0, &info) &&
	    hub->members.came == hub->members.ranks)
		start(hub);
}

static struct hub *make(void)
{
	struct hub *hub = calloc(1, sizeof(*hub));

	if (!hub)
		return NULL;
	hub->source.fd = -1;
	hub->source.expired = expired;
	hub->source.released = released;
	return hub;
}

dicomm_result_t hub_open_idle(struct hub **out)
{
	struct hub *hub = make();

	if (!hub)
		return FAIL(DICOMM_ERR_NO_MEMORY, "out of memory for a hub");
	loop_lock();
	loop_add(&hub->source);
	loop_unlock();
	*out = hub;
	return DICOMM_SUCCESS;
}

void hub_adopt(struct hub *hub, struct members *members, struct listener *l)
{
	struct members *m = &hub->members;

	*m = *members;
	*members = (struct members){.ranks = 0};
	for (int i = 0; i < m->ranks; i++) {
		if (!m->list[i].peer) {
			members_fail(m, DICOMM_ERR_REMOTE, i,
				     "a rank left before all had come");
			continue;
		}
		m->list[i].peer->owner = hub;
		m->list[i].peer->conn.frame = frame;
		m->list[i].peer->conn.lost = lost;
	}
	hub->listener = l;
	if (!m->failed)
		start(hub);
	/* Nobody else is to come, and no reason to be told later. */
	listener_close(hub->listener);
	hub->listener = NULL;
}

dicomm_result_t hub_open(const struct rank_info *self,
			 const uint8_t key[AUTH_KEY], char address[SOCK_TEXT],
			 struct hub **out)
{
	struct hub *hub;
	dicomm_result_t status;
	char why[FRAME_TEXT];
	int fd;

	TRY(sock_listen(&fd, address));
	hub = make();
	if (!hub) {
		close(fd);
		return FAIL(DICOMM_ERR_NO_MEMORY, "out of memory for a hub");
	}
	status = members_init(&hub->members, self, 0, why, sizeof(why));
	if (status != DICOMM_SUCCESS) {
		close(fd);
		members_fini(&hub->members);
		free(hub);
		return FAIL(status, "%s", why);
	}
	loop_lock();
	status = listener_open(fd, key, "rank 0", &hub->listener);
	if (status == DICOMM_SUCCESS) {
		hub->listener->admit = admit;
		hub->listener->owner = hub;
		loop_add(&hub->source);
		*out = hub;
	} else {
		members_fini(&hub->members);
		free(hub);
	}
	loop_unlock();
	return status;
}

static void say_goodbye(struct hub *hub)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_BYE);
	members_broadcast(&hub->members, &out, NULL);
}

void hub_close(struct hub *hub, dicomm_result_t status, const char *why)
{
	if (!hub)
		return;
	loop_lock();
	job_port_remove(&hub->job);
	if (hub->started)
		say_goodbye(hub);
	else if (hub->members.list)
		members_fail(&hub->members, status, 0, why);
	for (int i = 0; i < hub->members.ranks; i++) {
		if (hub->members.list[i].peer)
			conn_linger(&hub->members.list[i].peer->conn);
		hub->members.list[i].peer = NULL;
	}
	if (hub->listener)
		loop_deadline(&hub->source, clock_ns() + AFTER_FAILURE_NS);
	else
		loop_drop(&hub->source);
	loop_unlock();
}
