/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread that serves all connections of the process. It accepts connections
 * and hands what arrives to exchange.c. It also takes the events of NICs and of
 * librdmacm. So a rank gets replies while its peer is not in a call of the
 * library.
 *
 * Each request and reply carries a proof that only a rank of the communicator
 * can compute. A connection stays open as long as its channel: notices travel
 * on it, and its end shows that the peer has closed the channel, or died.
 */
#include "transports/verbs/connection/server.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/descriptors.h"
#include "src/base/epoll_set.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "src/base/thread.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/connection/conn.h"
#include "transports/verbs/connection/exchange.h"
#include "transports/verbs/connection/rdma_cm.h"
#include "transports/verbs/nic/events.h"
#include "transports/verbs/nic/ipv4.h"
#include "transports/verbs/nic/nic.h"

#define TICK_MS 200
/* How long nothing is accepted when there are no free descriptors. */
#define PAUSE_MS 200

/* Held while the thread is started or stopped. Taken before verbs_lock(). */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
/* Everything below is guarded by verbs_lock(). */
static struct tp_device *devices; /* devices that accept requests */
/* number of devices, including those that are being closed */
static unsigned served;
#define CM_ID UINT64_MAX /* id of librdmacm's events in the epoll set */
static pthread_t thread;
static int stop_fd = -1;

static struct tp_device *device_of(const uint8_t nonce[VERBS_NONCE])
{
	for (struct tp_device *dev = devices; dev; dev = dev->next)
		if (!memcmp(dev->nonce, nonce, VERBS_NONCE))
			return dev;
	return NULL;
}

/* ---- connections of peers ---- */

static void name_of(int fd, char *text, size_t len)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);
	char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";

	if (!getpeername(fd, (struct sockaddr *)&a, &n))
		getnameinfo((struct sockaddr *)&a, n, host, sizeof(host), port,
			    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(text, len, "%.64s:%.8s", host, port);
}

/* Returns how many connections ranks may open at the same time, all of them
 * slow to send their request. */
static unsigned most_calls(void)
{
	unsigned n = 0;

	for (const struct tp_device *dev = devices; dev; dev = dev->next)
		n += dev->channels;
	return n;
}

/* There are no descriptors: the oldest connection without a request goes, or
 * nothing is accepted for a while. */
static void make_room_for_call(struct verbs_conn *listener)
{
	struct verbs_conn *oldest = strangers_oldest(&verbs_conns.unproved);

	if (oldest) {
		verbs_conn_drop(oldest);
		return;
	}
	log_warn("verbs: accept: %m");
	verbs_conn_watch(listener, 0);
	listener->deadline_ms = clock_ms() + PAUSE_MS;
}

static void accept_call(struct verbs_conn *listener)
{
	struct verbs_conn *c;
	int fd;

	fd = descriptors_high(accept4(listener->fd, NULL, NULL,
				      SOCK_NONBLOCK | SOCK_CLOEXEC));
	if (fd < 0) {
		if (tcp_is_short(errno))
			make_room_for_call(listener);
		return;
	}
	tcp_tune(fd);
	c = verbs_conn_add(fd, CONN_AWAITING_REQUEST, EPOLLIN);
	if (!c) {
		close(fd);
		return;
	}
	strangers_add(&verbs_conns.unproved, &c->stranger, c);
	c->deadline_ms = clock_ms() + VERBS_MSG_MS;
	name_of(fd, c->from, sizeof(c->from));
	c = strangers_surplus(&verbs_conns.unproved, most_calls());
	if (c)
		verbs_conn_drop(c);
}

/* Handle a request that is complete. */
static void request_received(struct verbs_conn *c)
{
	struct tp_device *dev = device_of(c->msg.to);

	if (!dev || !verbs_msg_is_genuine(&c->msg, dev->config.key)) {
		log_warn("verbs: a connect request from %s is not of this "
			 "communicator",
			 c->from);
		verbs_conn_drop(c);
		return;
	}
	strangers_remove(&verbs_conns.unproved, &c->stranger);
	c->stage = CONN_OPEN;
	c->have = 0;
	c->deadline_ms = 0;
	if (!verbs_serve_request(dev, c))
		verbs_conn_drop(c);
}

static void conn_lost(struct verbs_conn *c)
{
	if (c->stage != CONN_AWAITING_REQUEST)
		verbs_conn_ended(c);
	else if (c->have)
		log_warn("verbs: the connection from %s ended within its "
			 "request",
			 c->from);
	verbs_conn_drop(c);
}

/* ---- the thread ---- */

static void on_event(struct verbs_conn *c)
{
	bool ended = false;
	ssize_t n;
	char rest;

	switch (c->stage) {
	case CONN_LISTENING:
		accept_call(c);
		break;
	case CONN_EVENTS:
		/* The descriptor of a removed device stays readable, so stop
		 * watching it. */
		if (!verbs_nic_events(c->nic))
			epoll_set_remove(verbs_conns.epoll_fd, c->fd);
		break;
	case CONN_AWAITING_REQUEST:
		if (verbs_conn_read(c, &ended))
			request_received(c);
		else if (ended)
			conn_lost(c);
		break;
	case CONN_CONNECTING:
		verbs_tcp_connected(c);
		break;
	case CONN_AWAITING_REPLY:
		if (verbs_conn_read(c, &ended))
			verbs_reply_received(c);
		else if (ended)
			conn_lost(c);
		break;
	case CONN_AWAITING_RDMA_CM:
		n = recv(c->fd, &rest, sizeof(rest), MSG_PEEK);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			conn_lost(c);
		break;
	case CONN_OPEN:
		if (verbs_conn_read(c, &ended))
			ended = !verbs_notice_received(c);
		if (ended)
			conn_lost(c);
		break;
	}
}

static void expire(struct verbs_conn *c, uint64_t now)
{
	if (!c->deadline_ms || now < c->deadline_ms)
		return;
	if (c->stage == CONN_LISTENING) {
		c->deadline_ms = 0;
		verbs_conn_watch(c, EPOLLIN);
		return;
	}
	if (c->stage == CONN_AWAITING_REQUEST)
		log_warn("verbs: the connection from %s sent no request for %d "
			 "ms",
			 c->from, VERBS_MSG_MS);
	else
		verbs_conn_expired(c);
	verbs_conn_drop(c);
}

static void *server_thread(void *arg)
{
	struct epoll_event events[16];
	struct verbs_conn *next;
	int fd = (int)(intptr_t)arg;
	bool stop = false;

	while (!stop) {
		int n = epoll_wait(fd, events, 16, TICK_MS);
		uint64_t now = clock_ms();

		verbs_lock();
		for (int i = 0; i < n; i++) {
			struct verbs_conn *c =
				verbs_conn_find(events[i].data.u64);

			stop |= !events[i].data.u64;
			if (events[i].data.u64 == CM_ID)
				verbs_rdma_cm_events();
			else if (c)
				on_event(c);
		}
		for (struct verbs_conn *c = verbs_conns.first; c; c = next) {
			next = c->next;
			expire(c, now);
		}
		verbs_unlock();
	}
	return NULL;
}

/* The child of a fork has no such thread, and closes its copies of the
 * connections; otherwise a peer would not notice when the parent ends. */
static void forget(void)
{
	struct verbs_conn *c = fork_had(FORK_VERBS) ? verbs_conns.first : NULL;

	for (; c; c = c->next)
		close(c->fd);
	pthread_mutex_init(&life, NULL);
	devices = NULL;
	served = 0;
	verbs_conns.first = NULL;
	verbs_conns.unproved = (struct strangers){0};
	verbs_conns.epoll_fd = stop_fd = -1;
	verbs_rdma_cm_reset();
}

static dicomm_result_t start(void)
{
	int error;

	verbs_conns.epoll_fd = epoll_set_open();
	stop_fd = descriptors_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (verbs_conns.epoll_fd < 0 || stop_fd < 0 ||
	    epoll_set_add(verbs_conns.epoll_fd, stop_fd, EPOLLIN,
			  (epoll_data_t){.u64 = 0}) < 0) {
		error = errno;
		goto fail;
	}
	error = thread_start(&thread, "dicomm-verbs", server_thread,
			     (void *)(intptr_t)verbs_conns.epoll_fd);
	if (!error)
		return DICOMM_SUCCESS;
fail:
	if (verbs_conns.epoll_fd >= 0)
		close(verbs_conns.epoll_fd);
	if (stop_fd >= 0)
		close(stop_fd);
	verbs_conns.epoll_fd = stop_fd = -1;
	errno = error;
	return FAIL(DICOMM_ERR_SYSTEM, "verbs: thread for connections: %m");
}

/* Listen on the loopback interface. Used if the configuration does not say
 * where to listen. */
static dicomm_result_t listen_anywhere(int *fd, char text[VERBS_TEXT])
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	*fd = descriptors_high(
		socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (*fd < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "verbs: socket: %m");
	if (bind(*fd, (struct sockaddr *)&a, len) || listen(*fd, 128) ||
	    getsockname(*fd, (struct sockaddr *)&a, &len)) {
		close(*fd);
		return FAIL(DICOMM_ERR_SYSTEM, "verbs: listen: %m");
	}
	snprintf(text, VERBS_TEXT, "127.0.0.1:%u", ntohs(a.sin_port));
	return DICOMM_SUCCESS;
}

static dicomm_result_t open_cm(struct verbs_rail *rail)
{
	int fd;

	TRY(verbs_rdma_cm_start(&fd));
	if (epoll_set_add(verbs_conns.epoll_fd, fd, EPOLLIN,
			  (epoll_data_t){.u64 = CM_ID}) < 0 &&
	    errno != EEXIST)
		return FAIL(DICOMM_ERR_SYSTEM, "verbs: watch librdmacm: %m");
	return verbs_rdma_cm_listen(rail);
}

static dicomm_result_t open_events(struct verbs_rail *rail)
{
	struct verbs_nic *nic = rail->nic;
	int fd = fcntl(nic->context->async_fd, F_DUPFD_CLOEXEC, 3);

	if (fd >= 0)
		rail->events = verbs_conn_add(fd, CONN_EVENTS, EPOLLIN);
	if (rail->events) {
		rail->events->nic = nic;
		return DICOMM_SUCCESS;
	}
	if (fd >= 0)
		close(fd);
	return FAIL(DICOMM_ERR_SYSTEM, "verbs %s: watch its events: %m",
		    nic->name);
}

static dicomm_result_t open_rail(struct verbs_rail *rail)
{
	if (verbs_uses_rdma_cm(rail->nic->fabric))
		TRY(open_cm(rail));
	return open_events(rail);
}

static void close_rails(struct tp_device *dev)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		struct verbs_rail *rail = &dev->rail[i];

		if (rail->events)
			verbs_conn_drop(rail->events);
		rail->events = NULL;
		verbs_rdma_cm_close(rail->cm);
		rail->cm = NULL;
	}
}

static dicomm_result_t open_locked(struct tp_device *dev, int fd)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	if (verbs_conns.epoll_fd < 0)
		TRY(start());
	for (uint32_t i = 0; i < dev->rails && status == DICOMM_SUCCESS; i++)
		status = open_rail(&dev->rail[i]);
	if (status == DICOMM_SUCCESS) {
		dev->listener = verbs_conn_add(fd, CONN_LISTENING, EPOLLIN);
		if (!dev->listener)
			status = FAIL(DICOMM_ERR_SYSTEM,
				      "verbs: watch a socket: %m");
	}
	if (status != DICOMM_SUCCESS) {
		close_rails(dev);
		return status;
	}
	dev->next = devices;
	devices = dev;
	dev->served = true;
	served++;
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_server_open(struct tp_device *dev)
{
	dicomm_result_t status;
	int fd;

	fork_add(FORK_VERBS, forget);
	if (sodium_init() < 0)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "libsodium: no source of random numbers");
	randombytes_buf(dev->nonce, sizeof(dev->nonce));
	TRY((dev->config.listen ? dev->config.listen
				: listen_anywhere)(&fd, dev->listen));
	pthread_mutex_lock(&life);
	verbs_lock();
	status = open_locked(dev, fd);
	verbs_unlock();
	pthread_mutex_unlock(&life);
	if (status != DICOMM_SUCCESS)
		close(fd);
	return status;
}

static void stop(void)
{
	uint64_t one = 1;

	if (write(stop_fd, &one, sizeof(one)) < 0)
		log_warn("verbs: stop a thread: %m");
	pthread_join(thread, NULL);
	close(verbs_conns.epoll_fd);
	close(stop_fd);
	verbs_conns.epoll_fd = stop_fd = -1;
	verbs_rdma_cm_stop();
}

void verbs_server_stop_listening(struct tp_device *dev)
{
	struct tp_device **at = &devices;
	struct verbs_conn *next;

	if (!dev->listener)
		return;
	verbs_lock();
	verbs_conn_drop(dev->listener);
	dev->listener = NULL;
	while (*at != dev)
		at = &(*at)->next;
	*at = dev->next;
	for (struct verbs_conn *c = verbs_conns.first; c; c = next) {
		next = c->next;
		if (c->channel && c->channel->dev == dev &&
		    !verbs_channel_is_known(c->channel))
			verbs_conn_drop(c);
	}
	close_rails(dev);
	verbs_unlock();
}

void verbs_server_close(struct tp_device *dev)
{
	bool last;

	pthread_mutex_lock(&life);
	verbs_lock();
	served -= dev->served;
	last = !served && verbs_conns.epoll_fd >= 0;
	while (last && verbs_conns.first)
		verbs_conn_drop(verbs_conns.first);
	verbs_unlock();
	if (last)
		stop();
	pthread_mutex_unlock(&life);
}
