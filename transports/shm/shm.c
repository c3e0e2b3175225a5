/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations of the shared-memory transport. */

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/cache.h"
#include "src/base/cancel.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/memfd.h"
#include "transports/defaults.h"
#include "transports/terms.h"
#include "transports/shm/address.h"
#include "transports/shm/cma.h"
#include "transports/shm/exchange.h"
#include "transports/shm/measure.h"
#include "transports/shm/pull.h"
#include "transports/shm/reference.h"
#include "transports/shm/segment.h"

/* How long abort() waits for a rank of this process that is reading, in
 * nanoseconds; see shm_abort(). */
#define ABORT_NS 500000000u
/* poll() looks for allocations that peers have freed once in this many
 * calls. */
#define POLLS_PER_UNMAP 1024
/* Assumed size of the second-level cache, if it is unknown. */
#define CORE_CACHE_BYTES (1u << 20)
/* How often to look at a line before it is worth looking at anything else. */
#define LOOKS 128

enum cma_mode { CMA_OFF, CMA_AUTO, CMA_ON };

/* Which messages CMA is used for. It does not pay for data that is
 * not in cache, since the kernel looks up each page. A ring shares
 * its two copies between two cores. If both ranks send, CMA saves
 * each of them a copy, so it pays for up to several times the cache
 * of a core. If one only receives, it pays up to a part of that
 * cache. (Measured: perftest/results/2026-11-21-single-copy.md.)
 * Where ranks share cores, CMA does not pay: both copies of a ring
 * are made by cores that are busy anyway, in a cache that both ranks
 * use, and a sender with full rings need not wait for each reader's
 * turn on the core (perftest/results/2026-11-26-two-cores-epyc.md). */
#define CMA_EXCHANGE_CACHES 4
#define CMA_COPY_PART 2

struct out {
	struct tp_line *lines;
	uint8_t *data;
	uint64_t mask;
	uint64_t slot_bytes;
	/* number of the last message that known credits allow */
	uint64_t limit;
	struct shm_tail *tail;
	struct shm_ring *ring; /* counted in its refs; NULL: not connected */
	uint64_t questions;    /* of the receiver that were looked at */
	struct shm_exchange *exchange; /* from the first connection on */
} __attribute__((aligned(CACHE_LINE)));

struct in {
	struct shm_ring *ring; /* counted in its refs; NULL: not connected */
	struct shm_tail *tail;
	uint64_t consumed; /* number of the last message that was released */
	uint64_t quiet_at; /* number of a message; see unmap_freed() */
	struct shm_pull *pulls; /* [slots]; NULL: every way has worked */
};

/* Used by the thread that uses the device. abort() only sets the device's
 * flag. */
struct tp_peer {
	struct out out[TP_CLASSES];
	const _Atomic bool *aborted; /* aborted of the device */
	/* Of the peer's segment; until that is mapped, one that is never
	 * armed. */
	struct doorbell *doorbell;
	struct in in[TP_CLASSES];
	struct tp_device *dev;
	struct tp_peer *next, *next_puller;
	struct shm_address address;
	struct shm_segment *
		/* the peer's segment, counted in its refs; NULL: not needed
		 * yet */
		seg;
	struct shm_mappings *mappings; /* created with seg */
	int rank;
	bool own;     /* the peer is a rank of this process */
	bool reading; /* this peer is counted in seg->readers */
	bool marked;
	bool may_pull; /* it is in the list of those that may ask */
	/* A way to the peer's memory has failed. */
	bool reads_nothing, maps_nothing;
};

struct tp_device {
	_Atomic bool aborted;
	struct doorbell no_doorbell;
	struct tp_config config;
	/* found once, since each of many peers is compared with it */
	struct shm_host host;
	struct shm_segment *seg; /* counted in its refs */
	struct tp_peer *peers, *pullers;
	/* [ranks]: segments of other processes, mapped while they could be
	 * opened, counted in their refs */
	_Atomic(struct shm_segment *) *reached;
	bool warned; /* the warning that a way has failed was logged */
	struct shm_offer offer;
	enum cma_mode cma;
	uint64_t core_cache_bytes;
	uint32_t polls;
};

static bool memfd_works(char *why, size_t len)
{
	int fd = memfd_make("dicomm-shm", 0);
	char path[64];
	bool works = false;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), fd);
	if (fd < 0)
		snprintf(why, len, "memfd_create: %m");
	else if (access(path, R_OK | W_OK) < 0)
		snprintf(why, len, "%s: %m (is /proc mounted?)", path);
	else
		works = true;
	if (fd >= 0)
		close(fd);
	return works;
}

static bool shm_usable(char *why, size_t len)
{
	static _Atomic bool works; /* and goes on to */

	if (!atomic_load(&works) && !memfd_works(why, len))
		return false;
	atomic_store(&works, true);
	snprintf(why, len, "memfd; large messages by mapping");
	return true;
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
	shm_host_find(&dev->host);
	dev->cma = cma_mode();
	dev->core_cache_bytes = config->core_cache_bytes
					? config->core_cache_bytes
					: CORE_CACHE_BYTES;
	dev->offer.pid = getpid();
	dev->offer.map_threshold = threshold(CONFIG_SHM_MAP_THRESHOLD);
	dev->offer.cma_threshold = threshold(CONFIG_SHM_CMA_THRESHOLD);
	dev->reached = calloc((size_t)config->ranks, sizeof(*dev->reached));
	if (dev->reached)
		status = shm_segment_create(config, &dev->seg);
	else
		status = FAIL(DICOMM_ERR_NO_MEMORY, "shm: out of memory");
	if (status != DICOMM_SUCCESS) {
		free(dev->reached);
		free(dev);
		return status;
	}
	*out = dev;
	return DICOMM_SUCCESS;
}

static void shm_set_slot_bytes(struct tp_device *dev, uint32_t slot_bytes)
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
	struct shm_rates rates = {.line_ps = 0};

	_Static_assert(sizeof(dev->config.key) == SHM_MEASURE_KEY, "its key");
	if (dev->config.ranks > 1)
		shm_measure(dev->config.key, &rates);
	shm_segment_address(dev->seg, &dev->host, &rates, address);
}

/* Map the header, which leads to the rings. Later the process may not be open
 * to others any more, or this one have no descriptor left. */
static bool hold(struct tp_device *dev, const struct shm_address *a, char *why,
		 size_t len)
{
	struct shm_segment *seg, *none = NULL;
	dicomm_result_t status;

	log_hold();
	status = shm_segment_attach(a, &seg);
	log_release(false);
	if (status != DICOMM_SUCCESS) {
		snprintf(why, len, "%s", log_last_error());
		return false;
	}
	if (!atomic_compare_exchange_strong(&dev->reached[a->rank], &none, seg))
		shm_segment_put(seg);
	return true;
}

/* Of a rank of another process that was not asked for before, nothing else need
 * be looked at: that it can be opened shows that it lives. */
static bool find_segment(struct tp_device *dev, const struct shm_address *a,
			 char *why, size_t len)
{
	const struct shm_segment *seg;
	char text[160];

	if (a->rank >= (uint32_t)dev->config.ranks ||
	    atomic_load(&dev->reached[a->rank]) || shm_segment_is_own(a))
		return shm_segment_reachable(a, why, len);
	if (!hold(dev, a, why, len)) {
		if (!shm_segment_reachable(a, text, sizeof(text)))
			snprintf(why, len, "%s", text);
		return false;
	}
	seg = atomic_load(&dev->reached[a->rank]);
	if (!atomic_load(&seg->head->withdrawn))
		return true;
	snprintf(why, len, "rank %" PRIu32 " has stopped", a->rank);
	return false;
}

static bool shm_reaches(struct tp_device *dev, const struct tp_blob *address,
			char *why, size_t len)
{
	struct shm_address a;

	if (!shm_address_parse(address, &a, why, len) ||
	    !shm_address_is_local(&a, &dev->host, why, len) ||
	    !find_segment(dev, &a, why, len))
		return false;
	shm_rates_tell(&a.rates);
	/* Each rank makes its address before it gets those of others. */
	shm_measure_end();
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
	    !shm_address_is_local(&a, &dev->host, why, sizeof(why)))
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
	peer->doorbell = &dev->no_doorbell;
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

/* Map the peer's segment when it is first needed. With many ranks, most pairs
 * never communicate. */
static dicomm_result_t peer_attach(struct tp_peer *peer)
{
	if (peer->mappings && peer->seg)
		return DICOMM_SUCCESS;
	CANCEL_HELD();
	if (!peer->mappings)
		TRY(shm_mappings_create(&peer->mappings));
	if (!peer->seg)
		TRY(shm_segment_attach(&peer->address, &peer->seg));
	peer->doorbell = &peer->seg->head->doorbell;
	return DICOMM_SUCCESS;
}

static uint64_t data_bytes(const struct tp_peer *peer)
{
	const struct tp_config *config = &peer->dev->config;

	return (uint64_t)config->slots * config->slot_bytes;
}

static dicomm_result_t make_exchange(struct out *o)
{
	if (!o->exchange)
		o->exchange = calloc(1, sizeof(*o->exchange));
	return o->exchange ? DICOMM_SUCCESS
			   : FAIL(DICOMM_ERR_NO_MEMORY, "shm: out of memory");
}

static dicomm_result_t shm_connect_out(struct tp_peer *peer, enum tp_class c,
				       struct tp_outbox *outbox)
{
	struct shm_segment *seg = peer->dev->seg;
	struct out *o = &peer->out[c];

	if (atomic_load(&peer->dev->aborted))
		return DICOMM_ERR_ABORTED;
	if (!o->ring) {
		TRY(make_exchange(o));
		TRY(shm_ring_create(seg, &o->ring));
		o->lines = o->ring->lines;
		o->data = o->ring->data;
		o->tail = o->ring->tail;
		o->mask = peer->dev->config.slots - 1;
		o->slot_bytes = peer->dev->config.slot_bytes;
		o->limit = peer->dev->config.slots;
		shm_exchange_ours(o->exchange, o->data + data_bytes(peer),
				  o->slot_bytes);
		atomic_store_explicit(directory(seg, peer->rank, c),
				      o->ring->offset, memory_order_release);
		/* For its doorbell. Without one, the peer looks now and then,
		 * so a failure is nothing to report. */
		log_catch(true);
		(void)peer_attach(peer);
		log_catch(false);
	}
	*outbox = (struct tp_outbox){
		.released = &o->tail->released,
		.data = o->data,
		.buffers = &o->exchange->count,
		.data_stride = o->slot_bytes,
		.slot_mask = (uint32_t)o->mask,
	};
	return DICOMM_SUCCESS;
}

static void announce_lengths(const struct tp_peer *peer, bool works,
			     enum shm_traffic traffic, struct shm_lengths *out)
{
	uint64_t first = UINT64_MAX, last = 0;
	uint64_t cache = peer->dev->core_cache_bytes;
	struct shm_rates r;

	if (works && peer->dev->cma == CMA_ON) {
		first = 1;
		last = UINT64_MAX;
	} else if (works) {
		shm_rates_get(&r);
		shm_cma_pays(&r, traffic,
			     traffic == SHM_BOTH_WAYS
				     ? CMA_EXCHANGE_CACHES * cache
				     : cache / CMA_COPY_PART,
			     &first, &last);
	}
	atomic_store_explicit(&out->last, last, memory_order_relaxed);
	atomic_store_explicit(&out->first, first, memory_order_release);
}

/* Tell the sender for which lengths this rank uses CMA. */
static void announce(const struct tp_peer *peer, struct shm_tail *tail)
{
	bool works = !peer->own && peer->dev->cma != CMA_OFF &&
		     !peer->reads_nothing && shm_cma_works(peer->seg);

	atomic_store_explicit(&tail->maps_nothing, peer->maps_nothing,
			      memory_order_relaxed);
	for (int i = SHM_ONE_WAY; i <= SHM_BOTH_WAYS; i++)
		announce_lengths(peer, works, (enum shm_traffic)i,
				 &tail->cma[i]);
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
		TRY(make_exchange(&peer->out[c]));
		TRY(shm_ring_attach(peer->seg, offset, &in->ring));
		in->tail = in->ring->tail;
		shm_exchange_theirs(peer->out[c].exchange,
				    in->ring->data + data_bytes(peer),
				    peer->dev->config.slot_bytes);
		announce(peer, in->tail);
	}
	inbox->lines = in->ring->lines;
	inbox->line_stride = sizeof(struct tp_line);
	inbox->data = in->ring->data;
	inbox->data_stride = peer->dev->config.slot_bytes;
	inbox->slot_mask = peer->dev->config.slots - 1;
	inbox->buffers = &peer->out[c].exchange->buffers;
	return DICOMM_SUCCESS;
}

/* Returns true if the peer has aborted. Then data that was loaded before may be
 * wrong, too: the owner sets the flag before its memory changes. */
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

/* Check that data which was read is valid. A receiver does so before it
 * releases the message; the owner's abort() waits for readers. */
static dicomm_result_t shm_intact(struct tp_peer *peer)
{
	if (!is_withdrawn(peer))
		return DICOMM_SUCCESS;
	if (peer->reading)
		reading_end(peer);
	return FAIL(DICOMM_ERR_REMOTE, "shm: rank %d has stopped", peer->rank);
}

/* Begin to read memory that the peer offers. That of a rank of this process may
 * be gone once its abort() has returned, so abort() waits for readers. A reader
 * first counts itself, then looks at the flag; abort() sets the flag, then
 * looks at the count. Memory that was mapped from another process stays mapped,
 * but its content may have changed. */
static dicomm_result_t reading_begin(struct tp_peer *peer)
{
	if (peer->own && !peer->reading) {
		atomic_fetch_add(&peer->seg->readers, 1);
		peer->reading = true;
	}
	return shm_intact(peer);
}

static void peer_free(struct tp_peer *peer)
{
	struct tp_peer **at;

	if (peer->reading)
		reading_end(peer);
	for (int c = 0; c < TP_CLASSES; c++) {
		shm_ring_put(peer->out[c].ring);
		shm_ring_put(peer->in[c].ring);
		free(peer->out[c].exchange);
		free(peer->in[c].pulls);
	}
	for (at = &peer->dev->pullers; *at; at = &(*at)->next_puller)
		if (*at == peer) {
			*at = peer->next_puller;
			break;
		}
	shm_mappings_destroy(peer->mappings);
	shm_segment_put(peer->seg);
	at = &peer->dev->peers;
	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	free(peer);
}

/* It may come back, with new rings. */
static void shm_peer_close(struct tp_peer *peer)
{
	if (!peer)
		return;
	for (int c = 0; c < TP_CLASSES; c++)
		atomic_store(
			directory(peer->dev->seg, peer->rank, (enum tp_class)c),
			0);
	peer_free(peer);
}

/* The rings of this rank are found for as long as somebody maps its header:
 * what it has sent counts, also for a peer that had not connected yet. */
static void shm_close(struct tp_device *dev)
{
	if (!dev)
		return;
	shm_measure_end();
	while (dev->peers)
		peer_free(dev->peers);
	for (int r = 0; r < dev->config.ranks; r++)
		shm_segment_put(atomic_load(&dev->reached[r]));
	free(dev->reached);
	shm_segment_put(dev->seg);
	free(dev);
}

/* Copies up to TP_LINE_ROOM bytes by a few moves, which may overlap. */
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
		/* By words: of what was written word by word a moment ago,
		 * more cannot be loaded at once without waiting. */
		for (uint64_t at = 0; at + 8 < len; at += 8)
			__builtin_memcpy(dst + at, src + at, 8);
		__builtin_memcpy(dst + len - 8, src + len - 8, 8);
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

static inline dicomm_result_t deliver(const struct tp_peer *peer,
				      struct tp_line *line, uint64_t seq,
				      uint32_t signature, enum tp_kind kind,
				      uint64_t len)
{
	line->signature = signature;
	line->kind = kind;
	line->len = len;
	atomic_store_explicit(&line->seq, seq, memory_order_release);
	doorbell_notify(peer->doorbell);
	return DICOMM_SUCCESS;
}

/* Load how far the receiver has released. Returns AGAIN if message seq still
 * has no credit. */
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

/* The receiver may ask for what it cannot reach. */
static void add_puller(struct tp_peer *peer)
{
	if (peer->own || peer->may_pull)
		return;
	peer->may_pull = true;
	peer->next_puller = peer->dev->pullers;
	peer->dev->pullers = peer;
}

/* Handles everything but data that fits the line: data elsewhere, references,
 * and puts that have to look for new credits. Not inlined into shm_put(), so
 * that a short message saves no registers. */
static dicomm_result_t __attribute__((noinline))
put_any(struct tp_peer *peer, enum tp_class c, uint64_t seq, uint32_t signature,
	enum tp_kind kind, const void *body, uint64_t len)
{
	struct out *o = &peer->out[c];
	struct tp_line *line;
	uint8_t *at;

	if (seq > o->limit)
		TRY(refresh_credits(peer, o, seq));
	line = &o->lines[seq & o->mask];
	if (kind == TP_REF) {
		add_puller(peer);
		memcpy(line->room, body,
		       shm_ref_how(body) == SHM_MAP ? SHM_MAP_REF_BYTES
						    : SHM_REF_BYTES);
	} else if (len <= TP_LINE_ROOM) {
		copy_small(line->room, body, len);
	} else if (len <= o->slot_bytes) {
		at = shm_exchange_take(o->exchange, peer->in[c].consumed,
				       line->room);
		if (at)
			kind = TP_BUFFER;
		else
			at = o->data + (seq & o->mask) * o->slot_bytes;
		memcpy(at, body, len);
	} else {
		return FAIL(DICOMM_ERR_INTERNAL,
			    "shm: put of %" PRIu64 " bytes into a slot of "
			    "%" PRIu64,
			    len, o->slot_bytes);
	}
	return deliver(peer, line, seq, signature, kind, len);
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
		return put_any(peer, c, seq, signature, kind, body, len);
	line = &o->lines[seq & o->mask];
	copy_small(line->room, body, len);
	return deliver(peer, line, seq, signature, TP_DATA, len);
}

static dicomm_result_t shm_release(struct tp_peer *peer, enum tp_class c,
				   uint64_t seq)
{
	struct in *in = &peer->in[c];

	if (__builtin_expect(peer->reading, 0))
		reading_end(peer);
	in->consumed = seq;
	atomic_store_explicit(&in->tail->released, seq, memory_order_release);
	doorbell_notify(peer->doorbell);
	return DICOMM_SUCCESS;
}

/* A release is visible to the sender at once, so there is nothing to do. */
static bool shm_flush(struct tp_device *dev)
{
	(void)dev;
	return true;
}

/* Returns true if the receiver should read this message by CMA. CMA makes a
 * copy; if the receiver would only load the bytes, that does not pay. */
static bool cma_pays_for(const struct tp_peer *peer, enum tp_class c,
			 uint64_t len, enum tp_want want)
{
	const struct tp_device *dev = peer->dev;
	const struct out *o = &peer->out[c];
	bool in_turn = shm_exchange_has(o->exchange) * o->slot_bytes >= len;
	const struct shm_lengths *l =
		&o->tail->cma[want != TP_WANT_COPY ? SHM_BOTH_WAYS
			      : in_turn            ? SHM_IN_TURN
						   : SHM_ONE_WAY];
	uint64_t first = atomic_load_explicit(&l->first, memory_order_acquire);

	if (want == TP_WANT_ANYHOW)
		return true;
	/* DICOMM_SHM_CMA=on: use it always. */
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
	how.maps = true;
	for (int c = 0; c < TP_CLASSES; c++) {
		const struct shm_tail *tail = peer->out[c].tail;

		if (!tail)
			continue;
		/* Nobody says for which class; one for which it pays will do.
		 */
		how.cma |= cma_pays_for(peer, (enum tp_class)c, len, want);
		how.maps &= want == TP_WANT_ANYHOW ||
			    !atomic_load_explicit(&tail->maps_nothing,
						  memory_order_relaxed);
	}
	shm_freed_publish(peer->dev->seg);
	return shm_ref_make(&how, addr, len, ref);
}

static bool fails_always(const struct tp_peer *peer, enum shm_how how)
{
	return how == SHM_MAP ? peer->maps_nothing : peer->reads_nothing;
}

/* This way to the peer's memory worked when it was tested, and does not now. So
 * tell the peer to send through the ring; it copies what is under way. */
static dicomm_result_t next_way(struct tp_peer *peer, enum shm_how how,
				const char *why)
{
	struct tp_device *dev = peer->dev;

	TRY(shm_intact(peer));
	if (kill(peer->address.pid, 0) < 0 && errno == ESRCH)
		return FAIL(DICOMM_ERR_REMOTE, "shm: rank %d (process %d): %s",
			    peer->rank, peer->address.pid, why);
	if (!dev->warned)
		log_warn("shm: rank %d: cannot %s memory of rank %d (process "
			 "%d): %s; it goes through the ring from now on",
			 dev->config.rank, how == SHM_MAP ? "map" : "read",
			 peer->rank, peer->address.pid, why);
	dev->warned = true;
	if (how == SHM_MAP)
		peer->maps_nothing = true;
	else
		peer->reads_nothing = true;
	for (int c = 0; c < TP_CLASSES; c++)
		if (peer->in[c].tail)
			announce(peer, peer->in[c].tail);
	return DICOMM_SUCCESS;
}

static dicomm_result_t shm_map(struct tp_peer *peer, const struct tp_ref *ref,
			       uint64_t len, const void **ptr)
{
	dicomm_result_t status;

	if (!peer->seg)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "shm: map from rank %d before connect_in",
			    peer->rank);
	TRY(reading_begin(peer));
	if (peer->maps_nothing && shm_ref_how(ref) == SHM_MAP)
		return DICOMM_ERR_UNSUPPORTED;
	status = shm_ref_map(peer->mappings, peer->seg, ref, len, ptr);
	if (status != DICOMM_IN_PROGRESS)
		return status;
	TRY(next_way(peer, SHM_MAP, strerror(errno)));
	return DICOMM_ERR_UNSUPPORTED;
}

static dicomm_result_t shm_read(struct tp_peer *peer, enum tp_class c,
				uint64_t seq, const struct tp_ref *ref,
				uint64_t offset, void *dst, uint64_t len)
{
	enum shm_how how = shm_ref_how(ref);
	bool mapped = peer->reading;
	struct in *in = &peer->in[c];
	uint64_t got = 0;
	dicomm_result_t status;

	if (!peer->seg)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "shm: read from rank %d before connect_in",
			    peer->rank);
	if (how == SHM_POINTER || !fails_always(peer, how)) {
		TRY(reading_begin(peer));
		status = shm_ref_read(peer->mappings, peer->seg, ref, offset,
				      dst, len, peer->aborted, &got);
		if (peer->reading && !mapped)
			reading_end(peer);
		if (status == DICOMM_SUCCESS)
			return shm_intact(peer);
		if (status != DICOMM_IN_PROGRESS)
			return status;
		TRY(next_way(peer, how, strerror(errno)));
	}
	if (atomic_load(&peer->dev->aborted))
		return DICOMM_ERR_ABORTED;
	if (!in->pulls)
		in->pulls = calloc(peer->dev->config.slots, sizeof(*in->pulls));
	if (!in->pulls)
		return FAIL(DICOMM_ERR_NO_MEMORY, "shm: out of memory");
	status = shm_pull_begin(in->ring, in->pulls, in->consumed, seq,
				(uint8_t *)dst + got,
				shm_ref_address(ref) + offset + got, len - got);
	doorbell_notify(peer->doorbell);
	return status;
}

/* shm_read() copies everything before it returns, but for what the sender
 * copies. */
static dicomm_result_t shm_read_status(struct tp_peer *peer, enum tp_class c,
				       uint64_t seq)
{
	struct in *in = &peer->in[c];
	dicomm_result_t status;

	if (!in->pulls)
		return DICOMM_SUCCESS;
	if (atomic_load(&peer->dev->aborted))
		return DICOMM_ERR_ABORTED;
	TRY(shm_intact(peer));
	status = shm_pull_poll(in->ring, in->pulls, seq);
	doorbell_notify(peer->doorbell); /* it may have asked for more */
	return status;
}

/* Returns the number of the last message in the ring. Messages arrive in
 * order. */
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

/* Unmap what a peer has freed. A pointer from map() is in use until its message
 * is released, and a peer that has aborted does not wait for that. So when the
 * peer's list of freed allocations changes, this marks them, and unmaps them
 * when all messages are released that had arrived by then. */
static void unmap_freed(struct tp_peer *peer)
{
	if (!peer->mappings || !peer->seg)
		return;
	if (!peer->marked) {
		if (!shm_mappings_mark_freed(peer->mappings, peer->seg))
			return;
		peer->marked = true;
		for (int c = 0; c < TP_CLASSES; c++)
			peer->in[c].quiet_at = last_arrived(peer, &peer->in[c]);
	}
	for (int c = 0; c < TP_CLASSES; c++)
		if (peer->in[c].consumed < peer->in[c].quiet_at)
			return;
	shm_mappings_unmap_marked(peer->mappings, peer->seg);
	peer->marked = false;
}

/* Copy for peers what they cannot reach themselves. */
static bool copy_for_peers(struct tp_device *dev)
{
	bool moved = false;

	if (atomic_load(&dev->aborted))
		return false;
	for (struct tp_peer *p = dev->pullers; p; p = p->next_puller)
		for (int c = 0; c < TP_CLASSES; c++)
			if (p->out[c].ring &&
			    shm_pull_serve(p->out[c].ring,
					   &p->out[c].questions)) {
				doorbell_notify(p->doorbell);
				moved = true;
			}
	return moved;
}

/* Messages need no progress here: the receiver looks at the lines. */
static bool shm_poll(struct tp_device *dev)
{
	bool moved = false;

	if (__builtin_expect(dev->pullers != NULL, 0))
		moved = copy_for_peers(dev);
	if (++dev->polls % POLLS_PER_UNMAP)
		return moved;
	shm_freed_publish(dev->seg);
	for (struct tp_peer *peer = dev->peers; peer; peer = peer->next)
		unmap_freed(peer);
	return moved;
}

static dicomm_result_t shm_broken(struct tp_device *dev, int *peer)
{
	(void)dev;
	(void)peer;
	return DICOMM_SUCCESS; /* memory does not fail */
}

static void shm_wait(struct tp_device *dev, unsigned us)
{
	doorbell_wait(&dev->seg->head->doorbell, us);
}

static doorbell_word *shm_rest(struct tp_device *dev)
{
	return &dev->seg->head->doorbell.server;
}

/* Only rings are ever written, so there is nothing to stop. But other ranks of
 * this process may be reading memory that this rank has offered, and its user
 * may free it next. So wait until those reads have ended. The wait is bounded,
 * since such a thread may have been stopped. */
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
	.intra_node = true,
	.wait_wakes = true,
	.usable = shm_usable,
	.open = shm_open_device,
	.set_slot_bytes = shm_set_slot_bytes,
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
	/* All memory that this process can read, its peers can read, too. */
	.mem_reg = defaults_mem_reg,
	.mem_reg_device = defaults_mem_reg_device,
	.mem_support = defaults_mem_support,
	.mem_dereg = defaults_mem_dereg,
	.offer = shm_offer,
	.map = shm_map,
	.intact = shm_intact,
	.read = shm_read,
	.read_status = shm_read_status,
	.poll = shm_poll,
	.wait = shm_wait,
	.rest = shm_rest,
	.broken = shm_broken,
	.abort = shm_abort,
	.memory = shm_memory,
};
