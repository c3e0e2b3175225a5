/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets of a device, and what epoll looks for. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/descriptors.h"
#include "src/base/epoll_set.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/seal.h"
#include "transports/tcp/tcp.h"

/* What may wait in the kernel behind what is on its way: more would only delay
 * credits, which cannot overtake it. */
#define UNSENT_BYTES (512 << 10)
/* Without descriptors, until the next try to accept. */
#define PAUSE_MS 200

/* Each peer takes some descriptors; the program is to find some, too. */
static void make_room(int fd)
{
	uint64_t before = descriptors_limit(), limit;
	uint64_t needed = (uint64_t)fd + DESCRIPTORS_OF_OTHERS;

	if (before == UINT64_MAX || needed < before)
		return;
	limit = descriptors_raise(before + needed);
	if (limit > before)
		log_info("tcp: limit of open files raised to %" PRIu64, limit);
}

static bool is_loopback(const struct sockaddr_storage *a)
{
	const struct sockaddr_in *v4 = (const void *)a;
	const struct sockaddr_in6 *v6 = (const void *)a;

	if (a->ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	return a->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static dicomm_result_t watch_listener(struct tp_device *dev)
{
	if (epoll_set_add(dev->epoll, dev->listener, EPOLLIN,
			  (epoll_data_t){.ptr = dev}) == 0)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_SYSTEM, "tcp: epoll_ctl: %m");
}

dicomm_result_t tcp_socket_open(struct tp_device *dev)
{
	socklen_t len = sizeof(dev->listens);

	dev->epoll = epoll_set_open();
	if (dev->epoll < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "tcp: epoll_create1: %m");
	TRY(dev->base.config.listen(&dev->listener, dev->listen));
	dev->listener = descriptors_high(dev->listener);
	if (dev->listener < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "tcp: listen: %m");
	getsockname(dev->listener, (struct sockaddr *)&dev->listens, &len);
	dev->loopback = is_loopback(&dev->listens);
	make_room(dev->listener);
	return watch_listener(dev);
}

void tcp_socket_stop_listening(struct tp_device *dev)
{
	if (dev->listener >= 0)
		epoll_set_close(dev->epoll, dev->listener);
	dev->listener = -1;
}

void tcp_socket_close(struct tp_device *dev)
{
	tcp_socket_stop_listening(dev);
	if (dev->epoll >= 0)
		close(dev->epoll);
	dev->epoll = -1;
}

struct tcp_conn *tcp_socket_add(struct tp_device *dev, int fd,
				enum tcp_state state, uint32_t events)
{
	struct tcp_conn *c = calloc(1, sizeof(*c));
	int unsent = UNSENT_BYTES;

	if (!c || epoll_set_add(dev->epoll, fd, events,
				(epoll_data_t){.ptr = c}) < 0) {
		close(fd);
		free(c);
		return NULL;
	}
	make_room(fd);
	tcp_tune_data(fd);
	setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
	c->dev = dev;
	c->fd = fd;
	c->state = state;
	c->events = events;
	c->next = dev->conns;
	c->at = &dev->conns;
	if (c->next)
		c->next->at = &c->next;
	dev->conns = c;
	return c;
}

void tcp_socket_drop(struct tcp_conn *c)
{
	struct tp_device *dev = c->dev;

	if (c->state == TCP_CLOSED)
		return;
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	if (c->state == TCP_OPEN) {
		tcp_watch_end(c);
		dev->open--;
	} else {
		tcp_handshake_end(c);
	}
	if (c->link) {
		if (c->state == TCP_OPEN)
			c->link->open--;
		c->link->conn[c->index] = NULL;
	}
	c->link = NULL;
	c->state = TCP_CLOSED;
	epoll_set_close(dev->epoll, c->fd);
	c->next = dev->closed;
	dev->closed = c;
}

void tcp_socket_free_closed(struct tp_device *dev)
{
	struct tcp_conn *c;

	while ((c = dev->closed)) {
		dev->closed = c->next;
		tcp_seal_close(c->seal);
		free(c->tail);
		free(c->replies);
		free(c);
	}
}

void tcp_socket_watch(struct tcp_conn *c, uint32_t events)
{
	if (events == c->events)
		return;
	c->events = events;
	epoll_set_change(c->dev->epoll, c->fd, events,
			 (epoll_data_t){.ptr = c});
}

/* "10.0.0.1:4000", "[fe80::1%eth0]:4000" */
static struct addrinfo *resolve(const char *to)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				 .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	char text[80], *host = text, *colon, *end;

	snprintf(text, sizeof(text), "%s", to);
	colon = strrchr(text, ':');
	if (!colon)
		return NULL;
	*colon = '\0';
	if (*host == '[' && (end = strpbrk(++host, "%]")))
		*end = '\0';
	return getaddrinfo(host, colon + 1, &hints, &found) ? NULL : found;
}

/* Their name for the interface is not mine. */
static void take_scope(const struct tp_device *dev, struct sockaddr *to)
{
	const struct sockaddr_in6 *mine = (const void *)&dev->listens;
	struct sockaddr_in6 *v6 = (void *)to;

	if (to->sa_family == AF_INET6 && mine->sin6_family == AF_INET6 &&
	    IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
		v6->sin6_scope_id = mine->sin6_scope_id;
}

int tcp_socket_connect(const struct tp_device *dev, const char *to)
{
	struct addrinfo *a = resolve(to);
	int fd, error;

	if (!a) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	take_scope(dev, a->ai_addr);
	fd = descriptors_high(socket(
		a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0 &&
	    errno != EINPROGRESS) {
		error = errno;
		close(fd);
		fd = -1;
		errno = error;
	}
	freeaddrinfo(a);
	return fd;
}

int tcp_socket_accept(struct tp_device *dev)
{
	int fd = descriptors_high(accept4(dev->listener, NULL, NULL,
					  SOCK_CLOEXEC | SOCK_NONBLOCK));
	struct tcp_conn *oldest = strangers_oldest(&dev->strangers);

	if (fd < 0 && tcp_is_short(errno) && oldest) {
		tcp_socket_drop(oldest);
	} else if (fd < 0 && tcp_is_short(errno) && !dev->paused) {
		log_warn("tcp: rank %d: accept: %m: it pauses, and no peer can "
			 "connect to it meanwhile",
			 dev->base.config.rank);
		epoll_set_remove(dev->epoll, dev->listener);
		dev->paused = true;
		dev->pending++;
		dev->tick_ms = clock_ms() + PAUSE_MS;
	}
	return fd;
}

void tcp_socket_resume(struct tp_device *dev)
{
	if (!dev->paused)
		return;
	dev->paused = false;
	dev->pending--;
	if (dev->listener >= 0)
		(void)watch_listener(dev);
}

static ssize_t moved(ssize_t n)
{
	if (n >= 0)
		return n;
	return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

ssize_t tcp_socket_send(struct tcp_conn *c, struct iovec *v, int n)
{
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};

	if (c->seal)
		return tcp_seal_send(c->seal, c->fd, v, n);
	return moved(sendmsg(c->fd, &m, MSG_NOSIGNAL));
}

ssize_t tcp_socket_receive(struct tcp_conn *c, struct iovec *v, int n)
{
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
	ssize_t got;

	if (c->seal)
		return tcp_seal_receive(c->seal, c->fd, v, n);
	got = recvmsg(c->fd, &m, 0);
	if (got == 0) {
		errno = 0;
		return -1;
	}
	return moved(got);
}
