/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How lanes are made. The sender calls the receiver by TCP and sends a card
 * with its queue pair; the receiver makes its side and answers with its own.
 * Both cards carry a proof that only who knows the communicator's secret can
 * make. A thread of the process does this, so that a call is answered also
 * while nobody is in the library. The connection stays: its end is the news
 * that the other side has closed the lane, or died.
 */
#include "transports/verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"

/* For a card to come, from the moment of the connection. */
#define CARD_MS 10000
/* Who has called and not proved anything yet. */
#define STRANGERS_MAX 128
#define TICK_MS 200

enum stage {
	CONN_LISTENING,
	CONN_EVENTS,   /* no connection: the events of a NIC */
	CONN_ACCEPTED, /* a card is awaited */
	CONN_CALLING,  /* connecting, then sending a card */
	CONN_ASKED,    /* the answer is awaited */
	CONN_JOINING,  /* cards have gone both ways; cm.c connects */
	CONN_OPEN      /* only its end is of interest */
};

struct verbs_conn {
	struct verbs_conn *next;
	uint64_t id;
	int fd;
	enum stage stage;
	struct tp_device *dev;   /* of a listener, or of an accepted call */
	struct verbs_nic *nic;   /* of events */
	struct verbs_lane *lane; /* from CALLING, or OPEN on */
	uint64_t deadline_ms;    /* 0: none */
	struct verbs_card card;  /* sent or received */
	size_t have;
	char from[VERBS_TEXT];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Held while the thread is started or stopped; taken before the lock. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
/* All below: with the lock. */
static struct tp_device *devices;
static struct verbs_conn *conns;
static uint64_t last_id; /* 0 is the event that stops the thread */
#define CM_ID UINT64_MAX /* events of cm.c */
static unsigned strangers;
static pthread_t thread;
static int epoll_fd = -1, stop_fd = -1;

void verbs_lock(void)
{
	pthread_mutex_lock(&lock);
}

void verbs_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* ---- connections ---- */

static struct verbs_conn *conn_add(int fd, enum stage stage, uint32_t events)
{
	struct verbs_conn *c = calloc(1, sizeof(*c));
	struct epoll_event e = {.events = events};

	if (!c)
		return NULL;
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

static void conn_watch(struct verbs_conn *c, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.u64 = c->id};

	epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

/* To its device; if not, it has no other owner than its connection. */
static bool is_known(const struct verbs_lane *lane)
{
	return !lane->in || atomic_load(&lane->dev->in[lane->id]) == lane;
}

static void conn_drop(struct verbs_conn *c)
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

/* A card is smaller than what a fresh connection takes at once. */
static bool conn_write(struct verbs_conn *c, const struct verbs_card *card)
{
	return send(c->fd, card, sizeof(*card), MSG_NOSIGNAL) ==
	       (ssize_t)sizeof(*card);
}

/* ---- lanes ---- */

static void lane_failed(struct verbs_lane *lane, dicomm_result_t why,
			const char *text)
{
	lane->why = why;
	snprintf(lane->text, sizeof(lane->text), "%s", text);
	atomic_store_explicit(&lane->state, LANE_FAILED, memory_order_release);
}

static bool uses_cm(const struct tp_device *dev)
{
	return dev->rail[0].cm;
}

/* For a connection that cm.c makes. */
static void await(struct verbs_conn *c)
{
	c->stage = CONN_JOINING;
	c->deadline_ms = clock_ms() + CARD_MS;
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

void verbs_connect_done(struct verbs_strand *s)
{
	struct verbs_lane *lane = s->lane;

	if (!lane->conn || lane->conn->stage != CONN_JOINING)
		return;
	s->joined = true;
	for (uint32_t i = 0; i < lane->strands; i++)
		if (!lane->strand[i].joined)
			return;
	lane->conn->stage = CONN_OPEN;
	lane->conn->deadline_ms = 0;
	atomic_store_explicit(&lane->state, LANE_READY, memory_order_release);
}

void verbs_connect_failed(struct verbs_strand *s, const char *what,
			  const char *why)
{
	struct verbs_lane *lane = s->lane;
	char text[256];

	if (atomic_load(&lane->state) != LANE_CONNECTING)
		return;
	if (lane->conn)
		lane->conn->deadline_ms = 0;
	snprintf(text, sizeof(text), "verbs %.40s: rank %d (%s): %.40s: %.60s",
		 s->rail->nic->name, lane->rank, lane->remote, what, why);
	lane_failed(lane, DICOMM_ERR_REMOTE, text);
}

static struct tp_device *device_of(const uint8_t nonce[VERBS_NONCE])
{
	for (struct tp_device *dev = devices; dev; dev = dev->next)
		if (!memcmp(dev->nonce, nonce, VERBS_NONCE))
			return dev;
	return NULL;
}

/* ---- the side that is called ---- */

/* Why a genuine card cannot be served; NULL if it can. */
static const char *objection(const struct tp_device *dev,
			     const struct verbs_card *card)
{
	const struct tp_config *config = &dev->config;

	if (card->type != VERBS_CALL)
		return "this is no call";
	if (card->ranks != (uint32_t)config->ranks ||
	    card->to_rank != (uint32_t)config->rank ||
	    card->from_rank >= card->ranks || card->lane_class >= TP_CLASSES)
		return "no such rank";
	if (card->slots != config->slots || card->stride != dev->stride)
		return "its slots are not like mine";
	if (!card->strands || card->strands > VERBS_STRANDS)
		return "no such number of queue pairs";
	for (uint32_t i = 0; i < card->strands; i++)
		if (card->end[i].rail >= VERBS_RAILS ||
		    card->end[i].to_rail >= dev->rails)
			return "no such port";
	if (atomic_load(&dev->aborted))
		return "it has aborted";
	if (atomic_load(
		    &dev->in[card->from_rank * TP_CLASSES + card->lane_class]))
		return "that lane exists already";
	return NULL;
}

static dicomm_result_t make_in(struct tp_device *dev, struct verbs_conn *c,
			       struct verbs_card *answer)
{
	const struct verbs_card *call = &c->card;
	struct verbs_lane *lane =
		verbs_lane_new(dev, (int)call->from_rank, call->lane_class,
			       true, call->strands);
	dicomm_result_t status;

	if (!lane)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	snprintf(lane->remote, sizeof(lane->remote), "%.63s", call->why);
	for (uint32_t i = 0; i < call->strands; i++) {
		answer->end[i].rail = call->end[i].to_rail;
		answer->end[i].to_rail = call->end[i].rail;
	}
	status = verbs_lane_open(lane, answer);
	if (status == DICOMM_SUCCESS)
		status = verbs_lane_inbox(lane, answer);
	if (status == DICOMM_SUCCESS)
		status = verbs_lane_connect(lane, call);
	if (status != DICOMM_SUCCESS) {
		verbs_lane_close(lane);
		return status;
	}
	lane->conn = c;
	c->lane = lane;
	if (uses_cm(dev)) {
		memcpy(lane->challenge, call->challenge, VERBS_NONCE);
		atomic_store(&lane->state, LANE_CONNECTING);
		for (uint32_t i = 0; i < lane->strands; i++)
			verbs_cm_end(lane->strand[i].rail, &answer->end[i]);
		await(c);
		return DICOMM_SUCCESS;
	}
	atomic_store_explicit(&lane->state, LANE_READY, memory_order_relaxed);
	atomic_store_explicit(&dev->in[lane->id], lane, memory_order_release);
	return DICOMM_SUCCESS;
}

/* False: the connection is of no use any more. */
static bool answer_call(struct verbs_conn *c)
{
	struct verbs_card answer = {.type = VERBS_ANSWER};
	struct tp_device *dev = device_of(c->card.to);
	const char *why;

	if (!dev || !verbs_card_is_genuine(&c->card, dev->config.key)) {
		log_warn("verbs: a call from %s is not of this communicator",
			 c->from);
		return false;
	}
	memcpy(answer.to, c->card.from, sizeof(answer.to));
	memcpy(answer.from, dev->nonce, sizeof(answer.from));
	memcpy(answer.challenge, c->card.challenge, sizeof(answer.challenge));
	answer.from_rank = (uint32_t)dev->config.rank;
	answer.to_rank = c->card.from_rank;
	answer.ranks = (uint32_t)dev->config.ranks;
	answer.lane_class = c->card.lane_class;
	answer.slots = dev->config.slots;
	answer.stride = dev->stride;
	strangers--;
	c->stage = CONN_OPEN;
	c->deadline_ms = 0;
	why = objection(dev, &c->card);
	if (why) {
		answer.status = DICOMM_ERR_REMOTE;
		snprintf(answer.why, sizeof(answer.why), "%s", why);
	} else {
		answer.status = make_in(dev, c, &answer);
		if (answer.status)
			snprintf(answer.why, sizeof(answer.why), "%.90s",
				 log_last_error());
	}
	verbs_card_seal(&answer, dev->config.key);
	return conn_write(c, &answer) && !answer.status;
}

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

static void drop_oldest_stranger(void)
{
	struct verbs_conn *oldest = NULL;

	for (struct verbs_conn *c = conns; c; c = c->next)
		if (c->stage == CONN_ACCEPTED)
			oldest = c; /* new ones come first */
	if (oldest)
		conn_drop(oldest);
}

static void accept_call(const struct verbs_conn *listener)
{
	struct verbs_conn *c;
	int on = 1, fd;

	fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return;
	if (strangers >= STRANGERS_MAX)
		drop_oldest_stranger();
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	c = conn_add(fd, CONN_ACCEPTED, EPOLLIN);
	if (!c) {
		close(fd);
		return;
	}
	strangers++;
	c->deadline_ms = clock_ms() + CARD_MS;
	name_of(fd, c->from, sizeof(c->from));
}

/* ---- the side that calls ---- */

static int begin_connect(const char *host_port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *found;
	char host[VERBS_TEXT], *colon, *name = host;
	int fd, on = 1;

	snprintf(host, sizeof(host), "%s", host_port);
	colon = strrchr(host, ':');
	if (!colon) {
		errno = EINVAL;
		return -1;
	}
	*colon = '\0';
	if (*name == '[' && colon > host && colon[-1] == ']') {
		colon[-1] = '\0';
		name++;
	}
	if (getaddrinfo(name, colon + 1, &hints, &found)) {
		errno = EINVAL;
		return -1;
	}
	fd = socket(found->ai_family,
		    SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
		if (connect(fd, found->ai_addr, found->ai_addrlen) < 0 &&
		    errno != EINPROGRESS) {
			int error = errno;

			close(fd);
			errno = error;
			fd = -1;
		}
	}
	freeaddrinfo(found);
	return fd;
}

static bool is_of_use(const struct verbs_rail *rail)
{
	return !atomic_load(&rail->nic->lost_ms) &&
	       !atomic_load(&rail->nic->fatal);
}

/* Which rails a lane has strands between: each of either side is in one pair at
 * least. Returns their number. */
static uint32_t pair_rails(const struct tp_device *dev,
			   const struct verbs_address *to,
			   struct verbs_end end[VERBS_STRANDS])
{
	uint32_t mine[VERBS_RAILS], n = 0, pairs, strands;

	for (uint32_t i = 0; i < dev->rails; i++)
		if (is_of_use(&dev->rail[i]))
			mine[n++] = i;
	if (!n) /* then that is what will be said */
		mine[n++] = 0;
	pairs = n > to->rails ? n : to->rails;
	strands = pairs * (uint32_t)config_int(CONFIG_IB_QPS_PER_CONNECTION);
	if (strands > VERBS_STRANDS)
		strands = VERBS_STRANDS / pairs * pairs;
	for (uint32_t i = 0; i < strands; i++) {
		end[i].rail = mine[i % pairs % n];
		end[i].to_rail = i % pairs % to->rails;
	}
	return strands;
}

/* With the lock. */
static dicomm_result_t call(struct verbs_lane *lane,
			    const struct verbs_address *to,
			    struct verbs_card card)
{
	struct tp_device *dev = lane->dev;
	struct verbs_conn *c;
	int fd, at;

	TRY(verbs_lane_open(lane, &card));
	fd = begin_connect(to->listen);
	if (fd < 0)
		return FAIL(DICOMM_ERR_REMOTE,
			    "verbs: rank %d: connect to %s: "
			    "%m",
			    lane->rank, to->listen);
	c = conn_add(fd, CONN_CALLING, EPOLLOUT);
	if (!c) {
		close(fd);
		return FAIL(DICOMM_ERR_SYSTEM, "verbs: watch a connection: %m");
	}
	snprintf(c->from, sizeof(c->from), "%s", to->listen);
	c->lane = lane;
	c->deadline_ms = clock_ms() +
			 (uint64_t)config_int(CONFIG_BOOTSTRAP_TIMEOUT) * 1000;
	lane->conn = c;
	memcpy(card.to, to->nonce, sizeof(card.to));
	memcpy(card.from, dev->nonce, sizeof(card.from));
	randombytes_buf(lane->challenge, sizeof(lane->challenge));
	memcpy(card.challenge, lane->challenge, sizeof(card.challenge));
	card.from_rank = (uint32_t)dev->config.rank;
	card.to_rank = (uint32_t)lane->rank;
	card.ranks = (uint32_t)dev->config.ranks;
	card.lane_class = lane->id % TP_CLASSES;
	card.addr = (uintptr_t)lane->released;
	for (uint32_t i = 0; i < card.strands; i++)
		card.end[i].rkey = lane->strand[i].rail->words_mr->rkey;
	card.slots = dev->config.slots;
	card.stride = dev->stride;
	/* Who calls, for messages over there. */
	at = snprintf(card.why, sizeof(card.why), "%s ", dev->host);
	verbs_rail_names(dev, card.why + at, sizeof(card.why) - (size_t)at);
	verbs_card_seal(&card, dev->config.key);
	c->card = card;
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_connect_call(struct tp_device *dev,
				   const struct verbs_address *to,
				   enum tp_class c, struct verbs_lane **out)
{
	struct verbs_card card = {.type = VERBS_CALL};
	uint32_t strands = pair_rails(dev, to, card.end);
	struct verbs_lane *lane =
		verbs_lane_new(dev, (int)to->rank, c, false, strands);
	dicomm_result_t status;

	if (!lane)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	snprintf(lane->remote, sizeof(lane->remote), "%s %s", to->host,
		 to->nic);
	lane->released = &dev->words[lane->id];
	atomic_store(lane->released, 0);
	atomic_store(&lane->state, LANE_CONNECTING);
	pthread_mutex_lock(&lock);
	if (atomic_load(&dev->aborted))
		status = DICOMM_ERR_ABORTED;
	else
		status = call(lane, to, card);
	if (status == DICOMM_SUCCESS)
		atomic_store(&dev->out[lane->id], lane);
	else
		verbs_lane_close(lane);
	pthread_mutex_unlock(&lock);
	if (status == DICOMM_SUCCESS)
		*out = lane;
	return status;
}

static void connected(struct verbs_conn *c)
{
	char text[256];
	int error = 0;
	socklen_t len = sizeof(error);

	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len);
	if (!error && conn_write(c, &c->card)) {
		c->stage = CONN_ASKED;
		c->have = 0;
		conn_watch(c, EPOLLIN);
		return;
	}
	snprintf(text, sizeof(text),
		 "verbs: rank %d (%s): connect to %s: %.80s", c->lane->rank,
		 c->lane->remote, c->from, strerror(error ? error : errno));
	lane_failed(c->lane, DICOMM_ERR_REMOTE, text);
	conn_drop(c);
}

/* What is wrong with an answer; NULL: nothing. */
static const char *doubt(const struct verbs_lane *lane,
			 const struct verbs_card *card)
{
	const struct tp_config *config = &lane->dev->config;

	if (!verbs_card_is_genuine(card, config->key))
		return "its answer is not of this communicator";
	if (card->type != VERBS_ANSWER ||
	    memcmp(card->challenge, lane->challenge, VERBS_NONCE) ||
	    card->from_rank != (uint32_t)lane->rank ||
	    card->to_rank != (uint32_t)config->rank)
		return "its answer is to somebody else";
	if (card->status)
		return *card->why ? card->why : "it refused";
	if (card->slots != config->slots || card->stride != lane->dev->stride)
		return "its slots are not like mine";
	if (card->strands != lane->strands)
		return "it has another number of queue pairs";
	return NULL;
}

/* Both cards are there. */
static dicomm_result_t join(struct verbs_lane *lane,
			    const struct verbs_card *remote)
{
	TRY(verbs_lane_connect(lane, remote));
	for (uint32_t i = 0; uses_cm(lane->dev) && i < lane->strands; i++)
		TRY(verbs_cm_call(&lane->strand[i], &remote->end[i]));
	return DICOMM_SUCCESS;
}

static void answered(struct verbs_conn *c)
{
	struct verbs_lane *lane = c->lane;
	const char *why = doubt(lane, &c->card);
	dicomm_result_t status;
	char text[256];

	if (why) {
		snprintf(text, sizeof(text), "verbs: rank %d (%s): %.150s",
			 lane->rank, lane->remote, why);
		lane_failed(lane, DICOMM_ERR_REMOTE, text);
		conn_drop(c);
		return;
	}
	status = join(lane, &c->card);
	if (status == DICOMM_SUCCESS && uses_cm(lane->dev)) {
		await(c);
		return;
	}
	if (status != DICOMM_SUCCESS) {
		lane_failed(lane, status, log_last_error());
		conn_drop(c);
		return;
	}
	c->stage = CONN_OPEN;
	c->deadline_ms = 0;
	atomic_store_explicit(&lane->state, LANE_READY, memory_order_release);
}

static void lost(struct verbs_conn *c)
{
	struct verbs_lane *lane = c->lane;
	char text[256];

	if (c->stage == CONN_ACCEPTED) {
		if (c->have)
			log_warn("verbs: a call from %s broke off", c->from);
	} else if (lane && c->stage == CONN_OPEN) {
		atomic_store_explicit(&lane->left, true, memory_order_release);
	} else if (lane) {
		snprintf(text, sizeof(text),
			 "verbs: rank %d (%s) hung up during the call",
			 lane->rank, lane->remote);
		lane_failed(lane, DICOMM_ERR_REMOTE, text);
	}
	conn_drop(c);
}

/* ---- the thread ---- */

static void on_event(struct verbs_conn *c)
{
	bool ended = false;
	char rest[64];
	ssize_t n;

	switch (c->stage) {
	case CONN_LISTENING:
		accept_call(c);
		break;
	case CONN_EVENTS:
		verbs_watch_events(c->nic);
		break;
	case CONN_ACCEPTED:
		if (conn_read(c, &ended)) {
			if (!answer_call(c))
				conn_drop(c);
		} else if (ended) {
			lost(c);
		}
		break;
	case CONN_CALLING:
		connected(c);
		break;
	case CONN_ASKED:
		if (conn_read(c, &ended))
			answered(c);
		else if (ended)
			lost(c);
		break;
	case CONN_JOINING:
	case CONN_OPEN:
		n = recv(c->fd, rest, sizeof(rest), 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		lost(c); /* nothing is said on it: the end, or noise */
		break;
	}
}

static void expire(struct verbs_conn *c, uint64_t now)
{
	char text[256];

	if (!c->deadline_ms || now < c->deadline_ms)
		return;
	if (c->stage == CONN_ACCEPTED) {
		log_warn("verbs: a call from %s said nothing for %d ms",
			 c->from, CARD_MS);
	} else {
		snprintf(text, sizeof(text),
			 "verbs: rank %d (%s): no answer from %s",
			 c->lane->rank, c->lane->remote, c->from);
		lane_failed(c->lane, DICOMM_ERR_TIMEOUT, text);
	}
	conn_drop(c);
}

static void *serve(void *arg)
{
	struct epoll_event events[16];
	struct verbs_conn *next;
	int fd = (int)(intptr_t)arg;
	bool stop = false;

	pthread_setname_np(pthread_self(), "dicomm-verbs");
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

/* The child of a fork has no such thread; what its parent opened is not its
 * own. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_init(&life, NULL);
	devices = NULL;
	conns = NULL;
	strangers = 0;
	epoll_fd = stop_fd = -1;
	verbs_cm_forget();
}

static void setup(void)
{
	pthread_atfork(NULL, NULL, forget);
}

static dicomm_result_t start(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	sigset_t all, old;
	int error;

	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (epoll_fd < 0 || stop_fd < 0 ||
	    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, stop_fd, &e) < 0) {
		error = errno;
		goto fail;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&thread, NULL, serve,
			       (void *)(intptr_t)epoll_fd);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
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

	*fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
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
	int fd = fcntl(nic->context->async_fd, F_DUPFD_CLOEXEC, 0);

	if (fd >= 0)
		rail->events = conn_add(fd, CONN_EVENTS, EPOLLIN);
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
	if (rail->nic->fabric == VERBS_IWARP)
		TRY(open_cm(rail));
	return open_events(rail);
}

static void close_rails(struct tp_device *dev)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		struct verbs_rail *rail = &dev->rail[i];

		if (rail->events)
			conn_drop(rail->events);
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
		dev->listener = conn_add(fd, CONN_LISTENING, EPOLLIN);
		if (!dev->listener)
			status = FAIL(DICOMM_ERR_SYSTEM,
				      "verbs: watch a socket: %m");
	}
	if (status != DICOMM_SUCCESS) {
		close_rails(dev);
		return status;
	}
	dev->listener->dev = dev;
	dev->next = devices;
	devices = dev;
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
		conn_drop(lane->conn);
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
	conn_drop(dev->listener);
	dev->listener = NULL;
	while (*at != dev)
		at = &(*at)->next;
	*at = dev->next;
	for (struct verbs_conn *c = conns; c; c = next) {
		next = c->next;
		if (c->lane && c->lane->dev == dev && !is_known(c->lane))
			conn_drop(c);
	}
	close_rails(dev);
	pthread_mutex_unlock(&lock);
}

void verbs_connect_close(void)
{
	bool last;

	pthread_mutex_lock(&life);
	pthread_mutex_lock(&lock);
	last = !devices && epoll_fd >= 0;
	while (last && conns)
		conn_drop(conns);
	pthread_mutex_unlock(&lock);
	if (last)
		stop();
	pthread_mutex_unlock(&life);
}
