/* SPDX-License-Identifier: BSD-3-Clause */
/* Both ends of the path between two doctors. */
#include "perftest/doctor/peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perftest/base/clock.h"
#include "perftest/doctor/network.h"

#define PEER_NAME 256
#define LISTEN_S 300
#define PINGS 200
#define PING_BYTES 64
#define LARGE_BYTES 65536 /* many packets of the largest size */

/* The last two characters are the version of what the two say to each
 * other. */
#define MAGIC "dicomm-doctor-01"

/* Each says this first; numbers are big-endian. */
struct hello {
	char magic[16];
	char address[NETWORK_TEXT]; /* of the other end, as this end sees it */
	uint32_t port;              /* where this end can be connected to */
};

enum step { LISTENS, NAME, CONNECT, ANSWER, SEEN, TRIP, LARGE, BACK };

static const struct check steps[] = {
	[LISTENS] = {"listen", "a peer within 300 s",
		     "dicomm-info --doctor HOST:PORT on the other host", NULL},
	[NAME] = {"peer name", "an address",
		  "DNS or /etc/hosts; or give the address", NULL},
	[CONNECT] = {"peer connect", "a connection within 5 s",
		     "refused: dicomm-info --doctor :PORT there; no answer: a "
		     "firewall, or a host that is down",
		     NULL},
	[ANSWER] = {"peer answer", "another doctor of this version",
		    "dicomm-info --doctor :PORT there; a port of its own",
		    NULL},
	[SEEN] = {"peer sees", "the address that this host has",
		  "no translation of addresses (NAT) between ranks", NULL},
	[TRIP] = {"round trip", "each message is answered within 5 s",
		  "look for lost packets: ip -s link", NULL},
	[LARGE] = {"large packets", "64 KiB pass as small messages do",
		   "equal MTU on the whole path, and ICMP let through", NULL},
	[BACK] = {"peer back", "a connection from there within 5 s",
		  "open the ports of DICOMM_PORT_RANGE in the firewall of the "
		  "host that was called",
		  NULL},
};

static void tell(struct doctor *d, enum step step, enum verdict verdict,
		 const char *text)
{
	d->check = &steps[step];
	doctor_tell(d, verdict, "%s", text);
}

static bool split(const char *peer, char host[PEER_NAME], char port[8])
{
	const char *colon = strrchr(peer, ':');
	size_t n;
	char *end;
	long number;

	if (!colon || colon[1] < '0' || colon[1] > '9')
		return false;
	number = strtol(colon + 1, &end, 10);
	if (*end || number < 1 || number > 65535)
		return false;
	n = (size_t)(colon - peer);
	if (n > 2 && peer[0] == '[' && colon[-1] == ']') {
		peer++;
		n -= 2;
	} else if (memchr(peer, ':', n)) {
		return false;
	}
	if (n >= PEER_NAME)
		return false;
	snprintf(host, PEER_NAME, "%.*s", (int)n, peer);
	snprintf(port, 8, "%ld", number);
	return true;
}

/* ---- bounded input and output: 0, or an errno ---- */

static int wait_for(int fd, short events, double end_s)
{
	struct pollfd p = {.fd = fd, .events = events};
	double left_s = end_s - clock_s();
	int n = poll(&p, 1, left_s > 0 ? (int)(left_s * 1000) + 1 : 0);

	return n > 0 ? 0 : n < 0 ? errno : ETIMEDOUT;
}

/* Sends or receives all of it. */
static int move(int fd, void *bytes, size_t len, bool out)
{
	double end_s = clock_s() + NETWORK_TIMEOUT_S;
	int err = 0;

	for (size_t at = 0; at < len && !err;) {
		char *p = (char *)bytes + at;
		ssize_t n = out ? send(fd, p, len - at, MSG_NOSIGNAL)
				: recv(fd, p, len - at, 0);

		if (n > 0)
			at += (size_t)n;
		else if (n == 0)
			err = ECONNRESET;
		else if (errno == EAGAIN || errno == EINTR)
			err = wait_for(fd, out ? POLLOUT : POLLIN, end_s);
		else
			err = errno;
	}
	return err;
}

static int try_accept(int listener, double end_s, int *out,
		      struct sockaddr_storage *from)
{
	const int on = 1;
	socklen_t len;
	int err = 0;

	for (; !err; err = wait_for(listener, POLLIN, end_s)) {
		len = sizeof(*from);
		*out = accept4(listener, (struct sockaddr *)from, &len,
			       SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (*out >= 0) {
			setsockopt(*out, IPPROTO_TCP, TCP_NODELAY, &on,
				   sizeof(on));
			return 0;
		}
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			return errno;
	}
	return err;
}

static int try_connect(const struct sockaddr *to, socklen_t len, int *out)
{
	int fd = socket(to->sa_family,
			SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t size = sizeof(int);
	const int on = 1;
	int err = 0;

	if (fd < 0)
		return errno;
	if (connect(fd, to, len) < 0 && errno != EINPROGRESS)
		err = errno;
	if (!err)
		err = wait_for(fd, POLLOUT, clock_s() + NETWORK_TIMEOUT_S);
	if (!err && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size) < 0)
		err = errno;
	if (err) {
		close(fd);
		return err;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	*out = fd;
	return 0;
}

static const char *reason(int err)
{
	return err == ETIMEDOUT || err == EAGAIN ? "no answer in 5 s"
						 : strerror(err);
}

/* ---- what both ends do ---- */

/* Tells the other end who this is; learns the same of it. */
static int greet(int fd, uint32_t port, struct hello *theirs)
{
	struct sockaddr_storage from = {0};
	socklen_t len = sizeof(from);
	struct hello mine = {.port = htonl(port)};
	int err;

	memcpy(mine.magic, MAGIC, sizeof(mine.magic));
	getpeername(fd, (struct sockaddr *)&from, &len);
	network_text(&from, mine.address);
	err = move(fd, &mine, sizeof(mine), true);
	err = err ? err : move(fd, theirs, sizeof(*theirs), false);
	theirs->address[NETWORK_TEXT - 1] = '\0';
	if (!err && memcmp(theirs->magic, MAGIC, sizeof(theirs->magic)))
		err = EPROTO;
	return err;
}

/* The port is at the same place in both families. */
static void set_port(void *address, unsigned port)
{
	((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
}

static unsigned port_of(int listener)
{
	struct sockaddr_storage own = {0};
	socklen_t len = sizeof(own);

	getsockname(listener, (struct sockaddr *)&own, &len);
	return ntohs(((const struct sockaddr_in *)&own)->sin_port);
}

/* ---- the end that connects ---- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns the socket, or -1 after it has told why not. */
static int reach(struct doctor *d, const char *host, const char *port)
{
	char text[NETWORK_TEXT], line[DOCTOR_LINE];
	struct addrinfo *found;
	const char *why = network_resolve(host, &found);
	int fd = -1, err = 0;

	snprintf(line, sizeof(line), "%s: %s", host, why ? why : "");
	if (why) {
		tell(d, NAME, VERDICT_BAD, line);
		return -1;
	}
	for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
		network_text(a->ai_addr, text);
		set_port(a->ai_addr, (unsigned)atoi(port));
		err = try_connect(a->ai_addr, a->ai_addrlen, &fd);
		snprintf(line, sizeof(line), "%s port %s: %s", text, port,
			 err ? reason(err) : "connected");
		if (!err)
			break;
	}
	freeaddrinfo(found);
	tell(d, CONNECT, err ? VERDICT_BAD : VERDICT_OK, line);
	return fd;
}

/* Returns false after it has told what went wrong. */
static bool measure(struct doctor *d, int fd)
{
	char *bytes = calloc(1, LARGE_BYTES), line[DOCTOR_LINE];
	double trips[PINGS], begin;
	int err = bytes ? 0 : ENOMEM;

	for (int i = 0; i < PINGS && !err; i++) {
		begin = clock_s();
		err = move(fd, bytes, PING_BYTES, true);
		err = err ? err : move(fd, bytes, PING_BYTES, false);
		trips[i] = (clock_s() - begin) * 1e6;
	}
	if (err) {
		tell(d, TRIP, VERDICT_BAD, reason(err));
		free(bytes);
		return false;
	}
	qsort(trips, PINGS, sizeof(*trips), by_value);
	snprintf(line, sizeof(line), "%.1f us, at least %.1f us",
		 trips[PINGS / 2], trips[0]);
	tell(d, TRIP, VERDICT_OK, line);
	err = move(fd, bytes, LARGE_BYTES, true);
	err = err ? err : move(fd, bytes, LARGE_BYTES, false);
	free(bytes);
	tell(d, LARGE, err ? VERDICT_BAD : VERDICT_OK,
	     err ? reason(err) : "64 KiB pass");
	return !err;
}

static void tell_seen(struct doctor *d, int fd, const char *seen)
{
	char own[NETWORK_TEXT], line[DOCTOR_LINE];
	struct sockaddr_storage address = {0};
	socklen_t len = sizeof(address);
	bool same;

	getsockname(fd, (struct sockaddr *)&address, &len);
	network_text(&address, own);
	same = !strcmp(own, seen);
	snprintf(line, sizeof(line), "%s%s%s", seen,
		 same ? "" : "; here it is ", same ? "" : own);
	tell(d, SEEN, same ? VERDICT_OK : VERDICT_WARN, line);
}

/* The peer connects now, or says why it cannot. */
static void be_called(struct doctor *d, int fd, int listener)
{
	char line[DOCTOR_LINE], text[NETWORK_TEXT] = "";
	struct sockaddr_storage from = {0};
	uint32_t status = 0;
	int back = -1, err;

	/* It says so when it has waited as long as any step may take. */
	err = wait_for(fd, POLLIN, clock_s() + 2 * NETWORK_TIMEOUT_S);
	err = err ? err : move(fd, &status, sizeof(status), false);
	if (!err)
		err = (int)ntohl(status);
	if (!err)
		err = try_accept(listener, clock_s() + NETWORK_TIMEOUT_S, &back,
				 &from);
	network_text(&from, text);
	snprintf(line, sizeof(line), "port %u: %s%s", port_of(listener),
		 err ? reason(err) : "connected from ", text);
	tell(d, BACK, err ? VERDICT_BAD : VERDICT_OK, line);
	if (back >= 0)
		close(back);
}

static void call(struct doctor *d, const char *host, const char *port)
{
	int fd = reach(d, host, port), listener, err;
	struct hello theirs;

	if (fd < 0)
		return;
	listener = network_listen(0);
	if (listener < 0) {
		tell(d, BACK, VERDICT_BAD, strerror(errno));
		goto close_fd;
	}
	err = greet(fd, port_of(listener), &theirs);
	if (err) {
		tell(d, ANSWER, VERDICT_BAD,
		     err == EPROTO ? "it is no doctor of this version"
				   : reason(err));
		goto close_listener;
	}
	tell_seen(d, fd, theirs.address);
	if (measure(d, fd))
		be_called(d, fd, listener);
close_listener:
	close(listener);
close_fd:
	close(fd);
}

/* ---- the end that listens ---- */

static int echo(int fd, char *bytes, size_t len)
{
	int err = move(fd, bytes, len, false);

	return err ? err : move(fd, bytes, len, true);
}

/* Answers one peer. Returns false if it is none, and another may come. */
static bool serve(struct doctor *d, int fd, struct sockaddr_storage *from)
{
	char *bytes = malloc(LARGE_BYTES), line[DOCTOR_LINE];
	char text[NETWORK_TEXT];
	struct hello theirs;
	int back = -1, err;
	uint32_t status;

	network_text(from, text);
	err = bytes ? greet(fd, 0, &theirs) : ENOMEM;
	snprintf(line, sizeof(line), "%s: %s", text,
		 err == EPROTO ? "it is no doctor of this version"
			       : reason(err));
	if (err) {
		tell(d, ANSWER, VERDICT_WARN, line);
		free(bytes);
		return false;
	}
	snprintf(line, sizeof(line), "%s has connected", text);
	tell(d, ANSWER, VERDICT_OK, line);
	for (int i = 0; i < PINGS && !err; i++)
		err = echo(fd, bytes, PING_BYTES);
	tell(d, TRIP, err ? VERDICT_BAD : VERDICT_OK,
	     err ? reason(err) : "answered");
	if (!err) {
		err = echo(fd, bytes, LARGE_BYTES);
		tell(d, LARGE, err ? VERDICT_BAD : VERDICT_OK,
		     err ? reason(err) : "64 KiB pass");
	}
	/* The peer is to find the same, and not that this end has gone. */
	if (err)
		move(fd, bytes, 1, false);
	free(bytes);
	if (err)
		return true;
	set_port(from, ntohl(theirs.port));
	err = try_connect((const struct sockaddr *)from,
			  from->ss_family == AF_INET
				  ? sizeof(struct sockaddr_in)
				  : sizeof(struct sockaddr_in6),
			  &back);
	status = htonl((uint32_t)err);
	move(fd, &status, sizeof(status), true);
	snprintf(line, sizeof(line), "%s port %u: %s", text,
		 (unsigned)ntohl(theirs.port), err ? reason(err) : "connected");
	tell(d, BACK, err ? VERDICT_BAD : VERDICT_OK, line);
	if (back >= 0)
		close(back);
	return true;
}

static void listen_for(struct doctor *d, const char *port)
{
	int listener = network_listen((unsigned)atoi(port)), fd, err;
	double end_s = clock_s() + LISTEN_S;
	struct sockaddr_storage from = {0};
	char line[DOCTOR_LINE];
	bool done = false;

	snprintf(line, sizeof(line), "port %s: %s", port,
		 listener < 0 ? strerror(errno) : "waiting for 300 s at most");
	tell(d, LISTENS, listener < 0 ? VERDICT_BAD : VERDICT_OK, line);
	while (listener >= 0 && !done) {
		err = try_accept(listener, end_s, &fd, &from);
		if (err) {
			tell(d, LISTENS, VERDICT_BAD,
			     err == ETIMEDOUT ? "nobody came" : strerror(err));
			break;
		}
		done = serve(d, fd, &from);
		close(fd);
	}
	if (listener >= 0)
		close(listener);
}

bool peer_check(const char *text)
{
	char host[PEER_NAME], port[8];

	return split(text, host, port);
}

void peer_run(struct doctor *d, const char *peer)
{
	char host[PEER_NAME], port[8];

	if (!split(peer, host, port))
		return;
	if (host[0])
		call(d, host, port);
	else
		listen_for(d, port);
}
