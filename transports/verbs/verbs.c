/* SPDX-License-Identifier: BSD-3-Clause */
/* The verbs transport: its operations. */
#include "transports/verbs/verbs.h"

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
#include "transports/verbs/call.h"
#include "transports/verbs/connect.h"
#include "transports/verbs/credits.h"
#include "transports/verbs/hold.h"
#include "transports/verbs/ladder.h"
#include "transports/verbs/lane.h"
#include "transports/verbs/loss.h"
#include "transports/verbs/mirror.h"
#include "transports/verbs/poll.h"
#include "transports/verbs/rest.h"
#include "transports/verbs/traffic.h"
#include "transports/verbs/watch.h"

/* For requests in flight to end, at close and abort. */
#define DRAIN_NS UINT64_C(2000000000)
/* A few bytes from one NIC of today to another; switches add a part of it. */
#define LATENCY_PS 2000000
/* For what the kernel holds up, at close. */
#define LATE_MS 500

/* ---- device ---- */

static bool verbs_usable(char *why, size_t len)
{
	return verbs_nic_find(why, len);
}

static dicomm_result_t open_words(struct tp_device *dev)
{
	dev->words = aligned_alloc(sizeof(*dev->words),
				   (dev->lanes + 1) * sizeof(*dev->words));
	dev->in = calloc(dev->lanes, sizeof(*dev->in));
	dev->out = calloc(dev->lanes, sizeof(*dev->out));
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

	TRY(open_words(dev));
	TRY(verbs_nics_get((unsigned)dev->config.rank, &dev->config.place, nics,
			   &n));
	for (unsigned i = 0; i < n; i++) {
		/* From here on they are the device's. */
		dev->rail[i].nic = nics[i];
		dev->rails++;
		if (!i || nics[i]->port_attr.max_msg_sz < dev->max_read)
			dev->max_read = nics[i]->port_attr.max_msg_sz;
	}
	for (unsigned i = 0; i < n && status == DICOMM_SUCCESS; i++)
		status = verbs_rail_open(dev, &dev->rail[i]);
	return status == DICOMM_SUCCESS ? verbs_connect_open(dev) : status;
}

static dicomm_result_t verbs_open(const struct tp_config *config,
				  struct tp_device **out)
{
	struct tp_device *dev;
	dicomm_result_t status;

	TRY(terms_check_config("verbs", config));
	if (config->slots > 64)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "verbs: %u slots, at most 64 can be",
			    config->slots);
	if ((uint64_t)config->ranks * TP_CLASSES >> VERBS_LANE_BITS)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "verbs: %d ranks are too many for it",
			    config->ranks);
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	dev->config = *config;
	atomic_flag_clear(&dev->holding);
	dev->lanes = (uint32_t)config->ranks * TP_CLASSES;
	if (!dev->config.channels)
		dev->config.channels =
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
	verbs_address_make(dev, address);
}

/* ---- peers ---- */

static bool is_left(const struct verbs_lane *lane)
{
	return lane && atomic_load(&lane->left);
}

/* Has that rank closed, or aborted, what it had with this one? */
static bool has_left(struct tp_device *dev, uint32_t rank)
{
	bool left = false;

	verbs_lock();
	for (uint32_t c = 0; c < TP_CLASSES; c++) {
		uint32_t id = rank * TP_CLASSES + c;

		left |= id < dev->lanes &&
			(is_left(atomic_load(&dev->in[id])) ||
			 is_left(atomic_load(&dev->out[id])));
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
		snprintf(why, len, "its NIC %s speaks %s, mine (%s) %s", a.nic,
			 verbs_fabric_name((enum verbs_fabric)a.fabric),
			 nic->name, verbs_fabric_name(nic->fabric));
		return false;
	}
	if (has_left(dev, a.rank)) {
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
		peer->out[c] = &verbs_no_lane;
	peer->next = dev->peers;
	dev->peers = peer;
	*out = peer;
	return DICOMM_SUCCESS;
}

static void verbs_limits(const struct tp_peer *peer, struct tp_limits *limits)
{
	const struct tp_device *dev = peer->dev;

	/* Credits are told at every half of the slots, but for those of a
	 * message that is still being read; see release(). */
	*limits = (struct tp_limits){.eager_bytes = dev->eager_bytes,
				     .slots = dev->config.slots,
				     .window = dev->config.slots / 2 + 1,
				     .spin = 1,
				     .wants_hold = true};
}

static dicomm_result_t verbs_connect_out(struct tp_peer *peer, enum tp_class c,
					 struct tp_outbox *out)
{
	struct tp_device *dev = peer->dev;
	struct verbs_lane *lane = peer->out[c];

	if (atomic_load(&dev->aborted))
		return DICOMM_ERR_ABORTED;
	if (lane == &verbs_no_lane) {
		TRY(verbs_pool_open(dev));
		TRY(verbs_call_begin(dev, &peer->address, c, &peer->out[c]));
		return DICOMM_AGAIN;
	}
	switch (atomic_load_explicit(&lane->state, memory_order_acquire)) {
	case LANE_READY:
		out->released = &lane->released;
		return DICOMM_SUCCESS;
	case LANE_FAILED:
		return FAIL(lane->why, "%s", lane->text);
	default:
		return DICOMM_AGAIN;
	}
}

static dicomm_result_t verbs_connect_in(struct tp_peer *peer, enum tp_class c,
					struct tp_inbox *in)
{
	struct tp_device *dev = peer->dev;
	uint32_t id = (uint32_t)peer->rank * TP_CLASSES + c;
	struct verbs_lane *lane;

	if (atomic_load(&dev->aborted))
		return DICOMM_ERR_ABORTED;
	lane = atomic_load_explicit(&dev->in[id], memory_order_acquire);
	if (!lane)
		return DICOMM_AGAIN;
	switch (atomic_load_explicit(&lane->state, memory_order_acquire)) {
	case LANE_READY:
		break;
	case LANE_FAILED:
		return FAIL(lane->why, "%s", lane->text);
	default:
		return DICOMM_AGAIN;
	}
	peer->in[c] = lane;
	in->lines = (struct tp_line *)lane->slots;
	in->line_stride = lane->stride;
	in->data = lane->slots + VERBS_LINE_HEAD;
	in->data_stride = lane->stride;
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

/* ---- ends ---- */

/* After the queue pairs have stopped, reads in flight still end; whoever polls
 * may be another thread, or this one. */
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

/* Who waits for this rank need not wait for news by others. */
static void abort_lane(struct verbs_lane *lane)
{
	if (!lane)
		return;
	atomic_store(&lane->limit, 0);
	verbs_lane_stop(lane);
	verbs_connect_forget(lane);
}

static void verbs_abort(struct tp_device *dev)
{
	atomic_store(&dev->aborted, true);
	verbs_lock();
	for (uint32_t i = 0; i < dev->lanes; i++) {
		abort_lane(atomic_load(&dev->in[i]));
		abort_lane(atomic_load(&dev->out[i]));
	}
	for (uint32_t i = 0; i < dev->rails; i++)
		if (dev->rail[i].mirror)
			verbs_lane_stop(dev->rail[i].mirror);
	verbs_unlock();
	abort_drain(dev);
}

/* Has the other side all that was posted? Asks those that would not say. */
static bool is_drained(struct verbs_lane *lane)
{
	bool all = !verbs_loss_pending(lane) &&
		   !(verbs_must_tell(lane) && lane->untold_link);

	for (uint32_t i = 0; i < lane->strands; i++) {
		struct verbs_strand *s = &lane->strand[i];

		if (s->state != STRAND_GOOD || s->posted == s->done)
			continue;
		all = false;
		if (verbs_is_silent(s))
			verbs_probe(s);
	}
	return all;
}

/* Or is there nothing to wait for? */
static bool is_done(struct verbs_lane *lane)
{
	return !lane || atomic_load(&lane->state) != LANE_READY || lane->why ||
	       atomic_load(&lane->left) || atomic_load(&lane->dev->aborted) ||
	       is_drained(lane);
}

static bool verbs_landed(struct tp_device *dev)
{
	bool all = true;

	for (uint32_t id = 0; id < dev->lanes; id++)
		all &= is_done(atomic_load(&dev->in[id]));
	return all;
}

/* Out and in; both are asked. */
static bool are_done(struct tp_device *dev, uint32_t id)
{
	bool out = is_done(atomic_load(&dev->out[id]));

	return is_done(atomic_load(&dev->in[id])) && out;
}

/* Wait for the lanes from `first` to before `end`, for all of them together. */
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
			log_warn("verbs %s: rank %u has not taken all that was "
				 "sent to it",
				 dev->rail[0].nic->name, id / TP_CLASSES);
}

/* A connection that is being made goes when it has been, or was refused: who
 * asks for that, waits in the kernel, of iWARP 10 s where the other side is
 * silent. */
static bool is_held_up(const struct verbs_lane *lane)
{
	for (uint32_t i = 0; i < lane->strands; i++)
		if (lane->strand[i].cm && !lane->strand[i].joined)
			return true;
	return false;
}

static void close_lane(struct tp_device *dev, uint32_t id, bool in)
{
	struct verbs_lane *_Atomic *at = in ? &dev->in[id] : &dev->out[id];
	struct verbs_lane *lane = atomic_load(at);

	if (!lane)
		return;
	if (!in)
		verbs_credits_end(lane);
	verbs_untold_remove(lane);
	verbs_lock();
	verbs_connect_forget(lane);
	verbs_lane_stop(lane);
	atomic_store(at, NULL);
	if (is_held_up(lane)) {
		atomic_store(&lane->state, LANE_FAILED);
		lane->next_late = dev->late;
		dev->late = lane;
	} else {
		verbs_lane_close(lane);
	}
	verbs_unlock();
}

static void close_lanes(struct tp_device *dev, uint32_t first, uint32_t end)
{
	if (!atomic_load(&dev->aborted))
		verbs_untold_tell(dev);
	drain(dev, first, end);
	for (uint32_t id = first; id < end; id++) {
		close_lane(dev, id, false);
		close_lane(dev, id, true);
	}
}

static void verbs_peer_close(struct tp_peer *peer)
{
	struct tp_peer **at;
	uint32_t first;

	if (!peer)
		return;
	first = (uint32_t)peer->rank * TP_CLASSES;
	close_lanes(peer->dev, first, first + TP_CLASSES);
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
		verbs_mirror_close(&dev->rail[i]);
		verbs_rail_close(&dev->rail[i]);
	}
	free(dev->words);
	free((void *)dev->in);
	free((void *)dev->out);
}

/* Nobody knows of it any more. Without the lock: others go on. */
static void *close_rest(void *arg)
{
	struct tp_device *dev = arg;

	while (dev->late) {
		struct verbs_lane *lane = dev->late;

		dev->late = lane->next_late;
		verbs_lane_close(lane);
	}
	verbs_connect_close(dev);
	close_memory(dev);
	free(dev);
	return NULL;
}

/* By a thread that is left alone with it if it takes long; false: there is no
 * such thread. */
static bool close_rest_aside(struct tp_device *dev)
{
	struct timespec end;
	pthread_t thread;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += LATE_MS * 1000000L;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	if (thread_start(&thread, "dicomm-close", close_rest, dev))
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
	uint32_t lanes;
	struct tp_peer *peer;

	if (!dev)
		return;
	lanes = dev->in && dev->out ? dev->lanes : 0;
	close_lanes(dev, 0, lanes);
	while ((peer = dev->peers)) {
		dev->peers = peer->next;
		free(peer);
	}
	/* No call comes in any more; then what has come meanwhile goes, too. */
	verbs_connect_shut(dev);
	close_lanes(dev, 0, lanes);
	while (dev->holds)
		verbs_drop(dev, dev->holds);
	if (!dev->late || !close_rest_aside(dev))
		close_rest(dev);
}

static uint64_t verbs_memory(const struct tp_device *dev)
{
	uint64_t bytes = sizeof(*dev);

	bytes += dev->lanes * (sizeof(*dev->words) + 2 * sizeof(void *));
	bytes += (uint64_t)dev->pool.count * dev->pool.bytes;
	for (const struct tp_peer *p = dev->peers; p; p = p->next)
		bytes += sizeof(*p);
	verbs_lock();
	for (uint32_t i = 0; i < dev->rails; i++) {
		const struct verbs_rail *rail = &dev->rail[i];

		bytes += (uint64_t)rail->cqe * 64;
		bytes += rail->mirror ? verbs_lane_memory(rail->mirror) : 0;
	}
	for (uint32_t i = 0; i < dev->lanes; i++) {
		const struct verbs_lane *in = atomic_load(&dev->in[i]);
		const struct verbs_lane *out = atomic_load(&dev->out[i]);

		bytes += in ? verbs_lane_memory(in) : 0;
		bytes += out ? verbs_lane_memory(out) : 0;
	}
	verbs_unlock();
	return bytes;
}

const struct transport transport_verbs = {
	.name = "verbs",
	.devices = true,
	.slot_bytes = 262144,
	.by_reference = true,
	.sleeps = true,
	.usable = verbs_usable,
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
	.landed = verbs_landed,
	.hold = verbs_hold,
	.hold_device = verbs_hold_device,
	.takes = verbs_takes,
	.drop = verbs_drop,
	.offer = verbs_offer,
	.map = verbs_map,
	.read = verbs_read,
	.arrived = verbs_arrived,
	.poll = verbs_poll,
	.rest = verbs_rest,
	.broken = verbs_broken,
	.abort = verbs_abort,
	.memory = verbs_memory,
};
