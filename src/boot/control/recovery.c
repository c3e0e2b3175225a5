/* SPDX-License-Identifier: BSD-3-Clause */
/* The recovery sockets: listening, probing, and serving an id. */
#include "src/boot/control/recovery.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "src/base/descriptors.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "src/boot/control/id.h"
#include "src/boot/control/id_server.h"
#include "src/boot/net/conn.h"
#include "src/boot/net/handshake.h"

/* If hundreds of ranks on one machine connect to each other at once, they
 * overrun the kernel's packet queue, and lost packets are sent again only after
 * a second. So after CONNECTS connects, wait up to PACE_MS until they complete.
 * Do not wait longer, because a host that is gone never answers. */
#define CONNECTS 8
#define PACE_MS 20
/* Connections that are accepted in one turn of the control thread, so that
 * other sources get their turn. */
#define TURN 64
/* How long accepting pauses if this process is out of descriptors. */
#define PAUSE_NS 200000000ull
/* How long a connection may take to send a probe before it is closed. It may
 * belong to a rank that wants to join; such a rank tries again. */
#define PROBE_NS 10000000000ull
/* Most such connections; one more closes the oldest. */
#define PENDING_MAX 256
#define RETRY_MS 10 /* pause before the next probe if there was no answer */
/* Probes that a rank has under way at a time, so that hundreds of ranks on one
 * machine do not ask one of them all at once. Ranks that do not answer for
 * SILENT_MS make room for as many others. */
#define PROBES 16
#define SILENT_MS 100
#define ANSWER 256 /* bytes to receive, including an answer */

/* A connection from which a probe may arrive. */
struct visitor {
	struct conn conn;
	struct recovery *owner;
	/* in the list of visitors, oldest first */
	struct visitor *next, **link;
};

struct recovery {
	/* A child of fork() closes this socket, so that nobody takes the child
	 * for this process. */
	struct loop_source source;
	char address[SOCK_TEXT];
	struct handshake_alive alive;
	struct visitor *first, **last;
	int visitors;
};

static void released(struct loop_source *s)
{
	struct recovery *r = (struct recovery *)s;

	auth_forget(&r->alive, sizeof(r->alive));
	free(r);
}

static void unlink_visitor(struct visitor *v)
{
	struct recovery *r = v->owner;

	if (!r)
		return;
	*v->link = v->next;
	if (v->next)
		v->next->link = v->link;
	else
		r->last = v->link;
	r->visitors--;
	v->owner = NULL;
}

static void drop_visitor(struct visitor *v)
{
	unlink_visitor(v);
	conn_drop(&v->conn);
}

static void visitor_frame(struct conn *c, enum frame_type type,
			  struct frame_reader *in)
{
	struct visitor *v = (struct visitor *)c;
	struct frame_writer out;

	if (type != FRAME_PROBE ||
	    !handshake_answer(&v->owner->alive, in, &out)) {
		drop_visitor(v);
		return;
	}
	unlink_visitor(v);
	conn_send(c, &out);
	conn_linger(c);
}

static void visitor_lost(struct conn *c, const char *why)
{
	(void)why;
	drop_visitor((struct visitor *)c);
}

static void visitor_expired(struct loop_source *s)
{
	drop_visitor((struct visitor *)s);
}

static void visitor_released(struct loop_source *s)
{
	conn_fini((struct conn *)s);
	free(s);
}

static void receive_visitor(struct recovery *r, int fd)
{
	struct visitor *v = calloc(1, sizeof(*v));

	if (!v) {
		close(fd);
		return;
	}
	tcp_tune(fd);
	conn_init(&v->conn, fd, HANDSHAKE_LIMIT);
	v->conn.source.released = visitor_released;
	v->conn.source.expired = visitor_expired;
	v->conn.frame = visitor_frame;
	v->conn.lost = visitor_lost;
	v->owner = r;
	v->link = r->last;
	*r->last = v;
	r->last = &v->next;
	r->visitors++;
	loop_deadline(&v->conn.source, clock_ns() + PROBE_NS);
	if (conn_serve(&v->conn) != DICOMM_SUCCESS)
		drop_visitor(v);
	else if (r->visitors > PENDING_MAX)
		drop_visitor(r->first);
}

static void accept_visitors(struct loop_source *s, uint32_t events)
{
	struct recovery *r = (struct recovery *)s;

	(void)events;
	for (int i = 0; i < TURN; i++) {
		int fd = recovery_accept(r);

		if (fd >= 0) {
			receive_visitor(r, fd);
		} else if (tcp_is_short(errno)) {
			if (r->first)
				drop_visitor(r->first);
			loop_watch(s, 0);
			loop_deadline(s, clock_ns() + PAUSE_NS);
			return;
		} else if (errno == EWOULDBLOCK) {
			return;
		}
	}
}

/* While this process serves an id at this socket, the id's listener accepts. */
static void resume(struct loop_source *s)
{
	if (id_server_is_open(((struct recovery *)s)->address))
		loop_deadline(s, clock_ns() + PAUSE_NS);
	else
		loop_watch(s, EPOLLIN);
}

dicomm_result_t recovery_open(struct recovery **out,
			      const uint8_t key[AUTH_KEY], int rank,
			      char address[SOCK_TEXT])
{
	struct recovery *r;
	dicomm_result_t status;

	TRY(loop_start());
	r = calloc(1, sizeof(*r));
	if (!r)
		return FAIL(DICOMM_ERR_NO_MEMORY, "recovery: out of memory");
	r->source.ready = accept_visitors;
	r->source.expired = resume;
	r->source.released = released;
	memcpy(r->alive.key, key, AUTH_KEY);
	r->alive.rank = (uint32_t)rank;
	r->alive.state = RECOVERY_IDLE;
	r->last = &r->first;
	/* With the lock held, no fork can happen between creating the socket
	 * and loop_add(). */
	loop_lock();
	status = sock_listen_locked(&r->source.fd, address);
	if (status == DICOMM_SUCCESS) {
		snprintf(r->address, sizeof(r->address), "%s", address);
		loop_add(&r->source);
	}
	loop_unlock();
	if (status != DICOMM_SUCCESS) {
		free(r);
		return status;
	}
	*out = r;
	return DICOMM_SUCCESS;
}

dicomm_result_t recovery_serve(struct recovery *r)
{
	dicomm_result_t status;

	loop_lock();
	status = loop_watch(&r->source, EPOLLIN);
	loop_unlock();
	return status;
}

void recovery_set_state(struct recovery *r, enum recovery_state state)
{
	loop_lock();
	r->alive.state = state;
	loop_unlock();
}

int recovery_fd(const struct recovery *r)
{
	return r->source.fd;
}

int recovery_accept(const struct recovery *r)
{
	return descriptors_high(accept4(r->source.fd, NULL, NULL,
					SOCK_CLOEXEC | SOCK_NONBLOCK));
}

void recovery_drop_pending(const struct recovery *r)
{
	int fd;

	while ((fd = recovery_accept(r)) >= 0)
		close(fd);
}

void recovery_close(struct recovery *r)
{
	if (!r)
		return;
	loop_lock();
	while (r->first)
		drop_visitor(r->first);
	loop_drop(&r->source);
	loop_unlock();
}

int recovery_connect(const char *text)
{
	struct sock_address address;
	const char *why;
	int fd;

	if (!sock_resolve(text, &address, &why))
		return -1;
	fd = sock_create(&address);
	if (fd < 0)
		return -1;
	if (connect(fd, (const struct sockaddr *)&address.storage,
		    address.len) == 0 ||
	    errno == EINPROGRESS)
		return fd;
	close(fd);
	return -1;
}

static void pace(const int *fds, int n)
{
	uint64_t until = clock_ms() + PACE_MS, now;
	struct pollfd polls[CONNECTS];
	int waiting = n;

	for (int i = 0; i < n; i++)
		polls[i] = (struct pollfd){.fd = fds[i], .events = POLLOUT};
	while (waiting && (now = clock_ms()) < until) {
		if (poll(polls, (nfds_t)n, (int)(until - now)) <= 0)
			continue;
		for (int i = 0; i < n; i++)
			if (polls[i].fd >= 0 && polls[i].revents) {
				polls[i].fd = -1;
				waiting--;
			}
	}
}

void recovery_connect_all(const char *const *addresses, int n,
			  const bool *wanted, int *fds)
{
	int recent[CONNECTS], m = 0;

	for (int i = 0; i < n; i++) {
		fds[i] = wanted[i] ? recovery_connect(addresses[i]) : -1;
		if (fds[i] >= 0)
			recent[m++] = fds[i];
		if (m == CONNECTS) {
			pace(recent, m);
			m = 0;
		}
	}
}

/* The probe of one rank. */
struct probe {
	int fd;     /* -1: not connected */
	bool asked; /* the probe has been sent */
	bool ended; /* or never wanted */
	/* If fd is -1: when to connect again; 0: never. */
	uint64_t retry_ms;
	uint8_t nonce[AUTH_NONCE];
	uint8_t answer[ANSWER];
	size_t got;
};

struct prober {
	const uint8_t *key;
	const char *const *addresses;
	enum recovery_state *states;
	int n, own;
	int begun;   /* of the n, from the rank after this one on */
	int waiting; /* for the answers of so many, begun or not */
	int under_way, room;
	uint64_t answered_ms; /* the last one */
	uint64_t moved_ms;    /* the same, or when there was more room */
	struct probe *probes;
	struct pollfd *polls;
};

static bool is_connected(int fd)
{
	int error = 0;
	socklen_t len = sizeof(error);

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 &&
	       error == 0 && !sock_is_self_connected(fd);
}

static void end_probe(struct prober *p, int i, enum recovery_state state)
{
	if (p->probes[i].fd >= 0)
		close(p->probes[i].fd);
	p->probes[i].fd = -1;
	p->probes[i].retry_ms = 0;
	p->probes[i].ended = true;
	p->states[i] = state;
	p->waiting--;
	p->under_way--;
	p->answered_ms = p->moved_ms = clock_ms();
}

/* The connection ended without an answer. That rank may be about to serve an
 * id, or may have stopped serving one. */
static void retry_probe(struct probe *b)
{
	close(b->fd);
	b->fd = -1;
	b->asked = false;
	b->got = 0;
	b->retry_ms = clock_ms() + RETRY_MS;
}

static bool send_probe(struct probe *b)
{
	struct frame_writer out;

	auth_random(b->nonce, sizeof(b->nonce));
	frame_begin(&out, FRAME_PROBE);
	frame_put_bytes(&out, b->nonce, sizeof(b->nonce));
	assert(!out.bad);
	b->asked = true;
	return send(b->fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       (ssize_t)out.len;
}

/* Reads the frames that have arrived. A listener sends its challenge first. */
static void read_answer(struct prober *p, int i)
{
	struct probe *b = &p->probes[i];
	enum frame_found found;
	struct frame_reader in;
	enum frame_type type;
	size_t at = 0, want;
	uint32_t state;

	for (;;) {
		found = frame_parse(b->answer + at, b->got - at, ANSWER, &type,
				    &in, &want);
		if (found == FRAME_MORE && b->got < ANSWER)
			return;
		if (found != FRAME_COMPLETE)
			break;
		if (type == FRAME_ALIVE &&
		    handshake_is_alive(p->key, (uint32_t)i, b->nonce, &in,
				       &state) &&
		    state > RECOVERY_GONE && state <= RECOVERY_LATE) {
			end_probe(p, i, (enum recovery_state)state);
			return;
		}
		if (type != FRAME_CHALLENGE)
			break;
		at += FRAME_HEADER + in.len;
	}
	/* Somebody else listens there, and will not become that rank. */
	end_probe(p, i, RECOVERY_GONE);
}

static void go_on(struct prober *p, int i)
{
	struct probe *b = &p->probes[i];
	ssize_t n;

	if (!b->asked) {
		if (!is_connected(b->fd))
			end_probe(p, i, RECOVERY_GONE);
		else if (!send_probe(b))
			retry_probe(b);
		return;
	}
	n = recv(b->fd, b->answer + b->got, ANSWER - b->got, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		retry_probe(b);
		return;
	}
	b->got += (size_t)n;
	read_answer(p, i);
}

/* Within a machine a connection is made at once. */
static void begin_probe(struct prober *p, int i)
{
	struct pollfd ready = {.fd = recovery_connect(p->addresses[i]),
			       .events = POLLOUT};

	p->probes[i].fd = ready.fd;
	p->probes[i].retry_ms = 0;
	if (ready.fd < 0)
		end_probe(p, i, RECOVERY_GONE);
	else if (poll(&ready, 1, 0) > 0)
		go_on(p, i);
}

static void begin_some(struct prober *p, uint64_t now)
{
	if (p->under_way == p->room && now >= p->moved_ms + SILENT_MS) {
		p->room += PROBES;
		p->moved_ms = now;
	}
	while (p->begun < p->n && p->under_way < p->room) {
		int i = (p->own + 1 + p->begun++) % p->n;

		if (p->probes[i].ended)
			continue;
		p->under_way++;
		begin_probe(p, i);
	}
}

/* Waits until a probe can go on, or another one may begin, at most until
 * until_ms. */
static void wait_probes(struct prober *p, uint64_t until_ms)
{
	uint64_t now = clock_ms(), next = until_ms;

	begin_some(p, now);
	if (p->begun < p->n && p->moved_ms + SILENT_MS < next)
		next = p->moved_ms + SILENT_MS;
	for (int i = 0; i < p->n; i++) {
		struct probe *b = &p->probes[i];

		if (b->retry_ms && b->retry_ms <= now)
			begin_probe(p, i);
		if (b->retry_ms && b->retry_ms < next)
			next = b->retry_ms;
		p->polls[i] = (struct pollfd){
			.fd = b->fd, .events = b->asked ? POLLIN : POLLOUT};
	}
	if (!p->waiting || poll(p->polls, (nfds_t)p->n,
				next > now ? (int)(next - now) : 0) <= 0)
		return;
	for (int i = 0; i < p->n; i++)
		if (p->probes[i].fd >= 0 && p->polls[i].revents)
			go_on(p, i);
}

static void probe_all(struct prober *p, uint64_t quiet_ms, uint64_t most_ms)
{
	uint64_t now = clock_ms(), end = now + most_ms;

	for (int i = 0; i < p->n; i++) {
		p->probes[i].fd = -1;
		p->probes[i].ended =
			i == p->own || p->states[i] == RECOVERY_GONE;
		p->waiting += !p->probes[i].ended;
	}
	p->room = PROBES;
	p->answered_ms = p->moved_ms = now;
	while (p->waiting && now < end && now < p->answered_ms + quiet_ms) {
		uint64_t until = p->answered_ms + quiet_ms;

		wait_probes(p, until < end ? until : end);
		now = clock_ms();
	}
	for (int i = 0; i < p->n; i++)
		if (!p->probes[i].ended)
			end_probe(p, i, RECOVERY_GONE);
}

dicomm_result_t recovery_probe(const uint8_t key[AUTH_KEY],
			       const char *const *addresses, int n, int own,
			       enum recovery_state *states, int quiet_ms,
			       int most_ms)
{
	struct prober p = {.key = key,
			   .addresses = addresses,
			   .states = states,
			   .n = n,
			   .own = own};
	dicomm_result_t status = DICOMM_SUCCESS;
	char why[256];

	p.probes = calloc((size_t)n, sizeof(*p.probes));
	p.polls = calloc((size_t)n, sizeof(*p.polls));
	if (p.probes && p.polls) {
		if (!sock_make_room((uint32_t)n, 0, why, sizeof(why)))
			log_warn("%s", why);
		probe_all(&p, (uint64_t)quiet_ms, (uint64_t)most_ms);
	} else {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "recovery: no memory to probe %d ranks", n);
	}
	free(p.probes);
	free(p.polls);
	return status;
}

void recovery_secret(char *text, size_t len)
{
	uint8_t bytes[AUTH_KEY];

	auth_random(bytes, sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes) && 2 * i + 2 < len; i++)
		snprintf(text + 2 * i, len - 2 * i, "%02x", bytes[i]);
	auth_forget(bytes, sizeof(bytes));
}

/* Serves the id on a duplicate of the socket. The id server closes the
 * duplicate; this process may need the socket again. */
static dicomm_result_t serve_id(const struct recovery *host,
				const uint8_t key[AUTH_KEY],
				const char *address)
{
	int fd = fcntl(host->source.fd, F_DUPFD_CLOEXEC, 3);

	if (fd < 0)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "recovery: duplicate a socket: %m");
	return id_server_open(fd, key, address, &host->alive);
}

dicomm_result_t recovery_new_id(struct recovery *host, const char *address,
				const char *phrase, dicomm_unique_id_t *id)
{
	uint8_t key[AUTH_KEY];
	dicomm_result_t status;

	TRY(auth_init());
	auth_key_from_text("dicomm shrink", phrase, key);
	status = id_format(address, key, id);
	if (status == DICOMM_SUCCESS && host) {
		status = loop_start();
		/* Ranks must not connect to the id of an earlier round. */
		id_server_close(address);
		recovery_drop_pending(host);
		if (status == DICOMM_SUCCESS)
			status = serve_id(host, key, address);
		loop_lock();
		if (id_server_is_open(address)) {
			loop_watch(&host->source, 0);
			loop_deadline(&host->source, clock_ns() + PAUSE_NS);
			/* If ranks that want to join are among these, they try
			 * again. */
			while (host->first)
				drop_visitor(host->first);
		}
		loop_unlock();
	}
	auth_forget(key, sizeof(key));
	return status;
}
