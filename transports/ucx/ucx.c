/* SPDX-License-Identifier: BSD-3-Clause */
/* The UCX transport: its operations. */

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "transports/defaults.h"
#include "transports/terms.h"
#include "transports/ucx/address.h"
#include "transports/ucx/credits.h"
#include "transports/ucx/device.h"
#include "transports/ucx/endpoint.h"
#include "transports/ucx/load.h"
#include "transports/ucx/memory.h"
#include "transports/ucx/progress.h"
#include "transports/ucx/receive.h"
#include "transports/ucx/worker.h"

#define CONTROL_BUFFERS 256 /* control messages that wait, of all endpoints */

struct tp_peer {
	struct tp_device *dev;
	struct ucx_endpoint *endpoint;
	int rank;
	struct ucx_address address;
	struct ucx_in *in[TP_CLASSES];
	struct ucx_out *out[TP_CLASSES];
	struct tp_peer *next;
};

/* ---- progress ---- */

static bool ucx_poll(struct tp_device *dev)
{
	bool moved = false;

	progress_thread_polled(&dev->progress);
	if (!ucx_try_lock(dev))
		return false;
	if (dev->worker)
		moved = ucx_progress(dev);
	ucx_unlock(dev);
	return moved;
}

static void ucx_wait(struct tp_device *dev, unsigned us)
{
	struct pollfd fd = {.fd = dev->efd, .events = POLLIN};
	struct timespec t = {.tv_nsec = (long)us * 1000};
	bool idle = false;

	if (ucx_try_lock(dev)) {
		if (dev->worker && !dev->credits_due && !dev->deferred)
			idle = ucx.ucp_worker_arm(dev->worker) == UCS_OK;
		ucx_unlock(dev);
	}
	if (idle)
		ppoll(&fd, 1, &t, NULL);
	else
		sched_yield();
}

/* For the progress thread */
static int poll_away(struct tp_device *dev)
{
	int timeout = 0, n = 0;

	if (!ucx_try_lock(dev))
		return PROGRESS_AWAY_MS;
	if (!dev->worker)
		timeout = -1;
	else
		ucx_credits_send_all(dev);
	while (timeout == 0 && n++ < PROGRESS_MAX)
		if (!ucx_progress(dev) &&
		    ucx.ucp_worker_arm(dev->worker) == UCS_OK)
			timeout = dev->credits_due || dev->deferred
					  ? PROGRESS_AWAY_MS
					  : -1;
	ucx_unlock(dev);
	return timeout;
}

/* ---- device ---- */

static bool ucx_usable(char *why, size_t len)
{
	return ucx_load(why, len);
}

static dicomm_result_t open_tables(struct tp_device *dev)
{
	size_t ranks = (size_t)dev->config.ranks;

	dev->endpoints = calloc(ranks, sizeof(*dev->endpoints));
	dev->in = calloc(ranks * TP_CLASSES, sizeof(*dev->in));
	dev->out = calloc(ranks * TP_CLASSES, sizeof(*dev->out));
	dev->control_memory =
		ucx_bounces_make(&dev->control, CONTROL_BUFFERS,
				 sizeof(((struct tp_blob *)0)->data));
	if (!dev->endpoints || !dev->in || !dev->out || !dev->control_memory)
		return FAIL(DICOMM_ERR_NO_MEMORY, "ucx: no memory for %d ranks",
			    dev->config.ranks);
	for (size_t r = 0; r < ranks; r++) {
		dev->endpoints[r].dev = dev;
		dev->endpoints[r].rank = (uint32_t)r;
	}
	return DICOMM_SUCCESS;
}

static void ucx_close(struct tp_device *dev);

static dicomm_result_t open_parts(struct tp_device *dev)
{
	char why[256];

	if (sodium_init() < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "ucx: libsodium: cannot start");
	if (!ucx_load(why, sizeof(why)))
		return FAIL(DICOMM_ERR_NO_PATH, "ucx: %s", why);
	randombytes_buf(&dev->token, sizeof(dev->token));
	randombytes_buf(dev->seal_key, sizeof(dev->seal_key));
	dev->network = ucx_network();
	ucx_interface_find(&dev->config, &dev->interface);
	TRY(open_tables(dev));
	TRY(ucx_worker_open(dev));
	dev->progress.poll = poll_away;
	dev->progress.dev = dev;
	dev->progress.fd = dev->efd;
	return progress_thread_add(&dev->progress);
}

static dicomm_result_t ucx_open(const struct tp_config *config,
				struct tp_device **out)
{
	struct tp_device *dev;
	dicomm_result_t status;

	TRY(terms_check_config("ucx", config));
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return FAIL(DICOMM_ERR_NO_MEMORY, "ucx: out of memory");
	dev->config = *config;
	atomic_flag_clear(&dev->busy);
	status = open_parts(dev);
	if (status != DICOMM_SUCCESS) {
		ucx_close(dev);
		return status;
	}
	log_debug("ucx: rank %d uses %s, its address has %" PRIu32 " bytes",
		  config->rank, dev->interface.name, dev->worker_address_len);
	*out = dev;
	return DICOMM_SUCCESS;
}

static void ucx_address(const struct tp_device *dev, struct tp_blob *address)
{
	ucx_address_make(dev, address);
}

/* ---- peers ---- */

static bool ucx_reaches(struct tp_device *dev, const struct tp_blob *address,
			char *why, size_t len)
{
	struct ucx_address a;

	if (!ucx_address_parse(dev, address, &a, why, len))
		return false;
	if (a.rank >= (uint32_t)dev->config.ranks)
		return true;
	if (atomic_load(&dev->endpoints[a.rank].peer_closed)) {
		snprintf(why, len, "it has closed its side");
		return false;
	}
	if (atomic_load(&dev->endpoints[a.rank].status)) {
		snprintf(why, len, "the connection to it has broken");
		return false;
	}
	return true;
}

static dicomm_result_t ucx_peer_open(struct tp_device *dev, int rank,
				     const struct tp_blob *address,
				     struct tp_peer **out)
{
	const struct tp_config *config = &dev->config;
	struct ucx_address a;
	struct tp_peer *peer;
	char why[256];

	if (!ucx_address_parse(dev, address, &a, why, sizeof(why)))
		return FAIL(DICOMM_ERR_NO_PATH, "ucx: rank %d: %s", rank, why);
	TRY(terms_check_peer(
		"ucx", config, config->slot_bytes, rank,
		&(struct terms){a.rank, a.ranks, a.slots, a.slot_bytes}));
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return FAIL(DICOMM_ERR_NO_MEMORY, "ucx: out of memory");
	peer->dev = dev;
	peer->rank = rank;
	peer->endpoint = &dev->endpoints[rank];
	peer->address = a;
	peer->next = dev->peers;
	dev->peers = peer;
	*out = peer;
	return DICOMM_SUCCESS;
}

static void ucx_limits(const struct tp_peer *peer, struct tp_limits *limits)
{
	const struct tp_config *config = &peer->dev->config;

	/* Credits are sent at every quarter of the slots; see release().
	 * Over TCP, the request for a reference queues up behind the data
	 * that this rank sends. When all ranks send to all others, that
	 * doubled the time. */
	*limits = (struct tp_limits){.eager_bytes = config->slot_bytes,
				     .slots = config->slots,
				     .window = config->slots / 2 + 1,
				     .spin = 1,
				     .prefers_eager = peer->dev->tcp,
				     .congests = peer->dev->tcp};
}

/* To itself a rank needs no network. */
static bool is_self(const struct tp_peer *peer)
{
	return peer->rank == peer->dev->config.rank;
}

/* Send UCX_HELLO, so that the receiver makes its side. Lock held. */
static dicomm_result_t say_hello(struct tp_peer *peer, enum tp_class c)
{
	struct ucx_head head = {.channel_class = (uint16_t)c};
	struct tp_blob blob;
	dicomm_result_t status;

	if (is_self(peer))
		return ucx_in_of(peer->dev, (uint32_t)peer->rank,
				 (uint16_t)c) ||
				       ucx_inbox_make(peer->endpoint,
						      (uint16_t)c)
			       ? DICOMM_SUCCESS
			       : FAIL(DICOMM_ERR_NO_MEMORY,
				      "ucx: out of memory");
	ucx_address_make(peer->dev, &blob);
	TRY(ucx_endpoint_open(peer->endpoint, &peer->address));
	if (!peer->endpoint->bounce_memory)
		peer->endpoint->bounce_memory =
			ucx_bounces_make(&peer->endpoint->bounces, UCX_BOUNCES,
					 peer->dev->config.slot_bytes);
	if (!peer->endpoint->bounce_memory)
		return FAIL(DICOMM_ERR_NO_MEMORY, "ucx: out of memory");
	status = ucx_endpoint_send(peer->endpoint, UCX_HELLO, &head, blob.data,
				   blob.len);
	return status == DICOMM_ERR_REMOTE ? ucx_endpoint_status(peer->endpoint)
					   : status;
}

static dicomm_result_t ucx_connect_out(struct tp_peer *peer, enum tp_class c,
				       struct tp_outbox *outbox)
{
	struct tp_device *dev = peer->dev;
	struct ucx_out *out = peer->out[c];
	dicomm_result_t status;

	if (out) {
		outbox->released = &out->released;
		return atomic_load(&dev->aborted) ? DICOMM_ERR_ABORTED
						  : DICOMM_SUCCESS;
	}
	out = calloc(1, sizeof(*out));
	if (!out)
		return FAIL(DICOMM_ERR_NO_MEMORY, "ucx: out of memory");
	out->limit = dev->config.slots;
	ucx_lock(dev);
	status = dev->worker ? say_hello(peer, c) : DICOMM_ERR_ABORTED;
	if (status == DICOMM_SUCCESS) {
		atomic_store_explicit(
			&dev->out[(uint32_t)peer->rank * TP_CLASSES + c], out,
			memory_order_release);
		peer->out[c] = out;
		outbox->released = &out->released;
	}
	ucx_unlock(dev);
	if (status != DICOMM_SUCCESS)
		free(out);
	return status;
}

static dicomm_result_t ucx_connect_in(struct tp_peer *peer, enum tp_class c,
				      struct tp_inbox *inbox)
{
	struct tp_device *dev = peer->dev;
	struct ucx_in *in = ucx_in_of(dev, (uint32_t)peer->rank, (uint16_t)c);

	if (atomic_load(&dev->aborted))
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

static dicomm_result_t put_locked(struct tp_peer *peer, struct ucx_head *head,
				  const void *body, uint64_t bytes)
{
	struct ucx_endpoint *endpoint = peer->endpoint;
	dicomm_result_t status;

	if (!endpoint->dev->worker)
		return DICOMM_ERR_ABORTED;
	if (__builtin_expect(endpoint->peer_closed, 0))
		return ucx_endpoint_status(endpoint);
	status = ucx_endpoint_send(endpoint, UCX_MESSAGE, head, body, bytes);
	return status == DICOMM_ERR_REMOTE ? ucx_endpoint_status(endpoint)
					   : status;
}

static dicomm_result_t ucx_put(struct tp_peer *peer, enum tp_class c,
			       uint64_t seq, uint32_t signature,
			       enum tp_kind kind, const void *body,
			       uint64_t len)
{
	struct tp_device *dev = peer->dev;
	struct ucx_out *out = peer->out[c];
	uint64_t bytes = kind == TP_REF ? sizeof(struct ucx_ref) : len;
	struct ucx_head head = {.channel_class = (uint16_t)c,
				.kind = (uint16_t)kind,
				.seq = seq,
				.len = len,
				.signature = signature};
	dicomm_result_t status;

	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (__builtin_expect(!out, 0))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "ucx: put to rank %d before connect_out",
			    peer->rank);
	if (__builtin_expect(bytes > dev->config.slot_bytes, 0))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "ucx: put of %" PRIu64 " bytes into a slot of %u",
			    len, dev->config.slot_bytes);
	if (seq > out->limit) {
		out->limit = atomic_load_explicit(&out->released,
						  memory_order_acquire) +
			     dev->config.slots;
		if (seq > out->limit)
			return DICOMM_AGAIN;
	}
	if (is_self(peer)) {
		ucx_inbox_deliver(
			ucx_in_of(dev, (uint32_t)peer->rank, (uint16_t)c),
			&head, body, bytes);
		return DICOMM_SUCCESS;
	}
	if (!ucx_try_lock(dev))
		return DICOMM_AGAIN;
	status = put_locked(peer, &head, body, bytes);
	ucx_unlock(dev);
	return status;
}

static dicomm_result_t ucx_release(struct tp_peer *peer, enum tp_class c,
				   uint64_t seq)
{
	struct tp_device *dev = peer->dev;
	struct ucx_in *in = peer->in[c];
	struct ucx_out *own;

	if (!in)
		return DICOMM_SUCCESS;
	if (is_self(peer)) {
		in->consumed = seq;
		own = ucx_out_of(dev, (uint32_t)peer->rank, (uint16_t)c);
		if (own)
			atomic_store_explicit(&own->released, seq,
					      memory_order_release);
		return DICOMM_SUCCESS;
	}
	ucx_lock(dev);
	in->consumed = seq;
	if (dev->worker) {
		if (seq - in->granted >= (dev->config.slots + 3) / 4)
			ucx_credits_send(in);
		else if (seq != in->granted)
			ucx_credits_defer(in);
	}
	ucx_unlock(dev);
	return DICOMM_SUCCESS;
}

static bool ucx_flush(struct tp_device *dev)
{
	bool all;

	ucx_lock(dev);
	if (dev->worker)
		ucx_credits_send_all(dev);
	all = !dev->worker || !dev->credits_due;
	ucx_unlock(dev);
	return all;
}

/* ---- references ---- */

static bool ucx_offer(struct tp_peer *peer, const void *addr, uint64_t len,
		      enum tp_want want, struct tp_ref *ref)
{
	struct ucx_ref r = {.addr = (uintptr_t)addr, .len = len};

	_Static_assert(sizeof(r) <= sizeof(*ref), "must fit");
	(void)want;
	ucx_lock(peer->dev);
	r.type = ucx_memory_type(peer->dev, r.addr, len);
	ucx_unlock(peer->dev);
	r.seal = ucx_ref_seal(peer->dev, &r);
	memcpy(ref, &r, sizeof(r));
	return true;
}

static dicomm_result_t ucx_map(struct tp_peer *peer, const struct tp_ref *ref,
			       uint64_t len, const void **ptr)
{
	struct ucx_ref r;

	(void)len;
	if (!is_self(peer))
		return DICOMM_ERR_UNSUPPORTED;
	memcpy(&r, ref, sizeof(r));
	*ptr = (const void *)(uintptr_t)r.addr;
	return DICOMM_SUCCESS;
}

static dicomm_result_t request_read(struct ucx_in *in, enum tp_class c,
				    uint64_t seq,
				    const struct ucx_read_request *request,
				    void *dst)
{
	struct tp_device *dev = in->endpoint->dev;
	struct ucx_read *read = &in->reads[seq % UCX_READS];
	ucs_memory_type_t type =
		ucx_memory_type(dev, (uintptr_t)dst, request->len);
	struct ucx_head head = {.channel_class = (uint16_t)c,
				.kind = type == UCS_MEMORY_TYPE_HOST
						? UCX_READ_ANYHOW
						: UCX_READ_RENDEZVOUS,
				.seq = seq,
				.signature = dev->reads + 1};
	dicomm_result_t status;

	if (!dev->worker)
		return DICOMM_ERR_ABORTED;
	if (in->endpoint->peer_closed || atomic_load(&in->endpoint->status))
		return ucx_endpoint_status(in->endpoint);
	if (!in->endpoint->ep ||
	    atomic_load_explicit(&read->status, memory_order_relaxed) ==
		    DICOMM_IN_PROGRESS)
		return DICOMM_AGAIN;
	status = ucx_endpoint_send(in->endpoint, UCX_READ, &head, request,
				   sizeof(*request));
	if (status != DICOMM_SUCCESS)
		return status == DICOMM_ERR_REMOTE
			       ? ucx_endpoint_status(in->endpoint)
			       : status;
	read->number = ++dev->reads;
	read->dst = dst;
	read->type = type;
	read->len = read->unclaimed = read->missing = request->len;
	atomic_store_explicit(&read->status, DICOMM_IN_PROGRESS,
			      memory_order_relaxed);
	in->urgent = true;
	return DICOMM_IN_PROGRESS;
}

static dicomm_result_t ucx_read(struct tp_peer *peer, enum tp_class c,
				uint64_t seq, const struct tp_ref *ref,
				uint64_t offset, void *dst, uint64_t len)
{
	struct ucx_read_request request = {.offset = offset, .len = len};
	dicomm_result_t status;

	if (atomic_load_explicit(&peer->dev->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (!peer->in[c])
		return FAIL(DICOMM_ERR_INTERNAL,
			    "ucx: read from rank %d before connect_in",
			    peer->rank);
	memcpy(&request.ref, ref, sizeof(request.ref));
	if (is_self(peer)) {
		memcpy(dst,
		       (const uint8_t *)(uintptr_t)request.ref.addr + offset,
		       len);
		atomic_store(&peer->in[c]->reads[seq % UCX_READS].status,
			     DICOMM_SUCCESS);
		return DICOMM_SUCCESS;
	}
	if (!ucx_try_lock(peer->dev))
		return DICOMM_AGAIN;
	status = request_read(peer->in[c], c, seq, &request, dst);
	ucx_unlock(peer->dev);
	return status;
}

static dicomm_result_t ucx_read_status(struct tp_peer *peer, enum tp_class c,
				       uint64_t seq)
{
	struct ucx_in *in = peer->in[c];
	dicomm_result_t status = (dicomm_result_t)atomic_load_explicit(
		&in->reads[seq % UCX_READS].status, memory_order_acquire);

	if (status == DICOMM_SUCCESS)
		return status;
	if (atomic_load_explicit(&peer->dev->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (atomic_load(&in->endpoint->status)) {
		ucx_lock(peer->dev);
		status = ucx_endpoint_status(in->endpoint);
		ucx_unlock(peer->dev);
	} else if (status != DICOMM_IN_PROGRESS) {
		return FAIL(status,
			    "ucx: rank %d did not send what it had offered",
			    peer->rank);
	}
	return status;
}

static dicomm_result_t endpoint_broken(struct ucx_endpoint *endpoint, int *peer)
{
	if (!atomic_load_explicit(&endpoint->status, memory_order_acquire) ||
	    endpoint->peer_closed)
		return DICOMM_SUCCESS;
	/* The close of a peer may arrive a moment later than its end: report
	 * the error at the second look. */
	if (!endpoint->noticed) {
		endpoint->noticed = true;
		return DICOMM_SUCCESS;
	}
	*peer = (int)endpoint->rank;
	return ucx_endpoint_status(endpoint);
}

static dicomm_result_t ucx_broken(struct tp_device *dev, int *peer)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	if (atomic_load(&dev->aborted) || !ucx_try_lock(dev))
		return DICOMM_SUCCESS;
	for (int r = 0; r < dev->config.ranks && status == DICOMM_SUCCESS; r++)
		status = endpoint_broken(&dev->endpoints[r], peer);
	ucx_unlock(dev);
	return status;
}

/* ---- ends ---- */

static void ucx_abort(struct tp_device *dev)
{
	uint64_t start = clock_ns();

	atomic_store(&dev->aborted, true);
	atomic_store(&dev->progress.aborted, true);
	while (!ucx_try_lock(dev)) {
		if (clock_ns() - start > UCX_DRAIN_NS) {
			log_warn("ucx: rank %d: abort: another thread has "
				 "been polling for too long",
				 dev->config.rank);
			return;
		}
		sched_yield();
	}
	if (dev->worker)
		ucx_worker_stop(dev);
	ucx_unlock(dev);
}

static void free_channels(struct tp_device *dev, uint32_t rank)
{
	for (uint32_t id = rank * TP_CLASSES; id < (rank + 1) * TP_CLASSES;
	     id++) {
		struct ucx_in *in = atomic_exchange(&dev->in[id], NULL);
		struct ucx_out *out = atomic_exchange(&dev->out[id], NULL);

		if (in) {
			ucx_credits_cancel(in);
			ucx_inbox_free(in);
		}
		free(out);
	}
}

static bool has_credits_due(const struct tp_device *dev, uint32_t rank)
{
	for (const struct ucx_in *in = dev->credits_due; in;
	     in = in->credits_due)
		if (in->endpoint->rank == rank)
			return true;
	return false;
}

static bool is_receiving(const struct tp_device *dev, uint32_t rank)
{
	for (uint16_t c = 0; c < TP_CLASSES; c++) {
		const struct ucx_in *in = ucx_in_of(dev, rank, c);

		if (in && in->receiving)
			return true;
	}
	return false;
}

/* Wait until the peers have acknowledged the close. A peer that is alive does
 * so soon: its rank, or its progress thread. */
static void wait_for_quiet(struct tp_device *dev, uint32_t first, uint32_t end)
{
	uint64_t start = clock_ns();
	bool quiet = false;

	while (!quiet && dev->worker && clock_ns() - start < UCX_DRAIN_NS) {
		quiet = true;
		/* No credit may follow the close. */
		ucx_credits_send_all(dev);
		for (uint32_t r = first; r < end; r++) {
			if (!has_credits_due(dev, r))
				ucx_endpoint_say_close(&dev->endpoints[r]);
			quiet &= ucx_endpoint_is_quiet(&dev->endpoints[r]) &&
				 !is_receiving(dev, r);
		}
		if (quiet || ucx_progress(dev))
			continue;
		ucx_unlock(dev);
		sched_yield();
		ucx_lock(dev);
	}
	if (!quiet && dev->worker)
		log_warn("ucx: rank %d closes, but not all of its peers have "
			 "acknowledged that",
			 dev->config.rank);
}

/* Lock held. */
static void close_endpoints(struct tp_device *dev, uint32_t first, uint32_t end)
{
	wait_for_quiet(dev, first, end);
	if (dev->worker && dev->deferred)
		ucx_receive_deferred(dev);
	if (dev->worker)
		ucx_worker_close_endpoints(dev, first, end);
	for (uint32_t r = first; r < end; r++) {
		dev->endpoints[r].closed = true;
		free(dev->endpoints[r].hello);
		dev->endpoints[r].hello = NULL;
		free_channels(dev, r);
	}
}

static void ucx_peer_close(struct tp_peer *peer)
{
	struct tp_peer **at;
	struct tp_device *dev;

	if (!peer)
		return;
	dev = peer->dev;
	ucx_lock(dev);
	close_endpoints(dev, (uint32_t)peer->rank, (uint32_t)peer->rank + 1);
	ucx_unlock(dev);
	at = &dev->peers;
	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	free(peer);
}

static void ucx_close(struct tp_device *dev)
{
	struct ucx_reply *reply;
	struct tp_peer *peer;

	if (!dev)
		return;
	progress_thread_remove(&dev->progress);
	ucx_lock(dev);
	if (dev->worker)
		close_endpoints(dev, 0, (uint32_t)dev->config.ranks);
	ucx_worker_end(dev);
	for (int r = 0; dev->in && dev->out && r < dev->config.ranks; r++)
		free_channels(dev, (uint32_t)r);
	while ((peer = dev->peers)) {
		dev->peers = peer->next;
		free(peer);
	}
	while ((reply = dev->all_replies)) {
		dev->all_replies = reply->more;
		free(reply);
	}
	for (int r = 0; dev->endpoints && r < dev->config.ranks; r++) {
		free(dev->endpoints[r].hello);
		free(dev->endpoints[r].bounce_memory);
	}
	free(dev->control_memory);
	free(dev->endpoints);
	free((void *)dev->in);
	free((void *)dev->out);
	free(dev);
}

static uint64_t ucx_memory(const struct tp_device *dev)
{
	uint64_t bounces = UCX_BOUNCES * (sizeof(struct ucx_bounce) +
					  (uint64_t)dev->config.slot_bytes);
	uint64_t bytes = sizeof(*dev);
	uint64_t inbox = sizeof(struct ucx_in) +
			 (uint64_t)dev->config.slots * (sizeof(struct tp_line) +
							dev->config.slot_bytes);

	bytes += (uint64_t)dev->config.ranks *
		 (sizeof(*dev->endpoints) + TP_CLASSES * 2 * sizeof(void *));
	bytes += CONTROL_BUFFERS * (sizeof(struct ucx_bounce) +
				    sizeof(((struct tp_blob *)0)->data));
	for (int r = 0; r < dev->config.ranks; r++)
		bytes += dev->endpoints[r].bounce_memory ? bounces : 0;
	for (const struct tp_peer *p = dev->peers; p; p = p->next)
		bytes += sizeof(*p);
	for (int id = 0; id < dev->config.ranks * TP_CLASSES; id++) {
		bytes += atomic_load(&dev->in[id]) ? inbox : 0;
		bytes +=
			atomic_load(&dev->out[id]) ? sizeof(struct ucx_out) : 0;
	}
	return bytes;
}

const struct transport transport_ucx = {
	.name = "ucx",
	.by_name = true,
	.slots = 64,
	.slot_bytes = 65536,
	.wait_wakes = true,
	.slow_poll = true,
	.usable = ucx_usable,
	.open = ucx_open,
	.address = ucx_address,
	.close = ucx_close,
	.reaches = ucx_reaches,
	.peer_open = ucx_peer_open,
	.limits = ucx_limits,
	.connect_out = ucx_connect_out,
	.connect_in = ucx_connect_in,
	.peer_close = ucx_peer_close,
	.put = ucx_put,
	.release = ucx_release,
	.flush = ucx_flush,
	/* UCX registers host memory itself where its network needs that. */
	.mem_reg = defaults_mem_reg,
	.mem_reg_device = ucx_mem_reg_device,
	.mem_support = defaults_mem_support,
	.mem_dereg = ucx_mem_dereg,
	.offer = ucx_offer,
	.map = ucx_map,
	.read = ucx_read,
	.read_status = ucx_read_status,
	.poll = ucx_poll,
	.wait = ucx_wait,
	.broken = ucx_broken,
	.abort = ucx_abort,
	.memory = ucx_memory,
};
