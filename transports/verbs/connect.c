/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How lanes are made. The sender calls the receiver by TCP and sends a card
 * with its queue pairs; the receiver makes its side and answers with its own
 * (call.c). Both cards carry a proof that only who knows the communicator's
 * secret can make. A thread of the process does this, so that a call is
 * answered also while nobody is in the library. The connection stays: notices
 * of strands that are lost go over it, and its end is the news that the other
 * side has closed the lane, or died.
 */
#include "transports/verbs/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "src/base/thread.h"
#include "transports/verbs/call.h"
#include "transports/verbs/cm.h"
#include "transports/verbs/lane.h"
#include "transports/verbs/nic.h"
#include "transports/verbs/rail.h"
#include "transports/verbs/verbs.h"
#include "transports/verbs/watch.h"

/* Who has called and not proved anything yet, beyond all that may have to. */
#define STRANGERS_MAX 128
#define TICK_MS 200
/* For the lock, before a fork. */
#define FORK_MS 1000
/* Without descriptors, until the next look. */
#define PAUSE_MS 200

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Held while the thread is started or stopped; taken before the lock. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
/* All below: with the lock. */
static struct tp_device *devices; /* that can be called */
static unsigned served;           /* devices, also those that end */
static struct verbs_conn *conns;
static uint64_t last_id; /* 0 is the event that stops the thread */
#define CM_ID UINT64_MAX /* events of cm.c */
static unsigned strangers;
static pthread_t thread;
static int epoll_fd = -1, stop_fd = -1;
static _Thread_local bool fork_has_lock; /* who forks */

void verbs_lock(void)
{
	pthread_mutex_lock(&lock);
}

void verbs_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* ---- connections ---- */

/* Each peer that talks to this rank takes some descriptors; the program is to
 * find some, too. */
static void make_room(int fd)
{
	uint64_t before = descriptors_limit(), limit;
	uint64_t needed = (uint64_t)fd + DESCRIPTORS_OF_OTHERS;

	if (before == UINT64_MAX || needed < before)
		return;
	limit = descriptors_raise(before + needed);
	if (limit > before)
		log_info("verbs: limit of open files raised to %" PRIu64,
			 limit);
}

struct verbs_conn *verbs_conn_add(int fd, enum verbs_stage stage,
				  uint32_t events)
{
	struct verbs_conn *c = calloc(1, sizeof(*c));
	struct epoll_event e = {.events = events};

	if (!c)
		return NULL;
	make_room(fd);
	c->fd = fd;
	c->stage = stage;
	c->id = e.data.u64 = ++last_id;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0) {
		free(c);
		return NULL;
	}
	c->next = conns;
	conns = c;
	return c;
}

void verbs_conn_watch(struct verbs_conn *c, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.u64 = c->id};

	epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

/* To its device; if not, it has no other owner than its connection. */
static bool is_known(const struct verbs_lane *lane)
{
	return !lane->in || atomic_load(&lane->dev->in[lane->id]) == lane;
}

void verbs_conn_drop(struct verbs_conn *c)
{
	struct verbs_conn **at = &conns;
	struct verbs_lane *lane = c->lane;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	if (c->stage == CONN_ACCEPTED)
		strangers--;
	if (lane)
		lane->conn = NULL;
	if (lane && !is_known(lane))
		verbs_lane_close(lane);
	/* Of a NIC's events this is but a second descriptor. */
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
	close(c->fd);
	sodium_memzero(c, sizeof(*c));
	free(c);
}

static struct verbs_conn *conn_find(uint64_t id)
{
	struct verbs_conn *c = conns;

	while (c && c->id != id)
		c = c->next;
	return c;
}

/* Not enough of a card yet: false. *ended: nothing more will come. */
static bool conn_read(struct verbs_conn *c, bool *ended)
{
	uint8_t *at = (uint8_t *)&c->card + c->have;
	ssize_t n = recv(c->fd, at, sizeof(c->card) - c->have, 0);

	*ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
	if (n > 0)
		c->have += (size_t)n;
	return c->have == sizeof(c->card);
}

/* Few cards go over a connection, and it takes many at once. */
bool verbs_conn_write(struct verbs_conn *c, const struct verbs_card *card)
{
	return send(c->fd, card, sizeof(*card), MSG_NOSIGNAL) ==
	       (ssize_t)sizeof(*card);
}

struct verbs_strand *verbs_connect_awaited(const uint8_t challenge[VERBS_NONCE],
					   unsigned strand)
{
	for (struct verbs_conn *c = conns; c; c = c->next) {
		struct verbs_lane *lane = c->lane;

		if (c->stage != CONN_JOINING || !lane->in ||
		    strand >= lane->strands || lane->strand[strand].cm ||
		    memcmp(lane->challenge, challenge, VERBS_NONCE) != 0)
			continue;
		/* Not READY, but its first message may be here before we hear
		 * that it is. */
		atomic_store_explicit(&lane->dev->in[lane->id], lane,
				      memory_order_release);
		return &lane->strand[strand];
	}
	return NULL;
}

static struct tp_device *device_of(const uint8_t nonce[VERBS_NONCE])
{
	for (struct tp_device *dev = devices; dev; dev = dev->next)
		if (!memcmp(dev->nonce, nonce, VERBS_NONCE))
			return dev;
	return NULL;
}

/* ---- who calls ---- */

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

/* All may call at the same moment, and take their time to say who they are. */
static unsigned most_strangers(void)
{
	unsigned n = STRANGERS_MAX;

	for (const struct tp_device *dev = devices; dev; dev = dev->next)
		n += dev->lanes;
	return n;
}

static void drop_oldest_stranger(void)
{
	struct verbs_conn *oldest = NULL;

	for (struct verbs_conn *c = conns; c; c = c->next)
		if (c->stage == CONN_ACCEPTED)
			oldest = c; /* new ones come first */
	if (oldest)
		verbs_conn_drop(oldest);
}

/* Callers wait, and who says nothing will go. */
static void pause_listening(struct verbs_conn *listener)
{
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
			pause_listening(listener);
		return;
	}
	if (strangers >= most_strangers())
		drop_oldest_stranger();
	tcp_tune(fd);
	c = verbs_conn_add(fd, CONN_ACCEPTED, EPOLLIN);
	if (!c) {
		close(fd);
		return;
	}
	strangers++;
	c->deadline_ms = clock_ms() + VERBS_CARD_MS;
	name_of(fd, c->from, sizeof(c->from));
}

/* A card from somebody. */
static void called(struct verbs_conn *c)
{
	struct tp_device *dev = device_of(c->card.to);

	if (!dev || !verbs_card_is_genuine(&c->card, dev->config.key)) {
		log_warn("verbs: a call from %s is not of this communicator",
			 c->from);
		verbs_conn_drop(c);
		return;
	}
	strangers--;
	c->stage = CONN_OPEN;
	c->have = 0;
	c->deadline_ms = 0;
	if (!verbs_call_answer(dev, c))
		verbs_conn_drop(c);
}

static void lost(struct verbs_conn *c)
{
	if (c->stage != CONN_ACCEPTED)
		verbs_call_ended(c);
	else if (c->have)
		log_warn("verbs: a call from %s broke off", c->from);
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
		/* Of a device that has gone the descriptor stays ready. */
		if (!verbs_watch_events(c->nic))
			epoll_ctl(epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
		break;
	case CONN_ACCEPTED:
		if (conn_read(c, &ended))
			called(c);
		else if (ended)
			lost(c);
		break;
	case CONN_CALLING:
		verbs_call_connected(c);
		break;
	case CONN_ASKED:
		if (conn_read(c, &ended))
			verbs_call_answered(c);
		else if (ended)
			lost(c);
		break;
	case CONN_JOINING:
		n = recv(c->fd, &rest, sizeof(rest), MSG_PEEK);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			lost(c);
		break;
	case CONN_OPEN:
		if (conn_read(c, &ended))
			ended = !verbs_call_notice(c);
		if (ended)
			lost(c);
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
	if (c->stage == CONN_ACCEPTED)
		log_warn("verbs: a call from %s said nothing for %d ms",
			 c->from, VERBS_CARD_MS);
	else
		verbs_call_expired(c);
	verbs_conn_drop(c);
}

static void *serve(void *arg)
{
	struct epoll_event events[16];
	struct verbs_conn *next;
	int fd = (int)(intptr_t)arg;
	bool stop = false;

	while (!stop) {
		int n = epoll_wait(fd, events, 16, TICK_MS);
		uint64_t now = clock_ms();

		pthread_mutex_lock(&lock);
		for (int i = 0; i < n; i++) {
			struct verbs_conn *c = conn_find(events[i].data.u64);

			stop |= !events[i].data.u64;
			if (events[i].data.u64 == CM_ID)
				verbs_cm_events();
			else if (c)
				on_event(c);
		}
		for (struct verbs_conn *c = conns; c; c = next) {
			next = c->next;
			expire(c, now);
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

/* The child of a fork has no such thread, and what its parent opened is not its
 * own; a connection that it kept would hide the parent's end from who is there.
 * Who forks may have a lock by now that somebody with ours waits for: rather
 * than for ever, wait for it so long, and leave them open. */
static void fork_prepare(void)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	uint64_t end = clock_ms() + FORK_MS;

	do {
		fork_has_lock = !pthread_mutex_trylock(&lock);
		if (fork_has_lock)
			return;
		nanosleep(&nap, NULL);
	} while (clock_ms() < end);
}

static void fork_parent(void)
{
	if (fork_has_lock)
		pthread_mutex_unlock(&lock);
}

static void fork_child(void)
{
	for (struct verbs_conn *c = fork_has_lock ? conns : NULL; c;
	     c = c->next)
		close(c->fd);
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_init(&life, NULL);
	devices = NULL;
	served = 0;
	conns = NULL;
	strangers = 0;
	epoll_fd = stop_fd = -1;
	verbs_cm_forget();
}

static void setup(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static dicomm_result_t start(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	int error;

	epoll_fd = descriptors_high(epoll_create1(EPOLL_CLOEXEC));
	stop_fd = descriptors_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (epoll_fd < 0 || stop_fd < 0 ||
	    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, stop_fd, &e) < 0) {
		error = errno;
		goto fail;
	}
	error = thread_start(&thread, "dicomm-verbs", serve,
			     (void *)(intptr_t)epoll_fd);
	if (!error)
		return DICOMM_SUCCESS;
fail:
	if (epoll_fd >= 0)
		close(epoll_fd);
	if (stop_fd >= 0)
		close(stop_fd);
	epoll_fd = stop_fd = -1;
	errno = error;
	return FAIL(DICOMM_ERR_SYSTEM, "verbs: thread for connections: %m");
}

/* Where nobody says where to listen: anywhere here. */
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
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = CM_ID};
	int fd;

	TRY(verbs_cm_start(&fd));
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 && errno != EEXIST)
		return FAIL(DICOMM_ERR_SYSTEM, "verbs: watch librdmacm: %m");
	return verbs_cm_listen(rail);
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
	if (verbs_cm_is_used(rail->nic->fabric))
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
		verbs_cm_close(rail->cm);
		rail->cm = NULL;
	}
}

static dicomm_result_t open_locked(struct tp_device *dev, int fd)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	if (epoll_fd < 0)
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

dicomm_result_t verbs_connect_open(struct tp_device *dev)
{
	dicomm_result_t status;
	int fd;

	pthread_once(&once, setup);
	if (sodium_init() < 0)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "libsodium: no source of random numbers");
	randombytes_buf(dev->nonce, sizeof(dev->nonce));
	TRY((dev->config.listen ? dev->config.listen
				: listen_anywhere)(&fd, dev->listen));
	pthread_mutex_lock(&life);
	pthread_mutex_lock(&lock);
	status = open_locked(dev, fd);
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(&life);
	if (status != DICOMM_SUCCESS)
		close(fd);
	return status;
}

void verbs_connect_forget(struct verbs_lane *lane)
{
	if (lane->conn)
		verbs_conn_drop(lane->conn);
}

static void stop(void)
{
	uint64_t one = 1;

	if (write(stop_fd, &one, sizeof(one)) < 0)
		log_warn("verbs: stop a thread: %m");
	pthread_join(thread, NULL);
	close(epoll_fd);
	close(stop_fd);
	epoll_fd = stop_fd = -1;
	verbs_cm_stop();
}

void verbs_connect_shut(struct tp_device *dev)
{
	struct tp_device **at = &devices;
	struct verbs_conn *next;

	if (!dev->listener)
		return;
	pthread_mutex_lock(&lock);
	verbs_conn_drop(dev->listener);
	dev->listener = NULL;
	while (*at != dev)
		at = &(*at)->next;
	*at = dev->next;
	for (struct verbs_conn *c = conns; c; c = next) {
		next = c->next;
		if (c->lane && c->lane->dev == dev && !is_known(c->lane))
			verbs_conn_drop(c);
	}
	close_rails(dev);
	pthread_mutex_unlock(&lock);
}

void verbs_connect_close(struct tp_device *dev)
{
	bool last;

	pthread_mutex_lock(&life);
	pthread_mutex_lock(&lock);
	served -= dev->served;
	last = !served && epoll_fd >= 0;
	while (last && conns)
		verbs_conn_drop(conns);
	pthread_mutex_unlock(&lock);
	if (last)
		stop();
	pthread_mutex_unlock(&life);
}
