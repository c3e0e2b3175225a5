/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP transport: its operations. */
#include "transports/tcp/tcp.h"

#include <inttypes.h>
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
#include "transports/defaults.h"
#include "transports/terms.h"

/* So few connections are polled one by one, which saves the system call of
 * epoll; but every so many-th poll asks epoll, for new connections. */
#define POLLED_EACH 3
#define EPOLL_EVERY 16
#define EVENTS 32

/* ---- the lock ---- */

static bool try_lock(struct tp_device *dev)
{
	return !atomic_flag_test_and_set_explicit(&dev->busy,
						  memory_order_acquire);
}

static void lock(struct tp_device *dev)
{
	while (!try_lock(dev))
		sched_yield();
}

static void unlock(struct tp_device *dev)
{
	atomic_flag_clear_explicit(&dev->busy, memory_order_release);
}

static bool is_aborted(const struct tp_device *dev)
{
	return atomic_load_explicit(&dev->aborted, memory_order_relaxed);
}

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

bool tcp_progress(struct tp_device *dev)
{
	bool moved;

	if (count_poll(dev) % EPOLL_EVERY && polls_each(dev))
		moved = poll_each(dev);
	else
		moved = poll_epoll(dev);
	if (__builtin_expect(dev->pending, 0))
		tcp_join_tick(dev, clock_ms());
	if (__builtin_expect(dev->deferred, 0))
		tcp_link_flush_deferred(dev);
	tcp_credits_progress(dev, moved);
	if (__builtin_expect(dev->closed != NULL, 0))
		tcp_socket_free_closed(dev);
	return moved;
}

static bool tcp_poll(struct tp_device *dev)
{
	bool moved = false;

	progress_thread_polled(&dev->progress);
	if (!try_lock(dev))
		return false;
	if (!is_aborted(dev))
		moved = tcp_progress(dev);
	dev->polled |= moved;
	unlock(dev);
	return moved;
}

static void tcp_wait(struct tp_device *dev, unsigned us)
{
	struct pollfd fd = {.fd = dev->epoll, .events = POLLIN};
	struct timespec t = {.tv_nsec = (long)us * 1000};

	if (is_aborted(dev)) {
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
	if (!try_lock(dev))
		return;
	if (!is_aborted(dev))
		tcp_credits_send_all(dev);
	unlock(dev);
}

/* For the progress thread */
static int poll_away(struct tp_device *dev)
{
	int timeout = 0, n = 0;

	if (!try_lock(dev))
		return PROGRESS_AWAY_MS;
	if (is_aborted(dev))
		timeout = -1;
	else
		tcp_credits_send_all(dev);
	while (timeout == 0 && n++ < PROGRESS_MAX) {
		poll_epoll_next(dev);
		if (!tcp_progress(dev))
			timeout = dev->credits_due || dev->deferred ||
						  dev->pending
					  ? PROGRESS_AWAY_MS
					  : -1;
	}
	unlock(dev);
	return timeout;
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

static dicomm_result_t open_tables(struct tp_device *dev)
{
	size_t ranks = (size_t)dev->config.ranks;

	dev->links = calloc(ranks, sizeof(*dev->links));
	dev->in = calloc(ranks * TP_CLASSES, sizeof(*dev->in));
	dev->out = calloc(ranks * TP_CLASSES, sizeof(*dev->out));
	if (!dev->links || !dev->in || !dev->out)
		return FAIL(DICOMM_ERR_NO_MEMORY, "tcp: no memory for %d ranks",
			    dev->config.ranks);
	for (size_t r = 0; r < ranks; r++) {
		dev->links[r].dev = dev;
		dev->links[r].rank = (uint32_t)r;
	}
	return DICOMM_SUCCESS;
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

static dicomm_result_t open_parts(struct tp_device *dev)
{
	if (sodium_init() < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "tcp: libsodium: cannot start");
	if (!dev->config.listen)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "tcp: rank %d cannot listen", dev->config.rank);
	randombytes_buf(&dev->token, sizeof(dev->token));
	randombytes_buf(dev->seal_key, sizeof(dev->seal_key));
	dev->network = tcp_address_network();
	dev->protection = protection_of(config_string(CONFIG_ENCRYPT));
	dev->connections = connections_of(&dev->config);
	TRY(open_tables(dev));
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
	dev->config = *config;
	dev->epoll = dev->listener = -1;
	atomic_flag_clear(&dev->busy);
	status = open_parts(dev);
	if (status != DICOMM_SUCCESS) {
		tcp_close(dev);
		return status;
	}
	log_debug("tcp: rank %d listens at %s", config->rank, dev->listen);
	*out = dev;
	return DICOMM_SUCCESS;
}

static void tcp_address(const struct tp_device *dev, struct tp_blob *address)
{
	tcp_address_make(dev, address);
}

/* ---- peers ---- */

static bool tcp_reaches(struct tp_device *dev, const struct tp_blob *address,
			char *why, size_t len)
{
	struct tcp_address a;

	if (!tcp_address_parse(dev, address, &a, why, len))
		return false;
	if (a.rank >= (uint32_t)dev->config.ranks)
		return true;
	if (atomic_load(&dev->links[a.rank].peer_closed)) {
		snprintf(why, len, "it has closed its side");
		return false;
	}
	if (atomic_load(&dev->links[a.rank].status)) {
		snprintf(why, len, "the connection to it has broken");
		return false;
	}
	return true;
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
	const struct tp_config *config = &dev->config;
	struct tcp_address a;
	struct tp_peer *peer;
	dicomm_result_t status;
	char why[256];

	if (!tcp_address_parse(dev, address, &a, why, sizeof(why)))
		return FAIL(DICOMM_ERR_NO_PATH, "tcp: rank %d: %s", rank, why);
	TRY(terms_check_peer(
		"tcp", config, config->slot_bytes, rank,
		&(struct terms){a.rank, a.ranks, a.slots, a.slot_bytes}));
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return FAIL(DICOMM_ERR_NO_MEMORY, "tcp: out of memory");
	peer->dev = dev;
	peer->rank = rank;
	peer->link = &dev->links[rank];
	lock(dev);
	status = keep_address(peer->link, &a);
	unlock(dev);
	if (status != DICOMM_SUCCESS) {
		free(peer);
		return status;
	}
	peer->next = dev->peers;
	dev->peers = peer;
	*out = peer;
	return DICOMM_SUCCESS;
}

static void tcp_limits(const struct tp_peer *peer, struct tp_limits *limits)
{
	const struct tp_config *config = &peer->dev->config;

	/*
	 * Credits are sent at every quarter of the slots; see release(). The
	 * request for a reference queues up behind the data that this rank
	 * sends: when all ranks send to all others, that doubled the time.
	 */
	*limits = (struct tp_limits){.eager_bytes = config->slot_bytes,
				     .slots = config->slots,
				     .window = config->slots / 2 + 1,
				     .spin = 1,
				     .prefers_eager = true,
				     .congests = true};
}

/* To itself a rank needs no network. */
static bool is_self(const struct tp_peer *peer)
{
	return peer->rank == peer->dev->config.rank;
}

/* Lock held. */
static dicomm_result_t begin_channel(struct tp_peer *peer, uint8_t c)
{
	struct tcp_link *link = peer->link;

	if (is_self(peer))
		return tcp_in_of(peer->dev, link->rank, c) ||
				       tcp_receive_make(link, c)
			       ? DICOMM_SUCCESS
			       : FAIL(DICOMM_ERR_NO_MEMORY,
				      "tcp: out of memory");
	TRY(tcp_link_status(link));
	link->announce[c] = true;
	if (link->ready)
		peer->dev->deferred = true;
	else
		tcp_join_connect(link);
	return DICOMM_SUCCESS;
}

/* Messages can be put at once; put() waits for the connection. */
static dicomm_result_t tcp_connect_out(struct tp_peer *peer, enum tp_class c,
				       struct tp_outbox *outbox)
{
	struct tp_device *dev = peer->dev;
	struct tcp_out *out = peer->out[c];
	dicomm_result_t status;

	if (out) {
		outbox->released = &out->released;
		return is_aborted(dev) ? DICOMM_ERR_ABORTED : DICOMM_SUCCESS;
	}
	out = calloc(1, sizeof(*out));
	if (!out)
		return FAIL(DICOMM_ERR_NO_MEMORY, "tcp: out of memory");
	out->limit = dev->config.slots;
	lock(dev);
	status = is_aborted(dev) ? DICOMM_ERR_ABORTED
				 : begin_channel(peer, (uint8_t)c);
	if (status == DICOMM_SUCCESS) {
		atomic_store_explicit(
			&dev->out[(uint32_t)peer->rank * TP_CLASSES + c], out,
			memory_order_release);
		peer->out[c] = out;
		outbox->released = &out->released;
	}
	if (dev->deferred && !is_aborted(dev))
		tcp_link_flush_deferred(dev);
	unlock(dev);
	if (status != DICOMM_SUCCESS)
		free(out);
	return status;
}

static dicomm_result_t tcp_connect_in(struct tp_peer *peer, enum tp_class c,
				      struct tp_inbox *inbox)
{
	struct tp_device *dev = peer->dev;
	struct tcp_in *in = tcp_in_of(dev, (uint32_t)peer->rank, c);

	if (is_aborted(dev))
		return DICOMM_ERR_ABORTED;
	if (!in)
		return DICOMM_AGAIN;
	peer->in[c] = in;
	inbox->lines = (struct tp_line *)(void *)in->slots;
	inbox->line_stride = sizeof(struct tp_line);
	inbox->data = in->data;
	inbox->data_stride = dev->config.slot_bytes;
	inbox->slot_mask = dev->config.slots - 1;
	return DICOMM_SUCCESS;
}

/* ---- messages ---- */

/* Lock held. The message carries a credit for the other direction. */
static dicomm_result_t put_locked(struct tp_peer *peer, struct tcp_head *head,
				  const void *body, uint64_t bytes)
{
	struct tp_device *dev = peer->dev;
	struct tcp_link *link = peer->link;
	struct tcp_conn *c;
	struct tcp_in *in;

	if (is_aborted(dev))
		return DICOMM_ERR_ABORTED;
	TRY(tcp_link_status(link));
	if (!link->ready)
		return DICOMM_AGAIN;
	c = link->conn[link->count > 1 ? head->seq % link->count : 0];
	if (!c)
		return DICOMM_AGAIN;
	in = tcp_in_of(dev, link->rank, head->channel_class);
	head->consumed = in ? in->consumed : 0;
	TRY(tcp_send_message(c, head, body, bytes));
	if (in && in->granted != in->consumed) {
		in->granted = in->consumed;
		tcp_credits_cancel(in);
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t tcp_put(struct tp_peer *peer, enum tp_class c,
			       uint64_t seq, uint32_t signature,
			       enum tp_kind kind, const void *body,
			       uint64_t len)
{
	struct tp_device *dev = peer->dev;
	struct tcp_out *out = peer->out[c];
	uint64_t bytes = kind == TP_REF ? sizeof(struct tcp_ref) : len;
	struct tcp_head head = {.what = TCP_FRAME_MESSAGE,
				.channel_class = (uint8_t)c,
				.kind = (uint16_t)kind,
				.seq = seq,
				.len = len,
				.signature = signature};
	dicomm_result_t status;

	if (is_aborted(dev))
		return DICOMM_ERR_ABORTED;
	if (__builtin_expect(!out, 0))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "tcp: put to rank %d before connect_out",
			    peer->rank);
	if (__builtin_expect(bytes > dev->config.slot_bytes, 0))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "tcp: put of %" PRIu64 " bytes into a slot of %u",
			    len, dev->config.slot_bytes);
	if (seq > out->limit) {
		out->limit = atomic_load_explicit(&out->released,
						  memory_order_acquire) +
			     dev->config.slots;
		if (seq > out->limit)
			return DICOMM_AGAIN;
	}
	if (is_self(peer)) {
		tcp_receive_own(tcp_in_of(dev, (uint32_t)peer->rank, c), &head,
				body, bytes);
		return DICOMM_SUCCESS;
	}
	if (!try_lock(dev))
		return DICOMM_AGAIN;
	status = put_locked(peer, &head, body, bytes);
	unlock(dev);
	return status;
}

static dicomm_result_t tcp_release(struct tp_peer *peer, enum tp_class c,
				   uint64_t seq)
{
	struct tp_device *dev = peer->dev;
	struct tcp_in *in = peer->in[c];
	struct tcp_out *own;

	if (!in)
		return DICOMM_SUCCESS;
	if (is_self(peer)) {
		in->consumed = seq;
		own = tcp_out_of(dev, (uint32_t)peer->rank, c);
		if (own)
			atomic_store_explicit(&own->released, seq,
					      memory_order_release);
		return DICOMM_SUCCESS;
	}
	lock(dev);
	in->consumed = seq;
	if (!is_aborted(dev)) {
		if (seq - in->granted >= (dev->config.slots + 3) / 4)
			tcp_credits_send(in);
		else if (seq != in->granted)
			tcp_credits_defer(in);
	}
	unlock(dev);
	return DICOMM_SUCCESS;
}

static bool tcp_flush(struct tp_device *dev)
{
	bool all;

	lock(dev);
	if (!is_aborted(dev))
		tcp_credits_send_all(dev);
	all = is_aborted(dev) || !dev->credits_due;
	unlock(dev);
	return all;
}

/* ---- references ---- */

static bool tcp_offer(struct tp_peer *peer, const void *addr, uint64_t len,
		      enum tp_want want, struct tp_ref *ref)
{
	struct tcp_ref r = {.addr = (uintptr_t)addr, .len = len};

	_Static_assert(sizeof(r) <= sizeof(*ref), "must fit");
	(void)want;
	r.seal = tcp_receive_seal(peer->dev, &r);
	memcpy(ref, &r, sizeof(r));
	return true;
}

static dicomm_result_t tcp_map(struct tp_peer *peer, const struct tp_ref *ref,
			       uint64_t len, const void **ptr)
{
	struct tcp_ref r;

	(void)len;
	if (!is_self(peer))
		return DICOMM_ERR_UNSUPPORTED;
	memcpy(&r, ref, sizeof(r));
	*ptr = (const void *)(uintptr_t)r.addr;
	return DICOMM_SUCCESS;
}

/* Lock held. */
static dicomm_result_t request_read(struct tcp_in *in, uint64_t seq,
				    const struct tcp_read_request *request,
				    void *dst)
{
	struct tcp_link *link = in->link;
	struct tp_device *dev = link->dev;
	struct tcp_read *read = &in->reads[seq % TCP_READS];
	struct tcp_head head = {.what = TCP_FRAME_READ,
				.channel_class = in->channel_class,
				.seq = seq,
				.signature = dev->reads + 1};

	if (is_aborted(dev))
		return DICOMM_ERR_ABORTED;
	TRY(tcp_link_status(link));
	if (!link->ready ||
	    atomic_load_explicit(&read->status, memory_order_relaxed) ==
		    DICOMM_IN_PROGRESS)
		return DICOMM_AGAIN;
	TRY(tcp_send_control(link->conn[0], &head, request, sizeof(*request)));
	read->number = ++dev->reads;
	read->dst = dst;
	read->len = read->unclaimed = read->missing = request->len;
	atomic_store_explicit(&read->status, DICOMM_IN_PROGRESS,
			      memory_order_relaxed);
	in->urgent = true;
	return DICOMM_IN_PROGRESS;
}

static dicomm_result_t tcp_read(struct tp_peer *peer, enum tp_class c,
				uint64_t seq, const struct tp_ref *ref,
				uint64_t offset, void *dst, uint64_t len)
{
	struct tcp_read_request request = {.offset = offset, .len = len};
	dicomm_result_t status;

	if (is_aborted(peer->dev))
		return DICOMM_ERR_ABORTED;
	if (!peer->in[c])
		return FAIL(DICOMM_ERR_INTERNAL,
			    "tcp: read from rank %d before connect_in",
			    peer->rank);
	memcpy(&request.ref, ref, sizeof(request.ref));
	if (is_self(peer)) {
		memcpy(dst,
		       (const uint8_t *)(uintptr_t)request.ref.addr + offset,
		       len);
		atomic_store(&peer->in[c]->reads[seq % TCP_READS].status,
			     DICOMM_SUCCESS);
		return DICOMM_SUCCESS;
	}
	if (!try_lock(peer->dev))
		return DICOMM_AGAIN;
	status = request_read(peer->in[c], seq, &request, dst);
	unlock(peer->dev);
	return status;
}

static dicomm_result_t tcp_read_status(struct tp_peer *peer, enum tp_class c,
				       uint64_t seq)
{
	struct tcp_in *in = peer->in[c];
	dicomm_result_t status = (dicomm_result_t)atomic_load_explicit(
		&in->reads[seq % TCP_READS].status, memory_order_acquire);

	if (status == DICOMM_SUCCESS)
		return status;
	if (is_aborted(peer->dev))
		return DICOMM_ERR_ABORTED;
	if (atomic_load(&in->link->status)) {
		lock(peer->dev);
		status = tcp_link_status(in->link);
		unlock(peer->dev);
	} else if (status != DICOMM_IN_PROGRESS) {
		return FAIL(status,
			    "tcp: rank %d did not send what it had offered",
			    peer->rank);
	}
	return status;
}

static dicomm_result_t link_broken(struct tcp_link *link, int *peer)
{
	if (!atomic_load_explicit(&link->status, memory_order_acquire) ||
	    link->peer_closed)
		return DICOMM_SUCCESS;
	/* The close of a peer may arrive a moment later than its end: report
	 * the error at the second look. */
	if (!link->noticed) {
		link->noticed = true;
		return DICOMM_SUCCESS;
	}
	*peer = (int)link->rank;
	return tcp_link_status(link);
}

static dicomm_result_t tcp_broken(struct tp_device *dev, int *peer)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	if (is_aborted(dev) || !try_lock(dev))
		return DICOMM_SUCCESS;
	tcp_watch(dev);
	for (int r = 0; r < dev->config.ranks && status == DICOMM_SUCCESS; r++)
		status = link_broken(&dev->links[r], peer);
	unlock(dev);
	return status;
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
	uint64_t start = clock_ns();
	bool before = atomic_exchange(&dev->aborted, true);

	while (!try_lock(dev)) {
		if (clock_ns() - start > TCP_DRAIN_NS) {
			log_warn("tcp: rank %d: abort: another thread has "
				 "been polling for too long",
				 dev->config.rank);
			return;
		}
		sched_yield();
	}
	atomic_store(&dev->progress.aborted, true);
	for (struct tcp_conn *c = dev->conns; c && !before; c = c->next)
		end_conn(c);
	tcp_socket_stop_listening(dev);
	unlock(dev);
}

static void free_channels(struct tp_device *dev, uint32_t rank)
{
	for (uint32_t id = rank * TP_CLASSES; id < (rank + 1) * TP_CLASSES;
	     id++) {
		struct tcp_in *in = atomic_exchange(&dev->in[id], NULL);
		struct tcp_out *out = atomic_exchange(&dev->out[id], NULL);

		if (in) {
			tcp_credits_cancel(in);
			tcp_receive_free(in);
		}
		free(out);
	}
}

/* Wait until the peers have acknowledged the close. A peer that is alive does
 * so soon: its rank, or its progress thread. */
static void wait_for_quiet(struct tp_device *dev, uint32_t first, uint32_t end)
{
	uint64_t start = clock_ns();
	bool quiet = false;

	while (!quiet && !is_aborted(dev) &&
	       clock_ns() - start < TCP_DRAIN_NS) {
		quiet = true;
		/* No credit may follow the close. */
		tcp_credits_send_all(dev);
		for (uint32_t r = first; r < end; r++) {
			tcp_link_say_close(&dev->links[r]);
			quiet &= tcp_link_is_quiet(&dev->links[r]);
		}
		if (quiet || tcp_progress(dev))
			continue;
		unlock(dev);
		tcp_wait(dev, 500);
		lock(dev);
	}
	if (!quiet && !is_aborted(dev))
		log_warn("tcp: rank %d closes, but not all of its peers have "
			 "acknowledged that",
			 dev->config.rank);
}

/* Lock held. */
static void close_links(struct tp_device *dev, uint32_t first, uint32_t end)
{
	wait_for_quiet(dev, first, end);
	for (uint32_t r = first; r < end; r++) {
		dev->links[r].closed = true;
		if (dev->links[r].ack_due && !is_aborted(dev))
			tcp_link_flush_deferred(dev);
		tcp_link_drop(&dev->links[r]);
		free_channels(dev, r);
	}
	tcp_socket_free_closed(dev);
}

static void tcp_peer_close(struct tp_peer *peer)
{
	struct tp_peer **at;
	struct tp_device *dev;

	if (!peer)
		return;
	dev = peer->dev;
	lock(dev);
	close_links(dev, (uint32_t)peer->rank, (uint32_t)peer->rank + 1);
	unlock(dev);
	at = &dev->peers;
	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	free(peer);
}

static void tcp_close(struct tp_device *dev)
{
	struct tp_peer *peer;

	if (!dev)
		return;
	progress_thread_remove(&dev->progress);
	lock(dev);
	if (dev->links && dev->in && dev->out)
		close_links(dev, 0, (uint32_t)dev->config.ranks);
	while (dev->conns)
		tcp_socket_drop(dev->conns);
	tcp_socket_free_closed(dev);
	tcp_socket_close(dev);
	while ((peer = dev->peers)) {
		dev->peers = peer->next;
		free(peer);
	}
	for (int r = 0; dev->links && r < dev->config.ranks; r++)
		free(dev->links[r].address);
	free(dev->links);
	free((void *)dev->in);
	free((void *)dev->out);
	sodium_memzero(dev, sizeof(*dev));
	free(dev);
}

static uint64_t tcp_memory(const struct tp_device *dev)
{
	uint64_t bytes = sizeof(*dev);
	uint64_t inbox = sizeof(struct tcp_in) +
			 (uint64_t)dev->config.slots * (sizeof(struct tp_line) +
							dev->config.slot_bytes);

	bytes += (uint64_t)dev->config.ranks *
		 (sizeof(*dev->links) + TP_CLASSES * 2 * sizeof(void *));
	bytes += dev->open * (sizeof(struct tcp_conn) +
			      sizeof(struct tcp_head) + dev->config.slot_bytes +
			      TCP_REPLIES * sizeof(struct tcp_reply));
	for (const struct tp_peer *p = dev->peers; p; p = p->next)
		bytes += sizeof(*p) + sizeof(struct tcp_address);
	for (int id = 0; id < dev->config.ranks * TP_CLASSES; id++) {
		bytes += atomic_load(&dev->in[id]) ? inbox : 0;
		bytes +=
			atomic_load(&dev->out[id]) ? sizeof(struct tcp_out) : 0;
	}
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
	.address = tcp_address,
	.close = tcp_close,
	.reaches = tcp_reaches,
	.peer_open = tcp_peer_open,
	.limits = tcp_limits,
	.connect_out = tcp_connect_out,
	.connect_in = tcp_connect_in,
	.peer_close = tcp_peer_close,
	.put = tcp_put,
	.release = tcp_release,
	.flush = tcp_flush,
	.mem_reg = defaults_mem_reg,
	.mem_reg_device = defaults_mem_reg_device,
	.mem_support = defaults_mem_support,
	.mem_dereg = defaults_mem_dereg,
	.offer = tcp_offer,
	.map = tcp_map,
	.read = tcp_read,
	.read_status = tcp_read_status,
	.poll = tcp_poll,
	.wait = tcp_wait,
	.broken = tcp_broken,
	.abort = tcp_abort,
	.memory = tcp_memory,
};
