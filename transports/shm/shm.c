/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared-memory transport: its operations. */
#include "transports/shm/shm.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/cache.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/memfd.h"
#include "transports/defaults.h"
#include "transports/terms.h"

/* What a thread that loads may lack its core; see shm_abort(). */
#define ABORT_NS 500000000u
/* Calls of poll() from one look at what neighbours have freed to the next. */
#define POLLS_PER_CHORE 1024
/* Of the second level, where nobody knows. */
#define CORE_CACHE_BYTES (1u << 20)
/* Looks at a line before anything else is looked at. */
#define LOOKS 128

enum cma_mode { CMA_OFF, CMA_AUTO, CMA_ON };

/*
 * CMA does not pay for what leaves the caches, for the kernel looks up each
 * page. A ring shares its two copies between two cores: if both have some to
 * make, CMA saves one of them, and pays for longer than where one core waits
 * for the other: up to so many caches of a core, and up to such a part of one.
 * That was measured (perftest/results/2026-11-21-single-copy.md). Where ranks
 * share cores, both copies of a ring are made by cores that are busy in any
 * case, between ranks of one core in its own cache, and a sender that has
 * filled its rings need not wait until each reader has had its turn: CMA does
 * not pay (perftest/results/2026-11-26-two-cores-epyc.md).
 */
#define CMA_EXCHANGE_CACHES 4
#define CMA_COPY_PART 2

struct out {
	struct tp_line *lines;
	uint8_t *data;
	uint64_t mask;
	uint64_t slot_bytes;
	uint64_t limit; /* last message that the credits known here allow */
	struct shm_tail *tail;
	struct shm_ring *ring; /* referenced; NULL until connected */
} __attribute__((aligned(CACHE_LINE)));

struct in {
	struct shm_ring *ring; /* referenced; NULL until connected */
	struct shm_tail *tail;
	uint64_t done;     /* last message released */
	uint64_t quiet_at; /* see chore() */
};

/* Of the thread that owns the device, but for what abort() sets. */
struct tp_peer {
	struct out out[TP_CLASSES];
	const _Atomic bool *aborted; /* of the device */
	struct in in[TP_CLASSES];
	struct tp_device *dev;
	struct tp_peer *next;
	struct shm_address address;
	struct shm_segment *seg; /* the peer's, referenced; NULL until needed */
	struct shm_pull *pull;   /* owned; with seg */
	int rank;
	bool own;     /* a rank of this process */
	bool reading; /* counted among seg->readers */
	bool condemned;
};

struct tp_device {
	_Atomic bool aborted;
	struct tp_config config;
	struct shm_segment *seg; /* referenced */
	struct tp_peer *peers;
	struct shm_offer offer;
	enum cma_mode cma;
	uint64_t core_cache_bytes;
	uint32_t polls;
};

static bool shm_usable(char *why, size_t len)
{
	int fd = memfd_make("dicomm-shm", 0);
	char path[64];
	bool usable = false;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), fd);
	if (fd < 0)
		snprintf(why, len, "memfd_create: %m");
	else if (access(path, R_OK | W_OK) < 0)
		snprintf(why, len, "%s: %m (is /proc mounted?)", path);
	else
		usable = true;
	if (usable)
		snprintf(why, len, "memfd, pull by mapping");
	if (fd >= 0)
		close(fd);
	return usable;
}

static enum cma_mode cma_mode(void)
{
	const char *text = config_string(CONFIG_SHM_CMA);

	if (!strcmp(text, "off"))
		return CMA_OFF;
	return strcmp(text, "on") ? CMA_AUTO : CMA_ON;
}

static uint64_t threshold(enum config_key key)
{
	int64_t value = config_int(key);

	return value > 0 ? (uint64_t)value : 0;
}

static dicomm_result_t shm_open_device(const struct tp_config *config,
				       struct tp_device **out)
{
	struct tp_device *dev;
	dicomm_result_t status;

	TRY(terms_check_config("shm", config));
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return FAIL(DICOMM_ERR_NO_MEMORY, "shm: out of memory");
	dev->config = *config;
	dev->cma = cma_mode();
	dev->core_cache_bytes = config->core_cache_bytes
					? config->core_cache_bytes
					: CORE_CACHE_BYTES;
	dev->offer.pid = getpid();
	dev->offer.map_threshold = threshold(CONFIG_SHM_MAP_THRESHOLD);
	dev->offer.cma_threshold = threshold(CONFIG_SHM_CMA_THRESHOLD);
	status = shm_segment_create(config, &dev->seg);
	if (status != DICOMM_SUCCESS) {
		free(dev);
		return status;
	}
	*out = dev;
	return DICOMM_SUCCESS;
}

static void shm_widen(struct tp_device *dev, uint32_t slot_bytes)
{
	dev->config.slot_bytes = slot_bytes;
	dev->seg->head->slot_bytes = slot_bytes;
}

static void shm_share_cores(struct tp_device *dev)
{
	if (dev->cma == CMA_AUTO)
		dev->cma = CMA_OFF;
}

static void shm_address(const struct tp_device *dev, struct tp_blob *address)
{
	shm_address_make(dev->seg, address);
}

static bool shm_reaches(struct tp_device *dev, const struct tp_blob *address,
			char *why, size_t len)
{
	struct shm_address a;

	(void)dev;
	if (!shm_address_parse(address, &a, why, len) ||
	    !shm_address_is_local(&a, why, len) ||
	    !shm_segment_reachable(&a, why, len))
		return false;
	shm_rates_tell(&a.rates);
	return true;
}

static dicomm_result_t shm_peer_open(struct tp_device *dev, int rank,
				     const struct tp_blob *address,
				     struct tp_peer **out)
{
	const struct tp_config *config = &dev->config;
	struct tp_peer *peer;
	struct shm_address a;
	char why[160];

	if (!shm_address_parse(address, &a, why, sizeof(why)) ||
	    !shm_address_is_local(&a, why, sizeof(why)))
		return FAIL(DICOMM_ERR_NO_PATH, "shm: rank %d: %s", rank, why);
	TRY(terms_check_peer(
		"shm", config, config->slot_bytes, rank,
		&(struct terms){a.rank, a.ranks, a.slots, a.slot_bytes}));
	peer = aligned_alloc(CACHE_LINE, (sizeof(*peer) + CACHE_LINE - 1) &
						 ~(size_t)(CACHE_LINE - 1));
	if (!peer)
		return FAIL(DICOMM_ERR_NO_MEMORY, "shm: out of memory");
	memset(peer, 0, sizeof(*peer));
	peer->dev = dev;
	peer->aborted = &dev->aborted;
	peer->rank = rank;
	peer->address = a;
	peer->own = shm_segment_is_own(&a);
	peer->next = dev->peers;
	dev->peers = peer;
	*out = peer;
	return DICOMM_SUCCESS;
}

static void shm_limits(const struct tp_peer *peer, struct tp_limits *limits)
{
	*limits = (struct tp_limits){
		.eager_bytes = peer->dev->config.slot_bytes,
		.slots = peer->dev->config.slots,
		.window = peer->dev->config.slots,
		.spin = LOOKS,
	};
}

static _Atomic uint64_t *directory(const struct shm_segment *seg, int peer,
				   enum tp_class c)
{
	return &seg->head->ring[(size_t)peer * TP_CLASSES + c];
}

static dicomm_result_t shm_connect_out(struct tp_peer *peer, enum tp_class c,
				       struct tp_outbox *outbox)
{
	struct shm_segment *seg = peer->dev->seg;
	struct out *o = &peer->out[c];

	if (atomic_load(&peer->dev->aborted))
		return DICOMM_ERR_ABORTED;
	if (!o->ring) {
		TRY(shm_ring_create(seg, &o->ring));
		o->lines = o->ring->lines;
		o->data = o->ring->data;
		o->tail = o->ring->tail;
		o->mask = peer->dev->config.slots - 1;
		o->slot_bytes = peer->dev->config.slot_bytes;
		o->limit = peer->dev->config.slots;
		atomic_store_explicit(directory(seg, peer->rank, c),
				      o->ring->offset, memory_order_release);
	}
	*outbox = (struct tp_outbox){
		.released = &o->tail->released,
		.data = o->data,
		.data_stride = o->slot_bytes,
		.slot_mask = (uint32_t)o->mask,
	};
	return DICOMM_SUCCESS;
}

/* Map the peer's segment when it is first needed: with many ranks, most pairs
 * never talk. */
static dicomm_result_t peer_attach(struct tp_peer *peer)
{
	if (!peer->pull)
		TRY(shm_pull_create(&peer->pull));
	if (!peer->seg)
		TRY(shm_segment_attach(&peer->address, &peer->seg));
	return DICOMM_SUCCESS;
}

static void announce_lengths(const struct tp_peer *peer, bool works,
			     bool exchange, struct shm_lengths *out)
{
	uint64_t first = UINT64_MAX, last = 0;
	uint64_t cache = peer->dev->core_cache_bytes;
	struct shm_rates r;

	if (works && peer->dev->cma == CMA_ON) {
		first = 1;
		last = UINT64_MAX;
	} else if (works) {
		shm_rates_get(&r);
		shm_cma_pays(&r, exchange,
			     exchange ? CMA_EXCHANGE_CACHES * cache
				      : cache / CMA_COPY_PART,
			     &first, &last);
	}
	atomic_store_explicit(&out->last, last, memory_order_relaxed);
	atomic_store_explicit(&out->first, first, memory_order_release);
}

/* Tell the sender how this rank reads its memory. */
static void announce(const struct tp_peer *peer, struct shm_tail *tail)
{
	bool works = !peer->own && peer->dev->cma != CMA_OFF &&
		     shm_cma_works(peer->seg);

	announce_lengths(peer, works, false, &tail->cma_copy);
	announce_lengths(peer, works, true, &tail->cma_exchange);
}

static dicomm_result_t shm_connect_in(struct tp_peer *peer, enum tp_class c,
				      struct tp_inbox *inbox)
{
	struct in *in = &peer->in[c];

	if (atomic_load(&peer->dev->aborted))
		return DICOMM_ERR_ABORTED;
	if (!in->ring) {
		uint64_t offset;

		TRY(peer_attach(peer));
		offset = atomic_load_explicit(
			directory(peer->seg, peer->dev->config.rank, c),
			memory_order_acquire);
		if (!offset)
			return DICOMM_AGAIN;
		TRY(shm_ring_attach(peer->seg, offset, &in->ring));
		in->tail = in->ring->tail;
		announce(peer, in->tail);
	}
	inbox->lines = in->ring->lines;
	inbox->line_stride = sizeof(struct tp_line);
	inbox->data = in->ring->data;
	inbox->data_stride = peer->dev->config.slot_bytes;
	inbox->slot_mask = peer->dev->config.slots - 1;
	return DICOMM_SUCCESS;
}

/* Also of what was loaded before: the owner says it before its memory changes.
 */
static bool is_withdrawn(const struct tp_peer *peer)
{
	atomic_thread_fence(memory_order_acquire);
	return atomic_load(&peer->seg->head->withdrawn);
}

static void reading_end(struct tp_peer *peer)
{
	peer->reading = false;
	atomic_fetch_sub_explicit(&peer->seg->readers, 1, memory_order_release);
}

/* Nobody releases what is not intact, and the owner's abort() waits. */
static dicomm_result_t shm_intact(struct tp_peer *peer)
{
	if (!is_withdrawn(peer))
		return DICOMM_SUCCESS;
	if (peer->reading)
		reading_end(peer);
	return FAIL(DICOMM_ERR_REMOTE, "shm: rank %d has stopped", peer->rank);
}

/* What a rank of this process offers may be gone once its abort() has returned,
 * so that waits for those who read it. Count first, then look: abort() does it
 * the other way round. What a neighbour maps stays, but need not be any more
 * what was sent. */
static dicomm_result_t reading_begin(struct tp_peer *peer)
{
	if (peer->own && !peer->reading) {
		atomic_fetch_add(&peer->seg->readers, 1);
		peer->reading = true;
	}
	return shm_intact(peer);
}

static void shm_peer_close(struct tp_peer *peer)
{
	struct tp_peer **at;

	if (!peer)
		return;
	if (peer->reading)
		reading_end(peer);
	for (int c = 0; c < TP_CLASSES; c++) {
		if (peer->out[c].ring)
			atomic_store(directory(peer->dev->seg, peer->rank,
					       (enum tp_class)c),
				     0);
		shm_ring_put(peer->out[c].ring);
		shm_ring_put(peer->in[c].ring);
	}
	shm_pull_destroy(peer->pull);
	shm_segment_put(peer->seg);
	at = &peer->dev->peers;
	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	free(peer);
}

static void shm_close(struct tp_device *dev)
{
	if (!dev)
		return;
	while (dev->peers)
		shm_peer_close(dev->peers);
	shm_segment_put(dev->seg);
	free(dev);
}

/* memcpy for up to TP_LINE_ROOM bytes: a few moves that may overlap. */
static inline void copy_small(uint8_t *dst, const uint8_t *src, uint64_t len)
{
	uint64_t head, tail;
	uint32_t head4, tail4;

	if (__builtin_expect(len - 8 <= 8, 1)) { /* 8 to 16 */
		memcpy(&head, src, 8);
		memcpy(&tail, src + len - 8, 8);
		memcpy(dst, &head, 8);
		memcpy(dst + len - 8, &tail, 8);
	} else if (len > 16) {
		uint64_t at = 0;

		for (; at + 16 < len; at += 16)
			__builtin_memcpy(dst + at, src + at, 16);
		__builtin_memcpy(dst + len - 16, src + len - 16, 16);
	} else if (len >= 4) {
		memcpy(&head4, src, 4);
		memcpy(&tail4, src + len - 4, 4);
		memcpy(dst, &head4, 4);
		memcpy(dst + len - 4, &tail4, 4);
	} else {
		for (uint64_t i = 0; i < len; i++)
			dst[i] = src[i];
	}
}

static inline dicomm_result_t deliver(struct tp_line *line, uint64_t seq,
				      uint32_t signature, enum tp_kind kind,
				      uint64_t len)
{
	line->signature = signature;
	line->kind = kind;
	line->len = len;
	atomic_store_explicit(&line->seq, seq, memory_order_release);
	return DICOMM_SUCCESS;
}

/* Look at what the receiver has released; AGAIN if that is not enough. */
static dicomm_result_t refresh_credits(const struct tp_peer *peer,
				       struct out *o, uint64_t seq)
{
	if (!o->ring)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "shm: put to rank %d before connect_out",
			    peer->rank);
	o->limit =
		atomic_load_explicit(&o->tail->released, memory_order_acquire) +
		o->mask + 1;
	return seq > o->limit ? DICOMM_AGAIN : DICOMM_SUCCESS;
}

/* Apart from shm_put(), so that a small message saves no registers. */
static dicomm_result_t __attribute__((noinline))
put_slowly(struct tp_peer *peer, enum tp_class c, uint64_t seq,
	   uint32_t signature, enum tp_kind kind, const void *body,
	   uint64_t len)
{
	struct out *o = &peer->out[c];
	struct tp_line *line;

	if (seq > o->limit)
		TRY(refresh_credits(peer, o, seq));
	line = &o->lines[seq & o->mask];
	if (kind == TP_REF)
		memcpy(line->room, body, SHM_REF_BYTES);
	else if (len <= TP_LINE_ROOM)
		copy_small(line->room, body, len);
	else if (len <= o->slot_bytes)
		memcpy(o->data + (seq & o->mask) * o->slot_bytes, body, len);
	else
		return FAIL(DICOMM_ERR_INTERNAL,
			    "shm: put of %" PRIu64 " bytes into a slot of "
			    "%" PRIu64,
			    len, o->slot_bytes);
	return deliver(line, seq, signature, kind, len);
}

static dicomm_result_t shm_put(struct tp_peer *peer, enum tp_class c,
			       uint64_t seq, uint32_t signature,
			       enum tp_kind kind, const void *body,
			       uint64_t len)
{
	const struct out *o = &peer->out[c];
	struct tp_line *line;

	if (atomic_load_explicit(peer->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (__builtin_expect(
		    seq > o->limit || kind != TP_DATA || len > TP_LINE_ROOM, 0))
		return put_slowly(peer, c, seq, signature, kind, body, len);
	line = &o->lines[seq & o->mask];
	copy_small(line->room, body, len);
	return deliver(line, seq, signature, TP_DATA, len);
}

static dicomm_result_t shm_release(struct tp_peer *peer, enum tp_class c,
				   uint64_t seq)
{
	struct in *in = &peer->in[c];

	if (__builtin_expect(peer->reading, 0))
		reading_end(peer);
	in->done = seq;
	atomic_store_explicit(&in->tail->released, seq, memory_order_release);
	return DICOMM_SUCCESS;
}

/* What release() stores is there for the sender to see. */
static bool shm_flush(struct tp_device *dev)
{
	(void)dev;
	return true;
}

/* CMA makes a copy, which does not pay where the bytes would be loaded from the
 * ring as well. */
static bool cma_pays_for(const struct tp_device *dev,
			 const struct shm_tail *tail, uint64_t len,
			 enum tp_want want)
{
	const struct shm_lengths *l =
		want == TP_WANT_COPY ? &tail->cma_copy : &tail->cma_exchange;
	uint64_t first = atomic_load_explicit(&l->first, memory_order_acquire);

	/* Forced, for whatever they are wanted */
	if (dev->cma != CMA_ON && want == TP_WANT_LOAD)
		return false;
	return first && len >= first &&
	       len <= atomic_load_explicit(&l->last, memory_order_relaxed);
}

static bool shm_offer(struct tp_peer *peer, const void *addr, uint64_t len,
		      enum tp_want want, struct tp_ref *ref)
{
	struct shm_offer how = peer->dev->offer;

	how.own = peer->own;
	for (int c = 0; c < TP_CLASSES; c++)
		if (peer->out[c].tail)
			how.cma |= cma_pays_for(peer->dev, peer->out[c].tail,
						len, want);
	shm_pull_publish(peer->dev->seg);
	return shm_pull_offer(&how, addr, len, ref);
}

static dicomm_result_t shm_map(struct tp_peer *peer, const struct tp_ref *ref,
			       uint64_t len, const void **ptr)
{
	if (!peer->seg)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "shm: map from rank %d before connect_in",
			    peer->rank);
	TRY(reading_begin(peer));
	return shm_pull_map(peer->pull, peer->seg, ref, len, ptr);
}

static dicomm_result_t shm_read(struct tp_peer *peer, enum tp_class c,
				uint64_t seq, const struct tp_ref *ref,
				uint64_t offset, void *dst, uint64_t len)
{
	bool mapped = peer->reading;
	dicomm_result_t status;

	(void)c;
	(void)seq;
	if (!peer->seg)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "shm: read from rank %d before connect_in",
			    peer->rank);
	TRY(reading_begin(peer));
	status = shm_pull_read(peer->pull, peer->seg, ref, offset, dst, len,
			       peer->aborted);
	if (peer->reading && !mapped)
		reading_end(peer);
	return status == DICOMM_SUCCESS ? shm_intact(peer) : status;
}

/* read() has copied all before it returned. */
static dicomm_result_t shm_arrived(struct tp_peer *peer, enum tp_class c,
				   uint64_t seq)
{
	(void)peer;
	(void)c;
	(void)seq;
	return DICOMM_SUCCESS;
}

/* Last message in the ring: they come in order, one slot after the other. */
static uint64_t last_arrived(const struct tp_peer *peer, const struct in *in)
{
	uint64_t last = 0;

	for (uint32_t s = 0; in->ring && s < peer->dev->config.slots; s++) {
		uint64_t seq = atomic_load_explicit(&in->ring->lines[s].seq,
						    memory_order_acquire);

		if (seq > last)
			last = seq;
	}
	return last;
}

/*
 * Unmap what a neighbour has freed. A pointer from map() is in use until its
 * message is released, if the neighbour did not wait for that (it aborted),
 * so wait until all that had arrived when we saw the news has been released.
 */
static void chore(struct tp_peer *peer)
{
	if (!peer->pull || !peer->seg)
		return;
	if (!peer->condemned) {
		if (!shm_pull_condemn(peer->pull, peer->seg))
			return;
		peer->condemned = true;
		for (int c = 0; c < TP_CLASSES; c++)
			peer->in[c].quiet_at = last_arrived(peer, &peer->in[c]);
	}
	for (int c = 0; c < TP_CLASSES; c++)
		if (peer->in[c].done < peer->in[c].quiet_at)
			return;
	shm_pull_drop(peer->pull, peer->seg);
	peer->condemned = false;
}

/* The messages themselves need no help: the receiver looks at its lines. */
static bool shm_poll(struct tp_device *dev)
{
	if (++dev->polls % POLLS_PER_CHORE)
		return false;
	shm_pull_publish(dev->seg);
	for (struct tp_peer *peer = dev->peers; peer; peer = peer->next)
		chore(peer);
	return false;
}

static dicomm_result_t shm_broken(struct tp_device *dev, int *peer)
{
	(void)dev;
	(void)peer;
	return DICOMM_SUCCESS; /* memory has no cable */
}

/*
 * Nothing is ever written outside of rings, so there is nothing to stop; but
 * ranks of this process may be loading from what this one offered, and its user
 * may free that next. They are in the middle of a step, which ends; a thread
 * that somebody has stopped there must not hold us for ever, though.
 */
static void shm_abort(struct tp_device *dev)
{
	uint64_t start = clock_ns();

	atomic_store(&dev->aborted, true);
	atomic_store(&dev->seg->head->withdrawn, true);
	while (atomic_load(&dev->seg->readers)) {
		sched_yield();
		if (clock_ns() - start > ABORT_NS) {
			log_warn("shm: a rank of this process still reads "
				 "memory of rank %d, which has aborted",
				 dev->config.rank);
			return;
		}
	}
}

static uint64_t shm_memory(const struct tp_device *dev)
{
	uint64_t bytes = sizeof(*dev);
	struct stat st;

	for (const struct tp_peer *p = dev->peers; p; p = p->next)
		bytes += sizeof(*p);
	if (fstat(dev->seg->fd, &st) == 0)
		bytes += (uint64_t)st.st_blocks * 512;
	return bytes;
}

const struct transport transport_shm = {
	.name = "shm",
	.near = true,
	.usable = shm_usable,
	.open = shm_open_device,
	.widen = shm_widen,
	.share_cores = shm_share_cores,
	.address = shm_address,
	.close = shm_close,
	.reaches = shm_reaches,
	.peer_open = shm_peer_open,
	.limits = shm_limits,
	.connect_out = shm_connect_out,
	.connect_in = shm_connect_in,
	.peer_close = shm_peer_close,
	.put = shm_put,
	.release = shm_release,
	.flush = shm_flush,
	/* What this process can load from, its neighbours can too. */
	.hold = defaults_hold,
	.hold_device = defaults_hold_device,
	.takes = defaults_takes,
	.drop = defaults_drop,
	.offer = shm_offer,
	.map = shm_map,
	.intact = shm_intact,
	.read = shm_read,
	.arrived = shm_arrived,
	.poll = shm_poll,
	/* A peer that puts wakes nobody. */
	.rest = defaults_rest,
	.broken = shm_broken,
	.abort = shm_abort,
	.memory = shm_memory,
};
