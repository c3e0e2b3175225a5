/* SPDX-License-Identifier: BSD-3-Clause */
/* The recovery sockets: listening, probing, serving an id. */
#include "src/boot/control/recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "src/boot/net/auth.h"
#include "src/boot/control/id.h"
#include "src/boot/net/loop.h"
#include "src/boot/control/id_server.h"

/* If hundreds of ranks of one machine connect to each other all at once, they
 * overrun the kernel's queue of packets, and dropped packets are sent again
 * only after a second. So after a few connects wait for them to complete, but
 * not long, because a host that is gone never answers. */
#define CONNECTS 8
#define PACE_MS 20
/* Connections closed in one turn of the control thread, so that other sources
 * get their turn. */
#define TURN 64
/* Pause of accepting if this process has no descriptor left. */
#define PAUSE_NS 200000000ull

struct recovery {
	/* A child of fork() closes it, so that nobody takes the child for this
	 * process. */
	struct loop_source source;
	char address[SOCK_TEXT];
	struct recovery *next;
};

/* All of this process, guarded by the lock of the loop. */
static struct recovery *recoveries;

static void released(struct loop_source *s)
{
	free(s); /* the first member of struct recovery */
}

/* Accept and close: a rank that probes has its answer from the kernel, when the
 * connection is made. */
static void drop_probes(struct loop_source *s, uint32_t events)
{
	(void)events;
	for (int i = 0; i < TURN; i++) {
		int fd = recovery_accept((struct recovery *)s);

		if (fd >= 0) {
			close(fd);
		} else if (tcp_is_short(errno)) {
			loop_watch(s, 0);
			loop_deadline(s, clock_ns() + PAUSE_NS);
			return;
		} else if (errno == EWOULDBLOCK) {
			return;
		}
	}
}

static void accept_probes(struct loop_source *s)
{
	if (!id_server_is_open(((struct recovery *)s)->address))
		loop_watch(s, EPOLLIN);
}

static void ignore_probes(struct recovery *r)
{
	loop_deadline(&r->source, 0);
	if (r->source.watched)
		loop_watch(&r->source, 0);
}

/*
 * The kernel completes as many connections as its queue is long
 * (net.core.somaxconn, 128 before Linux 5.4) and drops the others; those ranks
 * would take this one for dead. So a rank that probes also empties its own
 * queue, then and later, unless an id is served there: its listener accepts.
 */
static void accept_probes_at(const char *const *addresses, int n)
{
	loop_lock();
	for (struct recovery *r = recoveries; r; r = r->next)
		for (int i = 0; i < n; i++)
			if (!r->source.dead &&
			    !strcmp(r->address, addresses[i]))
				accept_probes(&r->source);
	loop_unlock();
}

dicomm_result_t recovery_open(struct recovery **out, char address[SOCK_TEXT])
{
	struct recovery *r;
	dicomm_result_t status;

	TRY(loop_start());
	r = calloc(1, sizeof(*r));
	if (!r)
		return FAIL(DICOMM_ERR_NO_MEMORY, "recovery: out of memory");
	r->source.ready = drop_probes;
	r->source.expired = accept_probes;
	r->source.released = released;
	/* Locked, so that no fork comes between the socket and loop_add(). */
	loop_lock();
	status = sock_listen(&r->source.fd, address);
	if (status == DICOMM_SUCCESS) {
		snprintf(r->address, sizeof(r->address), "%s", address);
		r->next = recoveries;
		recoveries = r;
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

int recovery_fd(const struct recovery *r)
{
	return r->source.fd;
}

int recovery_accept(const struct recovery *r)
{
	return accept4(r->source.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

void recovery_drop_pending(const struct recovery *r)
{
	int fd;

	while ((fd = recovery_accept(r)) >= 0)
		close(fd);
}

void recovery_close(struct recovery *r)
{
	struct recovery **at = &recoveries;

	if (!r)
		return;
	loop_lock();
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
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

static bool is_connected(int fd)
{
	int error = 0;
	socklen_t len = sizeof(error);

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 &&
	       error == 0 && !sock_is_self_connected(fd);
}

dicomm_result_t recovery_probe(const char *const *addresses, int n, bool *alive,
			       int timeout_ms)
{
	struct pollfd *fds = calloc((size_t)n, sizeof(*fds));
	int *sockets = calloc((size_t)n, sizeof(*sockets));
	uint64_t until = clock_ms() + (uint64_t)timeout_ms;
	int waiting = 0;

	if (!fds || !sockets) {
		free(fds);
		free(sockets);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "recovery: no memory to probe %d ranks", n);
	}
	sock_make_room((uint32_t)n);
	accept_probes_at(addresses, n);
	recovery_connect_all(addresses, n, alive, sockets);
	for (int i = 0; i < n; i++) {
		fds[i].fd = sockets[i];
		fds[i].events = POLLOUT;
		alive[i] = false;
		waiting += fds[i].fd >= 0;
	}
	while (waiting) {
		uint64_t now = clock_ms();
		int ready;

		if (now >= until)
			break;
		ready = poll(fds, (nfds_t)n, (int)(until - now));
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			break;
		for (int i = 0; i < n; i++) {
			if (fds[i].fd < 0 || !fds[i].revents)
				continue;
			alive[i] = is_connected(fds[i].fd);
			close(fds[i].fd);
			fds[i].fd = -1;
			waiting--;
		}
	}
	for (int i = 0; i < n; i++)
		if (fds[i].fd >= 0)
			close(fds[i].fd);
	free(sockets);
	free(fds);
	return DICOMM_SUCCESS;
}

void recovery_secret(char *text, size_t len)
{
	uint8_t bytes[AUTH_KEY];

	auth_random(bytes, sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes) && 2 * i + 2 < len; i++)
		snprintf(text + 2 * i, len - 2 * i, "%02x", bytes[i]);
	auth_forget(bytes, sizeof(bytes));
}

/* Serve the id on a duplicate of the socket: the id server closes its own, and
 * this one may be needed again. */
static dicomm_result_t serve_id(const struct recovery *host,
				const uint8_t key[AUTH_KEY],
				const char *address)
{
	int fd = fcntl(host->source.fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "recovery: duplicate a socket: %m");
	return id_server_open(fd, key, address);
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
		/* The id of an earlier round must not take these ranks. */
		id_server_close(address);
		recovery_drop_pending(host);
		if (status == DICOMM_SUCCESS)
			status = serve_id(host, key, address);
		loop_lock();
		if (id_server_is_open(address))
			ignore_probes(host);
		loop_unlock();
	}
	auth_forget(key, sizeof(key));
	return status;
}
