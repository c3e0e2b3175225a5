/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/boot/refuge.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "src/boot/auth.h"
#include "src/boot/id.h"
#include "src/boot/loop.h"
#include "src/boot/meeting.h"

/* Hundreds of ranks of one machine that knock at each other all at once overrun
 * the kernel's queue of packets, and what is dropped there is sent again only
 * after a second. So some wait for an answer first, but not long: hosts may be
 * gone that answer nothing. */
#define KNOCKS 8
#define PACE_MS 20
/* Hung up on in one turn of the control thread, so that others get theirs. */
#define TURN 64
/* To the next look at who has knocked, if this process has no descriptor left
 * to hang up with. */
#define PAUSE_NS 200000000ull

struct refuge {
	/* A child of fork() closes it: who knocks there must not take the child
	 * for this process. */
	struct loop_source source;
	char address[SOCK_TEXT];
	struct refuge *next;
};

/* Of this process, under the lock of the loop. */
static struct refuge *refuges;

static void released(struct loop_source *s)
{
	free(s); /* the first member of its refuge */
}

/* Who knocks has his sign of life from the kernel. */
static void knocked(struct loop_source *s, uint32_t events)
{
	(void)events;
	for (int i = 0; i < TURN; i++) {
		int fd = refuge_accept((struct refuge *)s);

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

static void serve(struct loop_source *s)
{
	if (!meeting_is_open(((struct refuge *)s)->address))
		loop_watch(s, EPOLLIN);
}

static void serve_not(struct refuge *r)
{
	loop_deadline(&r->source, 0);
	if (r->source.watched)
		loop_watch(&r->source, 0);
}

/*
 * The kernel lets in as many as its queue is long (net.core.somaxconn, which is
 * 128 before Linux 5.4) and drops the others, who would take this rank for
 * dead. So who looks for survivors hangs up on those who look for it, then and
 * later; but where a meeting is hosted, that lets in who comes.
 */
static void serve_those(const char *const *addresses, int n)
{
	loop_lock();
	for (struct refuge *r = refuges; r; r = r->next)
		for (int i = 0; i < n; i++)
			if (!r->source.dead &&
			    !strcmp(r->address, addresses[i]))
				serve(&r->source);
	loop_unlock();
}

dicomm_result_t refuge_open(struct refuge **out, char address[SOCK_TEXT])
{
	struct refuge *r;
	dicomm_result_t status;

	TRY(loop_start());
	r = calloc(1, sizeof(*r));
	if (!r)
		return FAIL(DICOMM_ERR_NO_MEMORY, "refuge: out of memory");
	r->source.ready = knocked;
	r->source.expired = serve;
	r->source.released = released;
	/* No fork between the two. */
	loop_lock();
	status = sock_listen(&r->source.fd, address);
	if (status == DICOMM_SUCCESS) {
		snprintf(r->address, sizeof(r->address), "%s", address);
		r->next = refuges;
		refuges = r;
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

int refuge_fd(const struct refuge *refuge)
{
	return refuge->source.fd;
}

int refuge_accept(const struct refuge *refuge)
{
	return descriptors_high(accept4(refuge->source.fd, NULL, NULL,
					SOCK_CLOEXEC | SOCK_NONBLOCK));
}

void refuge_send_away(const struct refuge *refuge)
{
	int fd;

	while ((fd = refuge_accept(refuge)) >= 0)
		close(fd);
}

void refuge_close(struct refuge *refuge)
{
	struct refuge **at = &refuges;

	if (!refuge)
		return;
	loop_lock();
	while (*at != refuge)
		at = &(*at)->next;
	*at = refuge->next;
	loop_drop(&refuge->source);
	loop_unlock();
}

int refuge_knock(const char *text)
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
	struct pollfd polls[KNOCKS];
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

void refuge_knock_all(const char *const *addresses, int n, const bool *wanted,
		      int *fds)
{
	int recent[KNOCKS], m = 0;

	for (int i = 0; i < n; i++) {
		fds[i] = wanted[i] ? refuge_knock(addresses[i]) : -1;
		if (fds[i] >= 0)
			recent[m++] = fds[i];
		if (m == KNOCKS) {
			pace(recent, m);
			m = 0;
		}
	}
}

static bool answered(int fd)
{
	int error = 0;
	socklen_t len = sizeof(error);

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 &&
	       error == 0 && !sock_met_itself(fd);
}

dicomm_result_t refuge_probe(const char *const *addresses, int n, bool *alive,
			     int timeout_ms)
{
	struct pollfd *fds = calloc((size_t)n, sizeof(*fds));
	int *knocks = calloc((size_t)n, sizeof(*knocks));
	uint64_t until = clock_ms() + (uint64_t)timeout_ms;
	int waiting = 0;

	if (!fds || !knocks) {
		free(fds);
		free(knocks);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "refuge: no memory to ask %d ranks", n);
	}
	sock_make_room((uint32_t)n);
	serve_those(addresses, n);
	refuge_knock_all(addresses, n, alive, knocks);
	for (int i = 0; i < n; i++) {
		fds[i].fd = knocks[i];
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
			alive[i] = answered(fds[i].fd);
			close(fds[i].fd);
			fds[i].fd = -1;
			waiting--;
		}
	}
	for (int i = 0; i < n; i++)
		if (fds[i].fd >= 0)
			close(fds[i].fd);
	free(knocks);
	free(fds);
	return DICOMM_SUCCESS;
}

void refuge_secret(char *text, size_t len)
{
	uint8_t bytes[AUTH_KEY];

	auth_random(bytes, sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes) && 2 * i + 2 < len; i++)
		snprintf(text + 2 * i, len - 2 * i, "%02x", bytes[i]);
	auth_forget(bytes, sizeof(bytes));
}

/* The meeting closes a socket of its own; this one may be needed again. */
static dicomm_result_t meet_here(const struct refuge *host,
				 const uint8_t key[AUTH_KEY],
				 const char *address)
{
	int fd = fcntl(host->source.fd, F_DUPFD_CLOEXEC, 3);

	if (fd < 0)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "refuge: duplicate a socket: %m");
	return meeting_open(fd, key, address);
}

dicomm_result_t refuge_meet(struct refuge *host, const char *address,
			    const char *phrase, dicomm_unique_id_t *id)
{
	uint8_t key[AUTH_KEY];
	dicomm_result_t status;

	TRY(auth_init());
	auth_key_from_text("dicomm shrink", phrase, key);
	status = id_format(address, key, id);
	if (status == DICOMM_SUCCESS && host) {
		status = loop_start();
		/* The meeting of an earlier round must not take its guests. */
		meeting_end(address);
		refuge_send_away(host);
		if (status == DICOMM_SUCCESS)
			status = meet_here(host, key, address);
		loop_lock();
		if (meeting_is_open(address))
			serve_not(host);
		loop_unlock();
	}
	auth_forget(key, sizeof(key));
	return status;
}
