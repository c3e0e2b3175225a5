/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP transport: its operations. */
#include "transports/tcp/tcp.h"

#include <poll.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "src/base/descriptors.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "transports/defaults.h"
#include "transports/terms.h"

/* So few connections are polled one by one, which saves the system call of
 * epoll; but every so many-th poll asks epoll, for new connections. */
#define POLLED_EACH 3
#define EPOLL_EVERY 16
#define EVENTS 32

/* ---- progress ---- */

/* Nothing is received from a link before all of its connections are open. */
static bool progress_conn(struct tcp_conn *c)
{
	bool moved = false;

	if (c->state == TCP_OPEN && c->link->ready)
		moved = tcp_receive(c);
	if (c->state == TCP_OPEN && tcp_send_is_pending(c))
		moved |= tcp_send_more(c);
	return moved;
}

static bool polls_each(const struct tp_device *dev)
{
	if (!dev->open || dev->open > POLLED_EACH || dev->pending)
		return false;
	for (const struct tcp_conn *c = dev->conns; c; c = c->next)
		if (c->blocked)
			return false;
	return true;
}

static bool poll_each(struct tp_device *dev)
{
	struct tcp_conn *next;
	bool moved = false;

	for (struct tcp_conn *c = dev->conns; c; c = next) {
		next = c->next;
		moved |= progress_conn(c);
		/* Another one may have gone, too. */
		if (dev->closed)
			break;
	}
	return moved;
}

static bool on_event(struct tp_device *dev, const struct epoll_event *e)
{
	struct tcp_conn *c = e->data.ptr;
	bool moved = true;

	if (e->data.ptr == dev) {
		tcp_join_accept(dev);
		return true;
	}
	if (c->state == TCP_CLOSED)
		return true;
	if (c->state != TCP_OPEN) {
		tcp_join_advance(c);
		return true;
	}
	if (e->events & EPOLLOUT)
		tcp_send_more(c);
	else
		moved = false;
	if (e->events & ~(uint32_t)EPOLLOUT)
		moved |= progress_conn(c);
	return moved;
}

static bool poll_epoll(struct tp_device *dev)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(dev->epoll, events, EVENTS, 0);
	bool moved = false;

	for (int i = 0; i < n; i++)
		moved |= on_event(dev, &events[i]);
	/* Pieces that were not ended need no room. */
	for (struct tcp_conn *c = dev->conns; c; c = c->next)
		if (c->state == TCP_OPEN && !c->blocked &&
		    tcp_send_is_pending(c)) {
			moved |= tcp_send_more(c);
			break;
		}
	return moved;
}

static uint32_t count_poll(struct tp_device *dev)
{
	uint32_t polls =
		atomic_load_explicit(&dev->polls, memory_order_relaxed) + 1;

	atomic_store_explicit(&dev->polls, polls, memory_order_relaxed);
	return polls;
}

static void poll_epoll_next(struct tp_device *dev)
{
	atomic_store_explicit(&dev->polls, EPOLL_EVERY - 1,
			      memory_order_relaxed);
}

/* True: something moved. Lock held. */
static bool progress(struct tp_device *dev)
{
	bool moved;

	if (count_poll(dev) % EPOLL_EVERY && polls_each(dev))
		moved = poll_each(dev);
	else
		moved = poll_epoll(dev);
	if (__builtin_expect(dev->pending, 0))
		tcp_join_tick(dev, clock_ms());
	if (__builtin_expect(dev->base.deferred, 0))
		tcp_link_flush_deferred(dev);
	framed_credits_progress(&dev->base, moved);
	if (__builtin_expect(dev->closed != NULL, 0))
		tcp_socket_free_closed(dev);
	return moved;
}

static bool tcp_poll(struct tp_device *dev)
{
	bool moved = false;

	progress_thread_polled(&dev->progress);
	if (!framed_try_lock(&dev->base))
		return false;
	if (!framed_is_aborted(&dev->base))
		moved = progress(dev);
	dev->polled |= moved;
	framed_unlock(&dev->base);
	return moved;
}

static void tcp_wait(struct tp_device *dev, unsigned us)
{
	struct pollfd fd = {.fd = dev->epoll, .events = POLLIN};
	struct timespec t = {.tv_nsec = (long)us * 1000};

	if (framed_is_aborted(&dev->base)) {
		sched_yield();
		return;
	}
	/* The rank has not looked yet at what its last poll brought. If it
	 * yielded here, all other threads of the core would run first. */
	if (dev->polled) {
		dev->polled = false;
		return;
	}
	if (ppoll(&fd, 1, &t, NULL) > 0) {
		poll_epoll_next(dev); /* it may be a new connection */
		return;
	}
	if (!framed_try_lock(&dev->base))
		return;
	if (!framed_is_aborted(&dev->base))
		framed_credits_send_all(&dev->base);
	framed_unlock(&dev->base);
}

/* For the progress thread */
static int poll_away(struct tp_device *dev)
{
	int timeout = 0, n = 0;
	bool moved = false;

	if (!framed_try_lock(&dev->base))
		return PROGRESS_AWAY_MS;
	if (framed_is_aborted(&dev->base))
		timeout = -1;
	else
		framed_credits_send_all(&dev->base);
	while (timeout == 0 && n++ < PROGRESS_MAX) {
		poll_epoll_next(dev);
		if (!progress(dev))
			timeout = dev->base.credits_due || dev->base.deferred ||
						  dev->pending
					  ? PROGRESS_AWAY_MS
					  : -1;
		else
			moved = true;
	}
	framed_unlock(&dev->base);
	if (moved)
		doorbell_ring_own();
	return timeout;
}

static doorbell_word *tcp_rest(struct tp_device *dev)
{
	return progress_thread_take_over(&dev->progress) ? &doorbell_own : NULL;
}

/* ---- device ---- */

static bool tcp_usable(char *why, size_t len)
{
	int fd = descriptors_high(
		socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));

	if (fd < 0)
		fd = descriptors_high(
			socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (fd < 0) {
		snprintf(why, len, "no TCP sockets: %m");
		return false;
	}
	close(fd);
	snprintf(why, len, "TCP sockets");
	return true;
}

static void tcp_close(struct tp_device *dev);

static uint32_t connections_of(const struct tp_config *config)
{
	uint32_t n = (uint32_t)config_int(CONFIG_TCP_CONNECTIONS);

	if (config->queue_pairs && config_is_default(CONFIG_TCP_CONNECTIONS))
		n = config->queue_pairs;
	return n < TCP_CONNECTIONS ? n : TCP_CONNECTIONS;
}

static enum tcp_protection protection_of(const char *value)
{
	enum tcp_protection p = TCP_CLEAR;

	while (strcmp(value, tcp_address_protection(p)))
		p++;
	return p;
}

static dicomm_result_t open_parts(struct tp_device *dev,
				  const struct tp_config *config)
{
	TRY(framed_open(&dev->base, &tcp_ops, config));
	dev->base.congests = true;
	dev->links = (struct tcp_link *)(void *)dev->base.links;
	if (!dev->base.config.listen)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "tcp: rank %d cannot listen",
			    dev->base.config.rank);
	dev->opened_ms = clock_ms();
	dev->silent_ms = tcp_silent_ms();
	dev->protection = protection_of(config_string(CONFIG_ENCRYPT));
	dev->connections = connections_of(&dev->base.config);
	TRY(tcp_socket_open(dev));
	dev->progress.poll = poll_away;
	dev->progress.dev = dev;
	dev->progress.fd = dev->epoll;
	return progress_thread_add(&dev->progress);
}

static dicomm_result_t tcp_open(const struct tp_config *config,
				struct tp_device **out)
{
	struct tp_device *dev;
	dicomm_result_t status;

	TRY(terms_check_config("tcp", config));
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return FAIL(DICOMM_ERR_NO_MEMORY, "tcp: out of memory");
	dev->epoll = dev->listener = -1;
	status = open_parts(dev, config);
	if (status != DICOMM_SUCCESS) {
		tcp_close(dev);
		return status;
	}
	log_debug("tcp: rank %d listens at %s", config->rank, dev->listen);
	*out = dev;
	return DICOMM_SUCCESS;
}

/* ---- peers ---- */

static bool tcp_reaches(struct tp_device *dev, const struct tp_blob *address,
			char *why, size_t len)
{
	struct tcp_address a;

	return tcp_address_parse(dev, address, &a, why, len) &&
	       framed_link_is_open(&dev->base, a.base.terms.rank, why, len);
}

/* Lock held. */
static dicomm_result_t keep_address(struct tcp_link *link,
				    const struct tcp_address *a)
{
	if (!link->address)
		link->address = malloc(sizeof(*a));
	if (!link->address)
		return FAIL(DICOMM_ERR_NO_MEMORY, "tcp: out of memory");
	*link->address = *a;
	return DICOMM_SUCCESS;
}

static dicomm_result_t tcp_peer_open(struct tp_device *dev, int rank,
				     const struct tp_blob *address,
				     struct tp_peer **out)
{
	const struct tp_config *config = &dev->base.config;
	struct tcp_address a;
	dicomm_result_t status;
	char why[256];

	if (!tcp_address_parse(dev, address, &a, why, sizeof(why)))
		return FAIL(DICOMM_ERR_NO_PATH, "tcp: rank %d: %s", rank, why);
	TRY(terms_check_peer("tcp", config, config->slot_bytes, rank,
			     &a.base.terms));
	framed_lock(&dev->base);
	status = keep_address(&dev->links[rank], &a);
	framed_unlock(&dev->base);
	if (status != DICOMM_SUCCESS)
		return status;
	*out = framed_peer_make(&dev->base, rank, sizeof(**out));
	return *out ? DICOMM_SUCCESS
		    : FAIL(DICOMM_ERR_NO_MEMORY, "tcp: out of memory");
}

/* ---- what the common operations need; lock held ---- */

/* put() waits for the connection. */
static dicomm_result_t open_channel(struct tp_peer *peer, enum tp_class c)
{
	struct tp_device *dev = peer->dev;
	struct tcp_link *link = &dev->links[peer->rank];

	TRY(framed_link_status(&link->base));
	link->announce[c] = true;
	if (link->ready)
		tcp_link_flush_deferred(dev);
	else
		tcp_join_connect(link);
	return DICOMM_SUCCESS;
}

/* The message carries a credit for the other direction. */
static dicomm_result_t send_message(struct tp_peer *peer,
				    const struct framed_message *m)
{
	struct tcp_link *link = &peer->dev->links[peer->rank];
	struct framed_in *in = framed_in_of(&peer->dev->base, link->base.rank,
					    m->channel_class);
	struct tcp_head head = {.what = TCP_FRAME_MESSAGE,
				.channel_class = m->channel_class,
				.kind = m->kind,
				.signature = m->signature,
				.seq = m->seq,
				.len = m->len,
				.consumed = in ? in->consumed : 0};
	struct tcp_conn *c;

	if (!link->ready)
		return DICOMM_AGAIN;
	c = link->conn[link->count > 1 ? m->seq % link->count : 0];
	if (!c)
		return DICOMM_AGAIN;
	TRY(tcp_send_message(c, &head, m->body, m->bytes));
	if (in && in->granted != in->consumed)
		framed_credits_sent(in);
	return DICOMM_SUCCESS;
}

static dicomm_result_t send_credit(struct framed_in *in)
{
	struct tcp_link *link = &framed_device(in->framed)->links[in->rank];
	struct tcp_head head = {.what = TCP_FRAME_CREDIT,
				.channel_class = in->channel_class,
				.consumed = in->consumed};

	if (!link->open || link->base.peer_closed || link->close_sent[0] ||
	    atomic_load_explicit(&link->base.status, memory_order_relaxed))
		return DICOMM_ERR_REMOTE;
	return tcp_send_control(link->conn[0], &head, NULL, 0);
}

static dicomm_result_t send_read(struct framed_in *in, uint64_t seq,
				 struct framed_read *read, uint32_t number,
				 const struct tp_ref *ref, uint64_t offset)
{
	struct tcp_link *link = &framed_device(in->framed)->links[in->rank];
	struct tcp_read_request request = {.offset = offset, .len = read->len};
	struct tcp_head head = {.what = TCP_FRAME_READ,
				.channel_class = in->channel_class,
				.seq = seq,
				.signature = number};

	if (!link->ready)
		return DICOMM_AGAIN;
	memcpy(&request.ref, ref, sizeof(request.ref));
	return tcp_send_control(link->conn[0], &head, &request,
				sizeof(request));
}

static bool tcp_offer(struct tp_peer *peer, const void *addr, uint64_t len,
		      enum tp_want want, struct tp_ref *ref)
{
	struct tcp_ref r = {.addr = (uintptr_t)addr, .len = len};

	_Static_assert(sizeof(r) <= sizeof(*ref), "must fit");
	(void)want;
	r.seal = tcp_ref_seal(peer->dev, &r);
	memcpy(ref, &r, sizeof(r));
	return true;
}

/* ---- ends ---- */

/* Peers see the end. Those to which TCP_FRAME_CLOSE can be sent see that it is
 * on purpose. */
static void end_conn(struct tcp_conn *c)
{
	struct tcp_head head = {.what = TCP_FRAME_CLOSE};

	if (c->state == TCP_OPEN && !tcp_send_is_amid_frame(c))
		(void)tcp_send_control(c, &head, NULL, 0);
	shutdown(c->fd, SHUT_WR);
}

static void tcp_abort(struct tp_device *dev)
{
	bool before = atomic_exchange(&dev->base.aborted, true);

	if (!framed_lock_to_abort(&dev->base))
		return;
	atomic_store(&dev->progress.aborted, true);
	for (struct tcp_conn *c = dev->conns; c && !before; c = c->next)
		end_conn(c);
	tcp_socket_stop_listening(dev);
	framed_unlock(&dev->base);
}

/* Wait until the peers have acknowledged the close. A peer that is alive does
 * so soon: its rank, or its progress thread. */
static void wait_for_quiet(struct tp_device *dev, uint32_t first, uint32_t end)
{
	uint64_t start = clock_ns();
	bool quiet = false;

	while (!quiet && !framed_is_aborted(&dev->base) &&
	       clock_ns() - start < FRAMED_DRAIN_NS) {
		quiet = true;
		/* No credit may follow the close. */
		framed_credits_send_all(&dev->base);
		for (uint32_t r = first; r < end; r++) {
			tcp_link_say_close(&dev->links[r]);
			quiet &= tcp_link_is_quiet(&dev->links[r]);
		}
		if (quiet || progress(dev))
			continue;
		framed_unlock(&dev->base);
		tcp_wait(dev, 500);
		framed_lock(&dev->base);
	}
	if (!quiet && !framed_is_aborted(&dev->base))
		log_warn("tcp: rank %d closes, but not all of its peers have "
			 "acknowledged that",
			 dev->base.config.rank);
}

/* Lock held. */
static void close_links(struct tp_device *dev, uint32_t first, uint32_t end)
{
	wait_for_quiet(dev, first, end);
	for (uint32_t r = first; r < end; r++) {
		dev->links[r].closed = true;
		if (dev->links[r].ack_due && !framed_is_aborted(&dev->base))
			tcp_link_flush_deferred(dev);
		tcp_link_drop(&dev->links[r]);
		framed_free_channels(&dev->base, r);
	}
	tcp_socket_free_closed(dev);
}

static void drop_link(struct framed_link *link)
{
	tcp_link_drop((struct tcp_link *)(void *)link);
}

const struct framed_ops tcp_ops = {
	.name = "tcp",
	.magic = 0x50435444u, /* "DTCP" */
	.version = 2,
	.ref_bytes = sizeof(struct tcp_ref),
	.link_bytes = sizeof(struct tcp_link),
	.open_channel = open_channel,
	.send_message = send_message,
	.send_credit = send_credit,
	.send_read = send_read,
	.close_links = close_links,
	.drop = drop_link,
	.watch = tcp_watch,
};
_Static_assert(offsetof(struct tp_device, base) == 0 &&
		       offsetof(struct tcp_link, base) == 0,
	       "see framed_of(), framed_link_of()");

static void tcp_close(struct tp_device *dev)
{
	if (!dev)
		return;
	progress_thread_remove(&dev->progress);
	framed_lock(&dev->base);
	if (dev->links)
		close_links(dev, 0, (uint32_t)dev->base.config.ranks);
	while (dev->conns)
		tcp_socket_drop(dev->conns);
	tcp_socket_free_closed(dev);
	tcp_socket_close(dev);
	for (int r = 0; dev->links && r < dev->base.config.ranks; r++)
		free(dev->links[r].address);
	framed_close(&dev->base);
	sodium_memzero(dev, sizeof(*dev));
	free(dev);
}

static uint64_t tcp_memory(const struct tp_device *dev)
{
	uint64_t conn = sizeof(struct tcp_conn) + sizeof(struct tcp_head) +
			dev->base.config.slot_bytes +
			TCP_REPLIES * sizeof(struct tcp_reply);
	uint64_t bytes = sizeof(*dev) + framed_memory(&dev->base);

	bytes += dev->open * conn;
	for (const struct tp_peer *p = dev->base.peers; p; p = p->next)
		bytes += sizeof(*p) + sizeof(struct tcp_address);
	return bytes;
}

const struct transport transport_tcp = {
	.name = "tcp",
	.encrypts = true,
	.slots = 64,
	.slot_bytes = 65536,
	.wait_wakes = true,
	.slow_poll = true,
	.usable = tcp_usable,
	.open = tcp_open,
	.address = tcp_address_make,
	.close = tcp_close,
	.reaches = tcp_reaches,
	.peer_open = tcp_peer_open,
	.limits = framed_limits,
	.connect_out = framed_connect_out,
	.connect_in = framed_connect_in,
	.peer_close = framed_peer_close,
	.put = framed_put,
	.release = framed_release,
	.flush = framed_flush,
	.mem_reg = defaults_mem_reg,
	.mem_reg_device = defaults_mem_reg_device,
	.mem_support = defaults_mem_support,
	.mem_dereg = defaults_mem_dereg,
	.offer = tcp_offer,
	.map = framed_read_map,
	.read = framed_read_begin,
	.read_status = framed_read_status,
	.poll = tcp_poll,
	.wait = tcp_wait,
	.rest = tcp_rest,
	.broken = framed_link_broken,
	.abort = tcp_abort,
	.memory = tcp_memory,
	.retransmits = tcp_watch_retransmits,
};
