/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP sockets: choice of port, connecting. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/auth.h"
#include "src/boot/net/interface.h"
#include "src/boot/net/lent_port.h"
#include "src/boot/net/loop.h"
#include "src/boot/net/sock.h"

#define BACKLOG 4096 /* the kernel limits it to net.core.somaxconn */
#define POLL_MS 50
/* A port that is in use is tried again after this time; and each time after
 * SAY_NS, a message says so. */
#define AGAIN_NS 100000000
#define SAY_NS UINT64_C(10000000000)
/* For so long, processes that lend ports are asked for one. */
#define ASK_NS UINT64_C(3000000000)

static void set_port(struct sock_address *address, unsigned port)
{
	if (address->storage.ss_family == AF_INET)
		((struct sockaddr_in *)&address->storage)->sin_port =
			htons((uint16_t)port);
	else
		((struct sockaddr_in6 *)&address->storage)->sin6_port =
			htons((uint16_t)port);
}

static void to_text(const struct sock_address *address, char text[SOCK_TEXT])
{
	char host[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE], port[8];
	bool v6 = address->storage.ss_family == AF_INET6;

	if (getnameinfo((const struct sockaddr *)&address->storage,
			address->len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(text, SOCK_TEXT, "?");
	else
		snprintf(text, SOCK_TEXT, v6 ? "[%s]:%s" : "%s:%s", host, port);
}

/* Returns the listening socket, or -1 and sets errno. */
static int try_listen(const struct sock_address *address, bool reuse)
{
	int on = 1, off = 0, err;
	int fd = sock_create(address);

	if (fd < 0)
		return -1;
	if (reuse)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (address->storage.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (!bind(fd, (const struct sockaddr *)&address->storage,
		  address->len) &&
	    !listen(fd, BACKLOG))
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

unsigned sock_port(int fd)
{
	struct sock_address address = {.len = sizeof(address.storage)};

	getsockname(fd, (struct sockaddr *)&address.storage, &address.len);
	/* It is at the same place in both families. */
	return ntohs(((struct sockaddr_in *)&address.storage)->sin_port);
}

static bool port_is_taken(void)
{
	return errno == EADDRINUSE || errno == EACCES;
}

/* Begins at a random one, so that processes that start together do not all try
 * the same ports. */
static int take_free(struct sock_address *address, unsigned first,
		     unsigned last)
{
	unsigned n = last - first + 1, start;
	int fd = -1;

	auth_random((uint8_t *)&start, sizeof(start));
	for (unsigned i = 0; i < n; i++) {
		set_port(address, first + (start % n + i) % n);
		fd = try_listen(address, true);
		if (fd >= 0 || !port_is_taken())
			break;
	}
	return fd;
}

/* Asks other processes for one that they lend. A caller that holds the lock of
 * the loop releases it meanwhile. */
static int take_lent(struct sock_address *address, unsigned first,
		     unsigned last, bool locked)
{
	uint64_t until_ns = clock_ns() + ASK_NS;
	int fd = -1, err = errno;
	pid_t silent;
	bool given;

	for (unsigned port = first;
	     port <= last && fd < 0 && clock_ns() < until_ns; port++) {
		if (locked)
			loop_unlock();
		given = lent_port_ask_back(port, &silent);
		if (locked)
			loop_lock();
		if (!given)
			continue;
		set_port(address, port);
		fd = try_listen(address, true);
	}
	errno = err;
	return fd;
}

/* Takes the first free port of DICOMM_PORT_RANGE. If all are taken, the one
 * that this process lends, or else that another one lends. */
static int listen_in_range(struct sock_address *address, bool locked)
{
	unsigned first, last;
	bool closed;
	int fd, err;

	if (sscanf(config_string(CONFIG_PORT_RANGE), "%u-%u", &first, &last) !=
	    2) {
		set_port(address, 0);
		return try_listen(address, false);
	}
	fd = take_free(address, first, last);
	if (fd >= 0 || !port_is_taken())
		return fd;
	err = errno;
	if (!locked)
		loop_lock();
	closed = lent_port_close_own(first, last);
	if (!locked)
		loop_unlock();
	errno = err;
	if (closed)
		fd = take_free(address, first, last);
	if (fd >= 0 || !port_is_taken())
		return fd;
	return take_lent(address, first, last, locked);
}

static dicomm_result_t listen_there(int *out, char text[SOCK_TEXT], bool locked)
{
	struct sock_address address;
	struct interface chosen;
	int fd;

	TRY(interface_choose(&chosen));
	log_debug("listening on interface %s: %s", chosen.name, chosen.why);
	address = chosen.address;
	fd = listen_in_range(&address, locked);
	if (fd < 0 && errno == EADDRNOTAVAIL) {
		/* The interface has got another address since it was chosen. */
		interface_forget();
		TRY(interface_choose(&chosen));
		address = chosen.address;
		fd = listen_in_range(&address, locked);
	}
	if (fd < 0) {
		to_text(&address, text);
		return FAIL(DICOMM_ERR_SYSTEM,
			    "listen at %s, DICOMM_PORT_RANGE \"%s\": %m", text,
			    config_string(CONFIG_PORT_RANGE));
	}
	address.len = sizeof(address.storage);
	getsockname(fd, (struct sockaddr *)&address.storage, &address.len);
	to_text(&address, text);
	*out = fd;
	return DICOMM_SUCCESS;
}

dicomm_result_t sock_listen(int *out, char text[SOCK_TEXT])
{
	return listen_there(out, text, false);
}

dicomm_result_t sock_listen_locked(int *out, char text[SOCK_TEXT])
{
	return listen_there(out, text, true);
}

/* Splits "host:port" or "[address]:port". Returns false if it is neither. */
static bool split(const char *host_port, char host[SOCK_NAME], char port[8])
{
	const char *colon = strrchr(host_port, ':');
	size_t n;
	char *end;
	long number;

	if (!colon || colon == host_port)
		return false;
	number = strtol(colon + 1, &end, 10);
	if (colon[1] < '0' || colon[1] > '9' || *end || number < 1 ||
	    number > 65535)
		return false;
	n = (size_t)(colon - host_port);
	if (host_port[0] == '[' && colon[-1] == ']') {
		host_port++;
		n -= 2;
	} else if (memchr(host_port, ':', n)) {
		return false;
	}
	if (!n || n >= SOCK_NAME)
		return false;
	memcpy(host, host_port, n);
	host[n] = '\0';
	snprintf(port, 8, "%ld", number);
	return true;
}

bool sock_is_host_port(const char *text)
{
	char host[SOCK_NAME], port[8];

	return strlen(text) < SOCK_NAME && split(text, host, port);
}

dicomm_result_t sock_check(const char *host_port)
{
	size_t len = strlen(host_port);

	if (sock_is_host_port(host_port))
		return DICOMM_SUCCESS;
	/* The port is at the end. */
	if (len >= SOCK_NAME)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "\"%.40s...%s\", %zu characters, is not host:port "
			    "or [address]:port: a name has at most 255",
			    host_port, host_port + len - 20, len);
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "\"%s\" is not host:port or [address]:port", host_port);
}

static const struct addrinfo *choose(const struct addrinfo *all, unsigned turn)
{
	const struct addrinfo *a = all;
	unsigned n = 0;

	for (; a; a = a->ai_next)
		n++;
	for (a = all, turn %= n; turn; turn--)
		a = a->ai_next;
	return a;
}

static bool resolve(const char *host_port, int flags, unsigned turn,
		    struct sock_address *address, const char **why)
{
	struct addrinfo hints = {
		.ai_family = interface_family(),
		.ai_socktype = SOCK_STREAM,
		.ai_flags = flags | AI_NUMERICSERV,
	};
	char host[SOCK_NAME], port[8];
	const struct addrinfo *chosen;
	struct addrinfo *found;
	int err;

	*why = "not host:port";
	if (!split(host_port, host, port))
		return false;
	err = getaddrinfo(host, port, &hints, &found);
	if (err) {
		*why = gai_strerror(err);
		return false;
	}
	memset(address, 0, sizeof(*address));
	chosen = choose(found, turn);
	memcpy(&address->storage, chosen->ai_addr, chosen->ai_addrlen);
	address->len = chosen->ai_addrlen;
	freeaddrinfo(found);
	return true;
}

bool sock_resolve(const char *host_port, struct sock_address *address,
		  const char **why)
{
	return resolve(host_port, 0, 0, address, why);
}

bool sock_resolve_turn(const char *host_port, unsigned turn,
		       struct sock_address *address, const char **why)
{
	return resolve(host_port, 0, turn, address, why);
}

static bool is_number(const char *host_port, struct sock_address *address)
{
	const char *why;

	return resolve(host_port, AI_NUMERICHOST, 0, address, &why);
}

static bool is_localhost(const char *host_port)
{
	return !strncmp(host_port, "localhost:", 10);
}

static void make_any(struct sock_address *address)
{
	if (address->storage.ss_family == AF_INET)
		((struct sockaddr_in *)&address->storage)->sin_addr.s_addr =
			htonl(INADDR_ANY);
	else
		((struct sockaddr_in6 *)&address->storage)->sin6_addr =
			in6addr_any;
}

/* All addresses of this host: [::] takes IPv4, too, where there is IPv6. */
static int listen_anywhere(const char *host_port)
{
	bool v4 = interface_family() == AF_INET;
	const char *port = strrchr(host_port, ':');
	struct sock_address address;
	char text[16];
	int fd;

	snprintf(text, sizeof(text), "%s%s", v4 ? "0.0.0.0" : "[::]", port);
	if (!is_number(text, &address)) {
		errno = EINVAL;
		return -1;
	}
	fd = try_listen(&address, true);
	if (fd >= 0 || v4 || errno != EAFNOSUPPORT || interface_family())
		return fd;
	snprintf(text, sizeof(text), "0.0.0.0%s", port);
	return is_number(text, &address) ? try_listen(&address, true) : -1;
}

/* Returns the listening socket, or -1 and sets errno. */
static int listen_at(const char *host_port, bool *told)
{
	struct sock_address address;
	const char *why;
	int fd;

	/* This process needs only the port of a name, which may resolve to
	 * another address here, or not yet. */
	if (!is_number(host_port, &address) &&
	    !(is_localhost(host_port) &&
	      resolve(host_port, 0, 0, &address, &why)))
		return listen_anywhere(host_port);
	/* The port may have served another id a moment ago. */
	fd = try_listen(&address, true);
	if (fd >= 0 || errno != EADDRNOTAVAIL)
		return fd;
	if (!*told)
		log_warn("%s is not an address of this host, but may lead to "
			 "it: listening at this port of all addresses",
			 host_port);
	*told = true;
	make_any(&address);
	return try_listen(&address, true);
}

dicomm_result_t sock_listen_at(const char *host_port, uint64_t until_ns,
			       int *out)
{
	const struct timespec pause = {.tv_nsec = AGAIN_NS};
	uint64_t begin_ns = clock_ns(), say_ns = begin_ns, now;
	unsigned port;
	bool told = false;
	pid_t silent = 0;
	int fd, err;

	TRY(sock_check(host_port));
	port = (unsigned)atoi(strrchr(host_port, ':') + 1);
	for (;;) {
		fd = listen_at(host_port, &told);
		err = errno;
		if (fd < 0 && err == EADDRINUSE &&
		    lent_port_ask_back(port, &silent)) {
			fd = listen_at(host_port, &told);
			err = errno;
		}
		now = clock_ns();
		if (fd >= 0 || err != EADDRINUSE || now >= until_ns)
			break;
		if (now >= say_ns) {
			log_warn("listen at %s: %s, since %d s: trying again",
				 host_port, strerror(err),
				 (int)((now - begin_ns) / 1000000000u));
			say_ns += SAY_NS;
		}
		nanosleep(&pause, NULL);
	}
	if (fd < 0 && err == EADDRINUSE && silent)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "listen at %s: %s: pid %d has it, and does not "
			    "give it back (is it stopped?)",
			    host_port, strerror(err), (int)silent);
	if (fd < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "listen at %s: %s", host_port,
			    strerror(err));
	if (is_localhost(host_port))
		log_info("%s is reached from this host only", host_port);
	*out = fd;
	return DICOMM_SUCCESS;
}

static bool is_any(const struct sock_address *address)
{
	const struct sockaddr_in *v4 =
		(const struct sockaddr_in *)&address->storage;
	const struct sockaddr_in6 *v6 =
		(const struct sockaddr_in6 *)&address->storage;

	return v4->sin_family == AF_INET
		       ? !v4->sin_addr.s_addr
		       : IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

void sock_name(int fd, char text[SOCK_TEXT])
{
	struct sock_address address = {.len = sizeof(address.storage)};
	char host[HOST_NAME_MAX + 1] = "";

	getsockname(fd, (struct sockaddr *)&address.storage, &address.len);
	if (!is_any(&address)) {
		to_text(&address, text);
		return;
	}
	gethostname(host, sizeof(host) - 1);
	snprintf(text, SOCK_TEXT, "%.64s:%u", host, sock_port(fd));
}

void sock_own(int fd, char text[SOCK_TEXT])
{
	struct sock_address address = {.len = sizeof(address.storage)};
	struct sockaddr_in *v4 = (struct sockaddr_in *)&address.storage;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address.storage;

	getsockname(fd, (struct sockaddr *)&address.storage, &address.len);
	if (v4->sin_family == AF_INET && !v4->sin_addr.s_addr)
		v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (v6->sin6_family == AF_INET6 &&
	    IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr))
		v6->sin6_addr = in6addr_loopback;
	to_text(&address, text);
}

bool sock_is_loopback(const char *host_port)
{
	struct sock_address address;

	if (!is_number(host_port, &address))
		return is_localhost(host_port);
	if (address.storage.ss_family == AF_INET)
		return (ntohl(((const struct sockaddr_in *)&address.storage)
				      ->sin_addr.s_addr) >>
			24) == 127;
	return IN6_IS_ADDR_LOOPBACK(
		&((const struct sockaddr_in6 *)&address.storage)->sin6_addr);
}

int sock_create(const struct sock_address *address)
{
	return descriptors_high(
		socket(address->storage.ss_family,
		       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool sock_is_self_connected(int fd)
{
	struct sock_address own = {.len = sizeof(own.storage)};
	struct sock_address peer = {.len = sizeof(peer.storage)};

	return !getsockname(fd, (struct sockaddr *)&own.storage, &own.len) &&
	       !getpeername(fd, (struct sockaddr *)&peer.storage, &peer.len) &&
	       own.len == peer.len &&
	       !memcmp(&own.storage, &peer.storage, own.len);
}

static int connect_result(int fd)
{
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	socklen_t len = sizeof(int);
	int err = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		return errno;
	if (err || !sock_is_self_connected(fd))
		return err;
	/* Without this, the port stays in use for a minute after a shutdown or
	 * the close. */
	connect(fd, &nobody, sizeof(nobody));
	return ECONNREFUSED;
}

int sock_connect(int fd, const struct sock_address *address, uint64_t until_ns,
		 const _Atomic bool *cancelled)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	if (!connect(fd, (const struct sockaddr *)&address->storage,
		     address->len))
		return connect_result(fd);
	if (errno != EINPROGRESS && errno != EINTR)
		return errno;
	while (poll(&p, 1, POLL_MS) <= 0) {
		if (cancelled && atomic_load(cancelled))
			return ECANCELED;
		if (clock_ns() >= until_ns)
			return ETIMEDOUT;
	}
	return connect_result(fd);
}

void sock_peer(int fd, char text[SOCK_TEXT])
{
	struct sock_address address = {.len = sizeof(address.storage)};

	if (getpeername(fd, (struct sockaddr *)&address.storage, &address.len) <
	    0)
		snprintf(text, SOCK_TEXT, "?");
	else
		to_text(&address, text);
}

/* Returns false if /proc is not there. */
static bool count_open(uint64_t *n)
{
	DIR *dir = descriptors_opendir("/proc/self/fd");

	*n = 0;
	if (!dir)
		return false;
	while (readdir(dir))
		++*n;
	closedir(dir);
	*n -= 3; /* ".", ".." and the one of this search */
	return true;
}

bool sock_make_room(uint32_t n, uint32_t had, char *why, size_t len)
{
	uint64_t before = descriptors_limit(), needed, limit;
	bool counted;
	char host[HOST_NAME_MAX + 1] = "this host";

	if (before == UINT64_MAX)
		return true;
	counted = count_open(&needed);
	needed = counted ? needed - had + n : before + n;
	if (before >= needed + DESCRIPTORS_OF_OTHERS)
		return true;
	limit = descriptors_raise(needed + DESCRIPTORS_OF_OTHERS);
	if (limit > before)
		log_info("limit of open files raised to %" PRIu64
			 ", for %" PRIu32 " connections",
			 limit, n);
	if (limit >= needed || !counted)
		return true;
	gethostname(host, sizeof(host) - 1);
	snprintf(why, len,
		 "%s pid %d needs %" PRIu64 " open files, for %" PRIu32
		 " connections, and its limit is %" PRIu64 " (ulimit -Hn)",
		 host, (int)getpid(), needed, n, limit);
	return false;
}
