/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations of the verbs transport. README.md shows how its parts
 * work together. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "transports/terms.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/loopback.h"
#include "transports/verbs/channel/open.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/connection/conn.h"
#include "transports/verbs/connection/exchange.h"
#include "transports/verbs/connection/server.h"
#include "transports/verbs/message/bounce.h"
#include "transports/verbs/message/completion.h"
#include "transports/verbs/message/credits.h"
#include "transports/verbs/message/failover.h"
#include "transports/verbs/message/memory.h"
#include "transports/verbs/message/poll.h"
#include "transports/verbs/message/post.h"
#include "transports/verbs/message/put.h"
#include "transports/verbs/message/read.h"
#include "transports/verbs/message/watchdog.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/ports.h"
#include "transports/verbs/nic/registration.h"

/* How long close and abort wait for requests in flight, in nanoseconds. */
#define DRAIN_NS UINT64_C(2000000000)
/* Latency of a few bytes between two NICs of today. Switches add to it. */
#define LATENCY_PS 2000000
/* How long close waits for the kernel. */
#define KERNEL_MS 500

/* ---- device ---- */

static dicomm_result_t open_credit_words(struct tp_device *dev)
{
	dev->words = aligned_alloc(sizeof(*dev->words),
				   (dev->channels + 1) * sizeof(*dev->words));
	dev->in = calloc(dev->channels, sizeof(*dev->in));
	dev->out = calloc(dev->channels, sizeof(*dev->out));
	if (!dev->words || !dev->in || !dev->out)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "verbs: no memory for %d ranks", dev->config.ranks);
	return DICOMM_SUCCESS;
}

static void verbs_close(struct tp_device *dev);

static dicomm_result_t open_parts(struct tp_device *dev)
{
	struct verbs_nic *nics[VERBS_RAILS];
	dicomm_result_t status = DICOMM_SUCCESS;
	unsigned n;

	TRY(open_credit_words(dev));
	TRY(verbs_nics_get((unsigned)dev->config.rank, &dev->config.place, nics,
			   &n));
	for (unsigned i = 0; i < n; i++) {
		/* From now on verbs_rail_close() puts the NIC. */
		dev->rail[i].nic = nics[i];
		dev->rails++;
		if (!i || nics[i]->port_attr.max_msg_sz < dev->max_read)
			dev->max_read = nics[i]->port_attr.max_msg_sz;
	}
	for (unsigned i = 0; i < n && status == DICOMM_SUCCESS; i++)
		status = verbs_rail_open(dev, &dev->rail[i]);
	return status == DICOMM_SUCCESS ? verbs_server_open(dev) : status;
}

static dicomm_result_t verbs_open(const struct tp_config *config,
				  struct tp_device **out)
{
	struct tp_device *dev;
	dicomm_result_t status;

	TRY(terms_check_config("verbs", config));
	if (config->slots > 64)
		return FAIL(
			DICOMM_ERR_INVALID_ARGUMENT,
			"verbs: %u slots are too many, at most 64 are possible",
			config->slots);
	if ((uint64_t)config->ranks * TP_CLASSES >> VERBS_CHANNEL_BITS)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "verbs: %d ranks are more than it supports (%u)",
			    config->ranks,
			    (1u << VERBS_CHANNEL_BITS) / TP_CLASSES);
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	dev->config = *config;
	atomic_flag_clear(&dev->mems_busy);
	dev->channels = (uint32_t)config->ranks * TP_CLASSES;
	if (!dev->config.queue_pairs)
		dev->config.queue_pairs =
			(uint32_t)config_int(CONFIG_IB_QPS_PER_CONNECTION);
	dev->eager_bytes = (uint32_t)config_int(CONFIG_IB_EAGER_BYTES);
	if (dev->eager_bytes > config->slot_bytes)
		dev->eager_bytes = config->slot_bytes;
	dev->stride = (uint32_t)((VERBS_LINE_HEAD + dev->eager_bytes +
				  TP_LINE_BYTES - 1) /
				 TP_LINE_BYTES * TP_LINE_BYTES);
	gethostname(dev->host, sizeof(dev->host) - 1);
	status = open_parts(dev);
	if (status != DICOMM_SUCCESS) {
		verbs_close(dev);
		return status;
	}
	for (uint32_t i = 0; i < dev->rails; i++) {
		const struct verbs_nic *nic = dev->rail[i].nic;

		log_debug("verbs: rank %d uses %s port %u, %s, %" PRIu64
			  " MB/s",
			  config->rank, nic->name, nic->port,
			  verbs_fabric_name(nic->fabric),
			  nic->bytes_per_s / 1000000);
	}
	*out = dev;
	return DICOMM_SUCCESS;
}

static void verbs_address(const struct tp_device *dev, struct tp_blob *address)
{
	struct verbs_address a;

	memset(&a, 0, sizeof(a));
	memcpy(a.nonce, dev->nonce, sizeof(a.nonce));
	a.rank = (uint32_t)dev->config.rank;
	a.ranks = (uint32_t)dev->config.ranks;
	a.slots = dev->config.slots;
	a.eager_bytes = dev->eager_bytes;
	a.fabric = dev->rail[0].nic->fabric;
	a.rails = dev->rails;
	memcpy(a.listen, dev->listen, sizeof(a.listen));
	memcpy(a.host, dev->host, sizeof(a.host));
	verbs_rail_names(dev, a.nic, sizeof(a.nic));
	verbs_address_pack(&a, address);
}

/* ---- peers ---- */

static bool is_peer_closed(const struct verbs_channel *channel)
{
	return channel && atomic_load(&channel->peer_closed);
}

/* Returns true if that rank has closed, or aborted, any channel with this
 * one. */
static bool has_peer_closed(struct tp_device *dev, uint32_t rank)
{
	bool left = false;

	verbs_lock();
	for (uint32_t c = 0; c < TP_CLASSES; c++) {
		uint32_t id = rank * TP_CLASSES + c;

		left |= id < dev->channels &&
			(is_peer_closed(atomic_load(&dev->in[id])) ||
			 is_peer_closed(atomic_load(&dev->out[id])));
	}
	verbs_unlock();
	return left;
}

static bool verbs_reaches(struct tp_device *dev, const struct tp_blob *address,
			  char *why, size_t len)
{
	const struct verbs_nic *nic = dev->rail[0].nic;
	struct verbs_address a;

	if (!verbs_address_parse(address, &a, why, len))
		return false;
	if (a.fabric != nic->fabric) {
		snprintf(why, len, "its NIC %s is %s, mine (%s) is %s", a.nic,
			 verbs_fabric_name((enum verbs_fabric)a.fabric),
			 nic->name, verbs_fabric_name(nic->fabric));
		return false;
	}
	if (has_peer_closed(dev, a.rank)) {
		snprintf(why, len, "it has closed its side");
		return false;
	}
	return true;
}

static dicomm_result_t verbs_peer_open(struct tp_device *dev, int rank,
				       const struct tp_blob *address,
				       struct tp_peer **out)
{
	const struct tp_config *config = &dev->config;
	struct verbs_address a;
	struct tp_peer *peer;
	char why[160];

	if (!verbs_address_parse(address, &a, why, sizeof(why)))
		return FAIL(DICOMM_ERR_NO_PATH, "verbs: rank %d: %s", rank,
			    why);
	TRY(terms_check_peer(
		"verbs", config, dev->eager_bytes, rank,
		&(struct terms){a.rank, a.ranks, a.slots, a.eager_bytes}));
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	peer->dev = dev;
	peer->rank = rank;
	peer->address = a;
	for (int c = 0; c < TP_CLASSES; c++)
		peer->out[c] = &verbs_no_channel;
	peer->next = dev->peers;
	dev->peers = peer;
	*out = peer;
	return DICOMM_SUCCESS;
}

static void verbs_limits(const struct tp_peer *peer, struct tp_limits *limits)
{
	const struct tp_device *dev = peer->dev;

	/* Credits are sent for every half of the slots, except while a message
	 * is being read; see verbs_release(). */
	*limits = (struct tp_limits){.eager_bytes = dev->eager_bytes,
				     .slots = dev->config.slots,
				     .window = dev->config.slots / 2 + 1,
				     .spin = 1,
				     .needs_mem_reg = true};
}

static dicomm_result_t verbs_connect_out(struct tp_peer *peer, enum tp_class c,
					 struct tp_outbox *out)
{
	struct tp_device *dev = peer->dev;
	struct verbs_channel *channel = peer->out[c];

	if (atomic_load(&dev->aborted))
		return DICOMM_ERR_ABORTED;
	if (channel == &verbs_no_channel) {
		TRY(verbs_pool_open(dev));
		TRY(verbs_connect_begin(dev, &peer->address, c, &peer->out[c]));
		verbs_credits_track(peer->out[c]);
		return DICOMM_AGAIN;
	}
	switch (atomic_load_explicit(&channel->state, memory_order_acquire)) {
	case CHANNEL_READY:
		out->released = &channel->released;
		return DICOMM_SUCCESS;
	case CHANNEL_FAILED:
		return FAIL(channel->why, "%s", channel->text);
	default:
		return DICOMM_AGAIN;
	}
}

static dicomm_result_t verbs_connect_in(struct tp_peer *peer, enum tp_class c,
					struct tp_inbox *in)
{
	struct tp_device *dev = peer->dev;
	uint32_t id = (uint32_t)peer->rank * TP_CLASSES + c;
	struct verbs_channel *channel;

	if (atomic_load(&dev->aborted))
		return DICOMM_ERR_ABORTED;
	channel = atomic_load_explicit(&dev->in[id], memory_order_acquire);
	if (!channel)
		return DICOMM_AGAIN;
	switch (atomic_load_explicit(&channel->state, memory_order_acquire)) {
	case CHANNEL_READY:
		break;
	case CHANNEL_FAILED:
		return FAIL(channel->why, "%s", channel->text);
	default:
		return DICOMM_AGAIN;
	}
	peer->in[c] = channel;
	in->lines = (struct tp_line *)channel->slots;
	in->line_stride = channel->stride;
	in->data = channel->slots + VERBS_LINE_HEAD;
	in->data_stride = channel->stride;
	in->slot_mask = peer->dev->config.slots - 1;
	return DICOMM_SUCCESS;
}

static unsigned verbs_adapters(const struct tp_device *dev,
			       struct tp_adapter out[TP_ADAPTERS])
{
	_Static_assert(VERBS_RAILS <= TP_ADAPTERS, "room for all");
	for (uint32_t i = 0; i < dev->rails; i++) {
		const struct verbs_nic *nic = dev->rail[i].nic;

		out[i] = (struct tp_adapter){
			.id = hash_bytes(nic->port, nic->name,
					 strlen(nic->name)),
			.bytes_per_s = nic->bytes_per_s,
			.software = verbs_nic_is_software(nic),
			.latency_ps = LATENCY_PS};
	}
	return dev->rails;
}

/* ---- abort and close ---- */

/* Wait for reads in flight, which still end after their queue pairs were
 * stopped. Another thread may be polling; otherwise this one does. */
static void abort_drain(struct tp_device *dev)
{
	uint64_t start = clock_ns();
	bool moved;

	while (atomic_load(&dev->reads)) {
		if (clock_ns() - start > DRAIN_NS) {
			log_warn("verbs %s: %u reads are still in flight after "
				 "their queue pairs were stopped",
				 dev->rail[0].nic->name,
				 atomic_load(&dev->reads));
			return;
		}
		verbs_lock();
		moved = verbs_complete_aborted(dev);
		verbs_unlock();
		if (!moved)
			sched_yield();
	}
}

/* Stop a channel. The peer learns of it from the connection, before the control
 * plane tells it. */
static void abort_channel(struct verbs_channel *channel)
{
	if (!channel)
		return;
	atomic_store(&channel->limit, 0);
	verbs_channel_stop(channel);
	verbs_conn_forget(channel);
}

static void verbs_abort(struct tp_device *dev)
{
	atomic_store(&dev->aborted, true);
	verbs_lock();
	for (uint32_t i = 0; i < dev->channels; i++) {
		abort_channel(atomic_load(&dev->in[i]));
		abort_channel(atomic_load(&dev->out[i]));
	}
	for (uint32_t i = 0; i < dev->rails; i++)
		if (dev->rail[i].loopback)
			verbs_channel_stop(dev->rail[i].loopback);
	verbs_unlock();
	abort_drain(dev);
}

/* Returns true if the peer has everything that was posted. If no completion
 * will show that, this posts a request whose completion does. */
static bool is_drained(struct verbs_channel *channel)
{
	bool all =
		!verbs_failover_pending(channel) &&
		!(verbs_credits_needed(channel) && channel->credits_due_link);

	for (uint32_t i = 0; i < channel->qps; i++) {
		struct verbs_qp *qp = &channel->qp[i];

		if (qp->state != QP_GOOD || qp->posted == qp->done)
			continue;
		all = false;
		if (verbs_has_unsignaled(qp))
			verbs_probe(qp);
	}
	return all;
}

/* Returns true if everything is sent, or can never be sent. */
static bool is_done(struct verbs_channel *channel)
{
	return !channel || atomic_load(&channel->state) != CHANNEL_READY ||
	       channel->why || atomic_load(&channel->peer_closed) ||
	       atomic_load(&channel->dev->aborted) || is_drained(channel);
}

static bool verbs_delivered(struct tp_device *dev)
{
	bool all = true;

	for (uint32_t id = 0; id < dev->channels; id++)
		all &= is_done(atomic_load(&dev->in[id]));
	return all;
}

/* Returns true if both directions are done. Checks both, since each check may
 * post requests. */
static bool are_done(struct tp_device *dev, uint32_t id)
{
	bool out = is_done(atomic_load(&dev->out[id]));

	return is_done(atomic_load(&dev->in[id])) && out;
}

/* Wait until the channels first .. end - 1 are drained, or time is up. */
static void drain(struct tp_device *dev, uint32_t first, uint32_t end)
{
	uint64_t start = clock_ns();
	bool done = false;

	while (!done && clock_ns() - start < DRAIN_NS) {
		done = true;
		for (uint32_t id = first; id < end; id++)
			done &= are_done(dev, id);
		if (!done && !verbs_poll(dev))
			sched_yield();
	}
	for (uint32_t id = first; id < end && !done; id++)
		if (!are_done(dev, id))
			log_warn("verbs %s: rank %u has not received all that "
				 "was "
				 "sent to it",
				 dev->rail[0].nic->name, id / TP_CLASSES);
}

/* Returns true if librdmacm is still connecting a queue pair. Destroying its
 * identifier would wait in the kernel until it is connected or refused; over
 * iWARP 10 s, if the peer is silent. */
static bool is_in_kernel(const struct verbs_channel *channel)
{
	for (uint32_t i = 0; i < channel->qps; i++)
		if (channel->qp[i].cm && !channel->qp[i].rdma_cm_done)
			return true;
	return false;
}

static void close_channel(struct tp_device *dev, uint32_t id, bool in)
{
	struct verbs_channel *_Atomic *at = in ? &dev->in[id] : &dev->out[id];
	struct verbs_channel *channel = atomic_load(at);

	if (!channel)
		return;
	if (!in)
		verbs_credits_untrack(channel);
	verbs_credits_cancel(channel);
	verbs_lock();
	verbs_conn_forget(channel);
	verbs_channel_stop(channel);
	atomic_store(at, NULL);
	if (is_in_kernel(channel)) {
		atomic_store(&channel->state, CHANNEL_FAILED);
		channel->next_closing = dev->closing;
		dev->closing = channel;
	} else {
		verbs_channel_close(channel);
	}
	verbs_unlock();
}

static void close_channels(struct tp_device *dev, uint32_t first, uint32_t end)
{
	if (!atomic_load(&dev->aborted))
		verbs_credits_send_all(dev);
	drain(dev, first, end);
	for (uint32_t id = first; id < end; id++) {
		close_channel(dev, id, false);
		close_channel(dev, id, true);
	}
}

static void verbs_peer_close(struct tp_peer *peer)
{
	struct tp_peer **at;
	uint32_t first;

	if (!peer)
		return;
	first = (uint32_t)peer->rank * TP_CLASSES;
	close_channels(peer->dev, first, first + TP_CLASSES);
	at = &peer->dev->peers;
	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	free(peer);
}

static void close_memory(struct tp_device *dev)
{
	verbs_pool_close(dev);
	for (uint32_t i = 0; i < dev->rails; i++) {
		verbs_loopback_close(&dev->rail[i]);
		verbs_rail_close(&dev->rail[i]);
	}
	free(dev->words);
	free((void *)dev->in);
	free((void *)dev->out);
}

/* Only this device uses these channels now, so no lock is needed. */
static void *free_device(void *arg)
{
	struct tp_device *dev = arg;

	while (dev->closing) {
		struct verbs_channel *channel = dev->closing;

		dev->closing = channel->next_closing;
		verbs_channel_close(channel);
	}
	verbs_server_close(dev);
	close_memory(dev);
	free(dev);
	return NULL;
}

/* Free the device in a thread, which is left behind if it takes long. Returns
 * false if no thread could be started. */
static bool free_device_aside(struct tp_device *dev)
{
	struct timespec end;
	pthread_t thread;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += KERNEL_MS * 1000000L;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	if (thread_start(&thread, "dicomm-close", free_device, dev))
		return false;
	if (pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &end)) {
		log_info("verbs: the kernel still waits for a connection that "
			 "was being made; it is left behind");
		pthread_detach(thread);
	}
	return true;
}

static void verbs_close(struct tp_device *dev)
{
	uint32_t channels;
	struct tp_peer *peer;

	if (!dev)
		return;
	channels = dev->in && dev->out ? dev->channels : 0;
	close_channels(dev, 0, channels);
	while ((peer = dev->peers)) {
		dev->peers = peer->next;
		free(peer);
	}
	/* Accept no new requests, then close what was made meanwhile. */
	verbs_server_stop_listening(dev);
	close_channels(dev, 0, channels);
	while (dev->mems)
		verbs_mem_dereg(dev, dev->mems);
	if (!dev->closing || !free_device_aside(dev))
		free_device(dev);
}

static uint64_t verbs_memory(const struct tp_device *dev)
{
	uint64_t bytes = sizeof(*dev);

	bytes += dev->channels * (sizeof(*dev->words) + 2 * sizeof(void *));
	bytes += (uint64_t)dev->pool.count * dev->pool.bytes;
	for (const struct tp_peer *p = dev->peers; p; p = p->next)
		bytes += sizeof(*p);
	verbs_lock();
	for (uint32_t i = 0; i < dev->rails; i++) {
		const struct verbs_rail *rail = &dev->rail[i];

		bytes += (uint64_t)rail->cqe * 64;
		bytes += rail->loopback ? verbs_channel_memory(rail->loopback)
					: 0;
	}
	for (uint32_t i = 0; i < dev->channels; i++) {
		const struct verbs_channel *in = atomic_load(&dev->in[i]);
		const struct verbs_channel *out = atomic_load(&dev->out[i]);

		bytes += in ? verbs_channel_memory(in) : 0;
		bytes += out ? verbs_channel_memory(out) : 0;
	}
	verbs_unlock();
	return bytes;
}

/* Tells dicomm-info whether the NICs of a rank can register memory of a device,
 * by trying. */
static bool verbs_mem_support(unsigned n, const struct tp_region *region,
			      const struct tp_place *place,
			      struct tp_mem_support *out)
{
	struct verbs_nic *nics[VERBS_RAILS];
	struct verbs_mr *mr = NULL;
	unsigned count = 0;
	char why[256];

	if (!verbs_nic_find(why, sizeof(why)) ||
	    verbs_nics_get(0, place, nics, &count) != DICOMM_SUCCESS)
		return false;
	if (n < count) {
		snprintf(out->name, sizeof(out->name), "%s:%u", nics[n]->name,
			 nics[n]->port);
		out->supported =
			verbs_mr_get_device(nics[n], region, &mr, out->how,
					    sizeof(out->how)) == DICOMM_SUCCESS;
	}
	if (mr)
		verbs_mr_put(nics[n], mr);
	for (unsigned i = 0; i < count; i++)
		verbs_nic_put(nics[i]);
	return n < count;
}

const struct transport transport_verbs = {
	.name = "verbs",
	.device_memory = true,
	.slot_bytes = 262144,
	.by_reference = true,
	.wait_wakes = true,
	.usable = verbs_nic_find,
	.open = verbs_open,
	.address = verbs_address,
	.adapters = verbs_adapters,
	.close = verbs_close,
	.reaches = verbs_reaches,
	.peer_open = verbs_peer_open,
	.limits = verbs_limits,
	.connect_out = verbs_connect_out,
	.connect_in = verbs_connect_in,
	.peer_close = verbs_peer_close,
	.put = verbs_put,
	.release = verbs_release,
	.flush = verbs_flush,
	.delivered = verbs_delivered,
	.mem_reg = verbs_mem_reg,
	.mem_reg_device = verbs_mem_reg_device,
	.mem_support = verbs_mem_support,
	.mem_dereg = verbs_mem_dereg,
	.offer = verbs_offer,
	.map = verbs_map,
	.read = verbs_read,
	.read_status = verbs_read_status,
	.poll = verbs_poll,
	.wait = verbs_wait,
	.broken = verbs_broken,
	.abort = verbs_abort,
	.memory = verbs_memory,
};
