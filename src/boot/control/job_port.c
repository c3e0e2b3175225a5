/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/boot/control/job_port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "src/boot/control/members.h"
#include "src/boot/net/inquiry.h"
#include "src/boot/net/lent_port.h"
#include "src/boot/net/listener.h"

#define MS_NS UINT64_C(1000000)
#define ASKERS 4 /* that are answered at the same time */
/* So many ranks are asked before one of them has answered, or a turn is over:
 * so rank 0 need not hold the answers of all. */
#define AT_ONCE 64
#define TURN_NS (200 * MS_NS)
/* For so long ranks are asked. */
#define ASK_NS (7000 * MS_NS)
/* Bytes queued for a connection, beyond which nothing is added */
#define QUEUED_MAX (1 << 20)
/* The end waits until so few bytes are queued that they leave while the
 * connection lingers; but no longer than this. */
#define QUEUED_LAST (1 << 16)
#define LAST_NS (5000 * MS_NS)
#define PARTS_MOST (INQUIRY_BYTES / JOB_PORT_PART + 1)

struct port {
	struct loop_source lends; /* the socket of lent_port.h */
	struct listener *listener;
	unsigned number;
	char address[SOCK_TEXT];
};

/* What is known of a rank */
struct answer {
	bool asked, done;
	uint8_t parts;
};

struct asker {
	struct peer_conn *peer;
	struct members *members;
	uint64_t number;
	uint64_t ask_until_ns;  /* no rank is asked after it */
	uint64_t until_ns;      /* all that were asked tell before it */
	struct answer *answers; /* one for each rank */
	int next;               /* rank to ask */
	int open;               /* asked, and not done */
	int fresh;              /* asked in this turn, and not done */
	struct asker *link;
};

/* The lock of the loop guards all of it. */
static struct {
	pid_t pid; /* a child of fork() begins anew */
	struct job_comm *comms;
	struct port *port; /* NULL: none is open */
	struct asker *askers;
} job;

static void know_process(void)
{
	if (job.pid == getpid())
		return;
	memset(&job, 0, sizeof(job));
	job.pid = getpid();
}

/* ---- who asks ---- */

static void send_told(struct asker *a, int rank, enum told kind,
		      const void *bytes, size_t len)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_TOLD);
	frame_put_u64(&out, (uint64_t)rank);
	frame_put_u32(&out, kind);
	frame_put_bytes(&out, bytes, len);
	conn_send(&a->peer->conn, &out);
}

static void forget(struct asker *a)
{
	struct asker **at = &job.askers;

	while (*at != a)
		at = &(*at)->link;
	*at = a->link;
	free(a->answers);
	free(a);
}

static void end(struct asker *a)
{
	send_told(a, 0, TOLD_END, NULL, 0);
	conn_linger(&a->peer->conn);
	forget(a);
}

static void settle(struct asker *a, int rank)
{
	struct answer *r = &a->answers[rank];

	if (r->asked) {
		a->open--;
		a->fresh -= a->fresh > 0;
	}
	r->done = true;
}

/* It tells nothing itself, so this says where it is. */
static void name_rank(struct asker *a, int rank, enum told kind)
{
	const char *where = a->members->list[rank].where;

	send_told(a, rank, kind, where, strlen(where));
	settle(a, rank);
}

static void ask_next(struct asker *a)
{
	struct peer_conn *peer = a->members->list[a->next].peer;
	struct frame_writer out;

	if (!peer) {
		name_rank(a, a->next++, TOLD_GONE);
		return;
	}
	frame_begin(&out, FRAME_INQUIRE);
	frame_put_u64(&out, a->number);
	/* Nothing more for a process that is stopped; it is late. */
	if (peer->conn.out_len < QUEUED_MAX)
		conn_send(&peer->conn, &out);
	a->answers[a->next++].asked = true;
	a->until_ns = clock_ns() + JOB_PORT_MS * MS_NS;
	a->open++;
	a->fresh++;
}

/* Asks more ranks, or ends. */
static void go_on(struct asker *a)
{
	const struct conn *c = &a->peer->conn;

	while (a->next < a->members->ranks && a->fresh < AT_ONCE &&
	       c->out_len < QUEUED_MAX && clock_ns() < a->ask_until_ns)
		ask_next(a);
	if (a->next == a->members->ranks && !a->open &&
	    (c->out_len < QUEUED_LAST || clock_ns() >= a->until_ns + LAST_NS))
		end(a);
}

/* Names those that have not told all. */
static void give_up(struct asker *a)
{
	for (int r = 0; r < a->members->ranks; r++) {
		if (a->answers[r].done)
			continue;
		if (!a->members->list[r].peer)
			name_rank(a, r, TOLD_GONE);
		else
			name_rank(a, r,
				  a->answers[r].asked ? TOLD_LATE
						      : TOLD_UNASKED);
	}
	a->next = a->members->ranks;
}

static void turn(struct loop_source *s)
{
	struct asker *a = ((struct peer_conn *)s)->owner;
	uint64_t now = clock_ns();

	if (now >= a->until_ns &&
	    (a->next == a->members->ranks || now >= a->ask_until_ns))
		give_up(a);
	for (int r = 0; r < a->next; r++)
		if (!a->answers[r].done && !a->members->list[r].peer)
			name_rank(a, r, TOLD_GONE);
	a->fresh = 0;
	loop_deadline(s, now + TURN_NS);
	go_on(a);
}

static void asker_frame(struct conn *c, enum frame_type type,
			struct frame_reader *in)
{
	struct asker *a = ((struct peer_conn *)c)->owner;

	(void)in;
	log_info("job port: dropped %s: it sent a frame (%s)", c->remote,
		 frame_type_name(type));
	conn_drop(c);
	forget(a);
}

static void asker_lost(struct conn *c, const char *why)
{
	struct asker *a = ((struct peer_conn *)c)->owner;

	log_debug("job port: %s did not wait for the answer: %s", c->remote,
		  why);
	conn_drop(c);
	forget(a);
}

/* Without a communicator: they are about to meet. */
static void tell_own(struct asker *a)
{
	size_t len = 0, n;
	const char *text = inquiry_text(&len);

	for (size_t at = 0; text && at < len; at += n) {
		n = len - at < JOB_PORT_PART ? len - at : JOB_PORT_PART;
		send_told(a, 0, at + n < len ? TOLD_PART : TOLD_LAST, text + at,
			  n);
	}
	end(a);
}

static unsigned count_askers(void)
{
	unsigned n = 0;

	for (const struct asker *a = job.askers; a; a = a->link)
		n++;
	return n;
}

static void asked(struct peer_conn *peer)
{
	struct members *m;
	struct asker *a;

	know_process();
	m = job.comms ? job.comms->members : NULL;
	if (count_askers() >= ASKERS) {
		listener_refuse(peer, DICOMM_ERR_REMOTE,
				"it answers others just now: ask again");
		return;
	}
	a = calloc(1, sizeof(*a));
	if (a && m)
		a->answers = calloc((size_t)m->ranks, sizeof(*a->answers));
	if (!a || (m && !a->answers)) {
		free(a);
		listener_refuse(peer, DICOMM_ERR_NO_MEMORY,
				"rank 0: no memory for an answer");
		return;
	}
	a->peer = peer;
	a->members = m;
	auth_random((uint8_t *)&a->number, sizeof(a->number));
	a->until_ns = clock_ns() + JOB_PORT_MS * MS_NS;
	a->ask_until_ns = clock_ns() + ASK_NS;
	a->link = job.askers;
	job.askers = a;
	peer->owner = a;
	peer->conn.frame = asker_frame;
	peer->conn.lost = asker_lost;
	peer->conn.source.expired = turn;
	loop_deadline(&peer->conn.source, clock_ns() + TURN_NS);
	log_debug("job port: %s asks", peer->conn.remote);
	if (m)
		go_on(a);
	else
		tell_own(a);
}

static struct asker *find_asker(const struct job_comm *c, uint64_t number)
{
	struct asker *a = job.askers;

	while (a && (a->number != number || a->members != c->members))
		a = a->link;
	return a;
}

bool job_port_told(const struct job_comm *c, int rank, struct frame_reader *in)
{
	uint64_t number = frame_get_u64(in);
	uint32_t kind = frame_get_u32(in);
	struct asker *a = find_asker(c, number);
	const uint8_t *bytes;
	struct answer *r;
	size_t len;

	bytes = frame_get_rest(in, &len);
	if (!frame_done(in) || kind > TOLD_NOTHING || len > JOB_PORT_PART)
		return false;
	if (!a || !a->answers[rank].asked || a->answers[rank].done)
		return true; /* too late */
	r = &a->answers[rank];
	if (kind == TOLD_NOTHING || r->parts >= PARTS_MOST) {
		name_rank(a, rank, TOLD_NOTHING);
	} else if (kind == TOLD_ALREADY) {
		settle(a, rank);
	} else {
		send_told(a, rank, kind, bytes, len);
		r->parts++;
		if (kind == TOLD_LAST)
			settle(a, rank);
	}
	go_on(a);
	return true;
}

/* ---- the port ---- */

static void port_released(struct loop_source *s)
{
	free(s);
}

static void close_port(void)
{
	struct port *p = job.port;

	if (!p)
		return;
	log_debug("job port %u: closed", p->number);
	job.port = NULL;
	listener_close(p->listener);
	loop_drop(&p->lends);
}

/* Somebody wants the port. The end of its connection says that it is free.
 * Without a descriptor for that connection it ends with the socket. */
static void lend(struct loop_source *s, uint32_t events)
{
	int fd = descriptors_high(accept4(s->fd, NULL, NULL, SOCK_CLOEXEC));

	(void)events;
	if (fd < 0 && !tcp_is_short(errno))
		return;
	log_info("job port %u: another process listens there from now on",
		 ((struct port *)s)->number);
	close_port();
	if (fd >= 0)
		close(fd);
}

/* This process has no other port left. */
static void give_way(void)
{
	if (job.port)
		log_info("job port %u: this process needs it",
			 job.port->number);
	close_port();
}

static bool keep(struct listener *l)
{
	struct port *p = calloc(1, sizeof(*p));

	if (!p)
		return false;
	p->number = sock_port(l->source.fd);
	p->listener = l;
	sock_name(l->source.fd, p->address);
	p->lends =
		(struct loop_source){.fd = lent_port_offer(p->number, give_way),
				     .ready = lend,
				     .released = port_released};
	if (p->lends.fd < 0) {
		log_info("job port %u: cannot be kept: %m", p->number);
		free(p);
		return false;
	}
	loop_add(&p->lends);
	if (loop_watch(&p->lends, EPOLLIN) != DICOMM_SUCCESS) {
		loop_drop(&p->lends);
		return false;
	}
	listener_retire(l);
	l->name = "job port";
	job.port = p;
	log_info("dicomm-info --job %s, with DICOMM_COMM_KEY, tells what the "
		 "ranks do",
		 p->address);
	return true;
}

dicomm_result_t job_port_key(const char *host_port, const char *secret,
			     uint8_t key[AUTH_KEY])
{
	char place[16];

	/* As of an id of DICOMM_COMM_ID (id_derive()), for which it takes no
	 * more time. */
	snprintf(place, sizeof(place), "%.8s ", strrchr(host_port, ':'));
	return auth_key_from_secret(place, secret, key);
}

bool job_port_is_wanted(void)
{
	return config_bool(CONFIG_JOB_PORT) && config_bool(CONFIG_JOB_INFO) &&
	       *config_string(CONFIG_COMM_KEY);
}

void job_port_serve(struct listener *l, const uint8_t key[AUTH_KEY])
{
	memcpy(l->asker_key, key, AUTH_KEY);
	l->asked = asked;
}

void job_port_add(struct job_comm *c, struct members *members,
		  struct listener *l)
{
	struct job_comm **at = &job.comms;

	know_process();
	while (*at)
		at = &(*at)->next;
	c->members = members;
	c->next = NULL;
	c->link = at;
	*at = c;
	if (l && (!l->asked || job.port || !keep(l)))
		listener_close(l);
}

void job_port_remove(struct job_comm *c)
{
	struct asker *next;

	know_process();
	if (!c->members)
		return;
	for (struct asker *a = job.askers; a; a = next) {
		next = a->link;
		if (a->members != c->members)
			continue;
		give_up(a);
		end(a);
	}
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	c->members = NULL;
	if (!job.comms)
		close_port();
}

void job_port_give_back(unsigned port)
{
	know_process();
	if (job.port && job.port->number == port)
		close_port();
}

const char *job_port_address(void)
{
	know_process();
	return job.port ? job.port->address : NULL;
}
