/* SPDX-License-Identifier: BSD-3-Clause */
/* The UCX transport: its operations. */

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "transports/defaults.h"
#include "transports/terms.h"
#include "transports/ucx/address.h"
#include "transports/ucx/device.h"
#include "transports/ucx/endpoint.h"
#include "transports/ucx/load.h"
#include "transports/ucx/memory.h"
#include "transports/ucx/receive.h"
#include "transports/ucx/worker.h"

/* With so many messages queued for a sender, its credits wait. */
#define QUEUED_MOST (UCX_BOUNCES + 8)
#define CONTROL_BUFFERS 256 /* control messages that wait, of all endpoints */

struct ucx_peer {
	struct tp_peer base;
	struct ucx_address address;
};

/* ---- progress ---- */

/* Progresses the worker, then does what handlers have deferred, and sends
 * credits. Lock held. True: something moved. */
static bool progress(struct tp_device *dev)
{
	bool moved = ucx.ucp_worker_progress(dev->worker) != 0;

	if (dev->base.deferred)
		ucx_receive_deferred(dev);
	framed_credits_progress(&dev->base, moved);
	return moved;
}

static bool ucx_poll(struct tp_device *dev)
{
	bool moved = false;

	progress_thread_polled(&dev->progress);
	if (!framed_try_lock(&dev->base))
		return false;
	if (dev->worker)
		moved = progress(dev);
	framed_unlock(&dev->base);
	return moved;
}

static void ucx_wait(struct tp_device *dev, unsigned us)
{
	struct pollfd fd = {.fd = dev->efd, .events = POLLIN};
	struct timespec t = {.tv_nsec = (long)us * 1000};
	bool idle = false;

	if (framed_try_lock(&dev->base)) {
		if (dev->worker && !dev->base.credits_due &&
		    !dev->base.deferred)
			idle = ucx.ucp_worker_arm(dev->worker) == UCS_OK;
		framed_unlock(&dev->base);
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
	bool moved = false;

	if (!framed_try_lock(&dev->base))
		return PROGRESS_AWAY_MS;
	if (!dev->worker)
		timeout = -1;
	else
		framed_credits_send_all(&dev->base);
	while (timeout == 0 && n++ < PROGRESS_MAX)
		if (progress(dev))
			moved = true;
		else if (ucx.ucp_worker_arm(dev->worker) == UCS_OK)
			timeout = dev->base.credits_due || dev->base.deferred
					  ? PROGRESS_AWAY_MS
					  : -1;
	framed_unlock(&dev->base);
	if (moved)
		doorbell_ring_own();
	return timeout;
}

static doorbell_word *ucx_rest(struct tp_device *dev)
{
	return progress_thread_take_over(&dev->progress) ? &doorbell_own : NULL;
}

/* ---- device ---- */

static dicomm_result_t open_tables(struct tp_device *dev)
{
	dev->control_memory =
		ucx_bounces_make(&dev->control, CONTROL_BUFFERS,
				 sizeof(((struct tp_blob *)0)->data));
	if (!dev->control_memory)
		return FAIL(DICOMM_ERR_NO_MEMORY, "ucx: no memory for %d ranks",
			    dev->base.config.ranks);
	return DICOMM_SUCCESS;
}

static void ucx_close(struct tp_device *dev);

static dicomm_result_t open_parts(struct tp_device *dev,
				  const struct tp_config *config)
{
	char why[256];

	TRY(framed_open(&dev->base, &ucx_ops, config));
	dev->endpoints = (struct ucx_endpoint *)(void *)dev->base.links;
	if (!ucx_load(why, sizeof(why)))
		return FAIL(DICOMM_ERR_NO_PATH, "ucx: %s", why);
	ucx_interface_find(&dev->base.config, &dev->interface);
	TRY(open_tables(dev));
	TRY(ucx_worker_open(dev));
	dev->base.congests = dev->tcp;
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
	status = open_parts(dev, config);
	if (status != DICOMM_SUCCESS) {
		ucx_close(dev);
		return status;
	}
	log_debug("ucx: rank %d uses %s, its address has %" PRIu32 " bytes",
		  config->rank, dev->interface.name, dev->worker_address_len);
	*out = dev;
	return DICOMM_SUCCESS;
}

/* ---- peers ---- */

static bool ucx_reaches(struct tp_device *dev, const struct tp_blob *address,
			char *why, size_t len)
{
	struct ucx_address a;

	return ucx_address_parse(dev, address, &a, why, len) &&
	       framed_link_is_open(&dev->base, a.base.terms.rank, why, len);
}

static dicomm_result_t ucx_peer_open(struct tp_device *dev, int rank,
				     const struct tp_blob *address,
				     struct tp_peer **out)
{
	const struct tp_config *config = &dev->base.config;
	struct ucx_address a;
	struct tp_peer *peer;
	char why[256];

	if (!ucx_address_parse(dev, address, &a, why, sizeof(why)))
		return FAIL(DICOMM_ERR_NO_PATH, "ucx: rank %d: %s", rank, why);
	TRY(terms_check_peer("ucx", config, config->slot_bytes, rank,
			     &a.base.terms));
	peer = framed_peer_make(&dev->base, rank, sizeof(struct ucx_peer));
	if (!peer)
		return FAIL(DICOMM_ERR_NO_MEMORY, "ucx: out of memory");
	((struct ucx_peer *)peer)->address = a;
	*out = peer;
	return DICOMM_SUCCESS;
}

/* ---- what the common operations need; lock held ---- */

/* Send UCX_HELLO, so that the receiver makes its side. */
static dicomm_result_t open_channel(struct tp_peer *peer, enum tp_class c)
{
	struct ucx_head head = {.channel_class = (uint16_t)c};
	struct ucx_endpoint *endpoint = &peer->dev->endpoints[peer->rank];
	struct tp_blob blob;
	dicomm_result_t status;

	ucx_address_make(peer->dev, &blob);
	TRY(ucx_endpoint_open(endpoint, &((struct ucx_peer *)peer)->address));
	if (!endpoint->bounce_memory)
		endpoint->bounce_memory =
			ucx_bounces_make(&endpoint->bounces, UCX_BOUNCES,
					 peer->dev->base.config.slot_bytes);
	if (!endpoint->bounce_memory)
		return FAIL(DICOMM_ERR_NO_MEMORY, "ucx: out of memory");
	status = ucx_endpoint_send(endpoint, UCX_HELLO, &head, blob.data,
				   blob.len);
	return status == DICOMM_ERR_REMOTE ? framed_link_status(&endpoint->base)
					   : status;
}

static dicomm_result_t send_message(struct tp_peer *peer,
				    const struct framed_message *m)
{
	struct ucx_endpoint *endpoint = &peer->dev->endpoints[peer->rank];
	struct ucx_head head = {.channel_class = m->channel_class,
				.kind = m->kind,
				.seq = m->seq,
				.len = m->len,
				.signature = m->signature};
	dicomm_result_t status = ucx_endpoint_send(endpoint, UCX_MESSAGE, &head,
						   m->body, m->bytes);

	return status == DICOMM_ERR_REMOTE ? framed_link_status(&endpoint->base)
					   : status;
}

static dicomm_result_t send_credit(struct framed_in *in)
{
	struct tp_device *dev = framed_device(in->framed);
	struct ucx_endpoint *endpoint = &dev->endpoints[in->rank];
	struct ucx_head head = {.channel_class = in->channel_class,
				.seq = in->consumed};

	if (!endpoint->ep || endpoint->base.peer_closed || endpoint->close_sent)
		return DICOMM_ERR_REMOTE;
	/* A later credit says more. */
	if (endpoint->queued >= QUEUED_MOST)
		return DICOMM_AGAIN;
	return ucx_endpoint_send(endpoint, UCX_CREDIT, &head, NULL, 0);
}

static dicomm_result_t send_read(struct framed_in *in, uint64_t seq,
				 struct framed_read *read, uint32_t number,
				 const struct tp_ref *ref, uint64_t offset)
{
	struct tp_device *dev = framed_device(in->framed);
	struct ucx_endpoint *endpoint = &dev->endpoints[in->rank];
	struct ucx_read_request request = {.offset = offset, .len = read->len};
	ucs_memory_type_t type =
		ucx_memory_type(dev, (uintptr_t)read->dst, read->len);
	struct ucx_head head = {.channel_class = in->channel_class,
				.kind = type == UCS_MEMORY_TYPE_HOST
						? UCX_READ_ANYHOW
						: UCX_READ_RENDEZVOUS,
				.seq = seq,
				.signature = number};
	dicomm_result_t status;

	if (!endpoint->ep)
		return DICOMM_AGAIN;
	memcpy(&request.ref, ref, sizeof(request.ref));
	read->memory_type = (int)type;
	status = ucx_endpoint_send(endpoint, UCX_READ, &head, &request,
				   sizeof(request));
	return status == DICOMM_ERR_REMOTE ? framed_link_status(&endpoint->base)
					   : status;
}

static bool ucx_offer(struct tp_peer *peer, const void *addr, uint64_t len,
		      enum tp_want want, struct tp_ref *ref)
{
	struct tp_device *dev = peer->dev;
	struct ucx_ref r = {.addr = (uintptr_t)addr, .len = len};

	_Static_assert(sizeof(r) <= sizeof(*ref), "must fit");
	(void)want;
	framed_lock(&dev->base);
	r.type = ucx_memory_type(dev, r.addr, len);
	framed_unlock(&dev->base);
	r.seal = ucx_ref_seal(dev, &r);
	memcpy(ref, &r, sizeof(r));
	return true;
}

/* ---- ends ---- */

static void ucx_abort(struct tp_device *dev)
{
	atomic_store(&dev->base.aborted, true);
	atomic_store(&dev->progress.aborted, true);
	if (!framed_lock_to_abort(&dev->base))
		return;
	if (dev->worker)
		ucx_worker_stop(dev);
	framed_unlock(&dev->base);
}

static bool has_credits_due(const struct tp_device *dev, uint32_t rank)
{
	for (const struct framed_in *in = dev->base.credits_due; in;
	     in = in->credits_due)
		if (in->rank == rank)
			return true;
	return false;
}

static bool is_receiving(const struct tp_device *dev, uint32_t rank)
{
	for (uint16_t c = 0; c < TP_CLASSES; c++) {
		const struct framed_in *in = framed_in_of(&dev->base, rank, c);

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

	while (!quiet && dev->worker && clock_ns() - start < FRAMED_DRAIN_NS) {
		quiet = true;
		/* No credit may follow the close. */
		framed_credits_send_all(&dev->base);
		for (uint32_t r = first; r < end; r++) {
			if (!has_credits_due(dev, r))
				ucx_endpoint_say_close(&dev->endpoints[r]);
			quiet &= ucx_endpoint_is_quiet(&dev->endpoints[r]) &&
				 !is_receiving(dev, r);
		}
		if (quiet || progress(dev))
			continue;
		framed_unlock(&dev->base);
		sched_yield();
		framed_lock(&dev->base);
	}
	if (!quiet && dev->worker)
		log_warn("ucx: rank %d closes, but not all of its peers have "
			 "acknowledged that",
			 dev->base.config.rank);
}

/* Lock held. */
static void close_endpoints(struct tp_device *dev, uint32_t first, uint32_t end)
{
	wait_for_quiet(dev, first, end);
	if (dev->worker && dev->base.deferred)
		ucx_receive_deferred(dev);
	if (dev->worker)
		ucx_worker_close_endpoints(dev, first, end);
	for (uint32_t r = first; r < end; r++) {
		dev->endpoints[r].closed = true;
		free(dev->endpoints[r].hello);
		dev->endpoints[r].hello = NULL;
		framed_free_channels(&dev->base, r);
	}
}

const struct framed_ops ucx_ops = {
	.name = "ucx",
	.magic = 0x58435544u, /* "DUCX" */
	.version = 3,
	.ref_bytes = sizeof(struct ucx_ref),
	.link_bytes = sizeof(struct ucx_endpoint),
	.open_channel = open_channel,
	.send_message = send_message,
	.send_credit = send_credit,
	.send_read = send_read,
	.close_links = close_endpoints,
};
_Static_assert(offsetof(struct tp_device, base) == 0 &&
		       offsetof(struct ucx_endpoint, base) == 0,
	       "see framed_of(), framed_link_of()");

static void ucx_close(struct tp_device *dev)
{
	struct ucx_reply *reply;

	if (!dev)
		return;
	progress_thread_remove(&dev->progress);
	framed_lock(&dev->base);
	if (dev->worker)
		close_endpoints(dev, 0, (uint32_t)dev->base.config.ranks);
	ucx_worker_end(dev);
	while ((reply = dev->all_replies)) {
		dev->all_replies = reply->more;
		free(reply);
	}
	for (int r = 0; dev->endpoints && r < dev->base.config.ranks; r++) {
		free(dev->endpoints[r].hello);
		free(dev->endpoints[r].bounce_memory);
	}
	free(dev->control_memory);
	framed_close(&dev->base);
	free(dev);
}

static uint64_t ucx_memory(const struct tp_device *dev)
{
	uint64_t bounces =
		UCX_BOUNCES * (sizeof(struct ucx_bounce) +
			       (uint64_t)dev->base.config.slot_bytes);
	uint64_t bytes = sizeof(*dev) + framed_memory(&dev->base);

	bytes += CONTROL_BUFFERS * (sizeof(struct ucx_bounce) +
				    sizeof(((struct tp_blob *)0)->data));
	for (int r = 0; r < dev->base.config.ranks; r++)
		bytes += dev->endpoints[r].bounce_memory ? bounces : 0;
	for (const struct tp_peer *p = dev->base.peers; p; p = p->next)
		bytes += sizeof(struct ucx_peer);
	return bytes;
}

const struct transport transport_ucx = {
	.name = "ucx",
	.by_name = true,
	.slots = 64,
	.slot_bytes = 65536,
	.wait_wakes = true,
	.slow_poll = true,
	.usable = ucx_load,
	.open = ucx_open,
	.address = ucx_address_make,
	.close = ucx_close,
	.reaches = ucx_reaches,
	.peer_open = ucx_peer_open,
	.limits = framed_limits,
	.connect_out = framed_connect_out,
	.connect_in = framed_connect_in,
	.peer_close = framed_peer_close,
	.put = framed_put,
	.release = framed_release,
	.flush = framed_flush,
	/* UCX registers host memory itself where its network needs that. */
	.mem_reg = defaults_mem_reg,
	.mem_reg_device = ucx_mem_reg_device,
	.mem_support = defaults_mem_support,
	.mem_dereg = ucx_mem_dereg,
	.offer = ucx_offer,
	.map = framed_read_map,
	.read = framed_read_begin,
	.read_status = framed_read_status,
	.poll = ucx_poll,
	.wait = ucx_wait,
	.rest = ucx_rest,
	.broken = framed_link_broken,
	.abort = ucx_abort,
	.memory = ucx_memory,
};
