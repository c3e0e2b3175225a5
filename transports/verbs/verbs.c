/* SPDX-License-Identifier: BSD-3-Clause */
/* The verbs transport: its operations. */
#include "transports/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "transports/common.h"

/* What a message is on the wire: a line from its signature on. */
#define HEAD_BYTES 16
#define LINE_SEQ_BYTES offsetof(struct tp_line, signature)
#define LINE_HEAD_BYTES offsetof(struct tp_line, room)
/* Messages that wait to be sent and do not fit inline. */
#define POOL_COUNT 32
/* Polls in a row that find nothing, before credits are told that nobody need
 * wait for. */
#define IDLE_POLLS 1024
/* For requests in flight to end, at close and abort. */
#define DRAIN_NS UINT64_C(2000000000)
#define COMPLETIONS 16
/* Of the completion queue, which grows with the lanes. */
#define CQE_FIRST 256
#define CQE_FIRST_MAX 65536

_Static_assert(LINE_HEAD_BYTES - LINE_SEQ_BYTES == HEAD_BYTES, "head");

/* What a request was, from its completion. */
struct request {
	uint32_t count; /* of its lane: all up to it are done; lower bits */
	uint32_t bytes;
	uint32_t lane;
	bool in;
	uint16_t what; /* sender: pool buffer + 1; receiver: read + 1 */
};
#define COUNT_BITS 11 /* more than a lane's queue is long */
#define COUNT_MASK ((1u << COUNT_BITS) - 1)
#define LANE_BITS 20

static uint64_t request_id(const struct verbs_lane *lane, uint32_t ahead,
			   uint32_t what, uint32_t bytes)
{
	return ((lane->posted + ahead) & COUNT_MASK) |
	       (uint64_t)bytes << COUNT_BITS | (uint64_t)lane->id << 32 |
	       (uint64_t)what << 52 | (uint64_t)lane->in << 63;
}

static struct request request_of(uint64_t id)
{
	return (struct request){
		.count = (uint32_t)id & COUNT_MASK,
		.bytes = (uint32_t)id >> COUNT_BITS,
		.lane = (uint32_t)(id >> 32) & ((1u << LANE_BITS) - 1),
		.what = (uint16_t)(id >> 52 & 0x7ff),
		.in = id >> 63,
	};
}

/* ---- holds ---- */

static void holds_lock(struct tp_device *dev)
{
	while (atomic_flag_test_and_set_explicit(&dev->holding,
						 memory_order_acquire))
		cpu_relax();
}

static void holds_unlock(struct tp_device *dev)
{
	atomic_flag_clear_explicit(&dev->holding, memory_order_release);
}

static void add_hold(struct tp_device *dev, struct tp_hold *hold)
{
	holds_lock(dev);
	hold->next = dev->holds;
	dev->holds = hold;
	holds_unlock(dev);
}

static dicomm_result_t verbs_hold(struct tp_device *dev, const void *addr,
				  uint64_t len, bool written,
				  struct tp_hold **out)
{
	struct tp_hold *hold = malloc(sizeof(*hold));
	dicomm_result_t status;

	if (!hold)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	status = verbs_mr_get(dev->nic, addr, len, written, &hold->mr);
	if (status != DICOMM_SUCCESS) {
		free(hold);
		return status;
	}
	hold->flushed = false;
	add_hold(dev, hold);
	*out = hold;
	return DICOMM_SUCCESS;
}

static dicomm_result_t verbs_hold_device(struct tp_device *dev,
					 const struct tp_region *region,
					 struct tp_hold **out, char *how,
					 size_t len)
{
	bool flushed = region->accel->work->caps(region->index) & ACCEL_FLUSH;
	struct tp_hold *hold;
	dicomm_result_t status;

	/* Only librdmacm connects its queue pairs, and to others. */
	if (flushed && dev->nic->fabric == VERBS_IWARP) {
		snprintf(how, len,
			 "%s: over iWARP what it writes to a device cannot be "
			 "flushed",
			 dev->nic->name);
		return DICOMM_ERR_UNSUPPORTED;
	}
	if (flushed)
		TRY(verbs_mirror_open(dev));
	hold = malloc(sizeof(*hold));
	if (!hold)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	status = verbs_mr_get_device(dev->nic, region, &hold->mr, how, len);
	if (status != DICOMM_SUCCESS) {
		free(hold);
		return status;
	}
	hold->flushed = flushed;
	add_hold(dev, hold);
	*out = hold;
	return DICOMM_SUCCESS;
}

static void verbs_drop(struct tp_device *dev, struct tp_hold *hold)
{
	struct tp_hold **at = &dev->holds;

	holds_lock(dev);
	while (*at != hold)
		at = &(*at)->next;
	*at = hold->next;
	holds_unlock(dev);
	verbs_mr_put(dev->nic, hold->mr);
	free(hold);
}

static bool covers(const struct verbs_mr *m, uintptr_t base, uint64_t len)
{
	return base >= m->base && base - m->base <= m->len &&
	       len <= m->len - (base - m->base);
}

/* Which hold memory is in; NULL: it is not held. */
static const struct tp_hold *find_hold(struct tp_device *dev, const void *addr,
				       uint64_t len, bool written)
{
	const struct tp_hold *h;

	holds_lock(dev);
	for (h = dev->holds; h; h = h->next)
		if (covers(h->mr, (uintptr_t)addr, len) &&
		    (h->mr->written || !written))
			break;
	holds_unlock(dev);
	return h;
}

/* ---- device ---- */

static bool verbs_usable(char *why, size_t len)
{
	return verbs_nic_find(why, len);
}

dicomm_result_t verbs_reserve(struct tp_device *dev, uint32_t n)
{
	uint32_t wanted = dev->cqe_reserved + n;
	int cqe = dev->cqe;
	int error = 0;

	while ((uint32_t)cqe < wanted)
		cqe *= 2;
	if (cqe > dev->nic->attr.max_cqe)
		cqe = dev->nic->attr.max_cqe;
	if ((uint32_t)cqe < wanted)
		return FAIL(DICOMM_ERR_NO_PATH,
			    "verbs %s: its completion queues hold %d entries, "
			    "%u are needed for one more peer",
			    dev->nic->name, dev->nic->attr.max_cqe, wanted);
	if (cqe > dev->cqe) {
		/* Drivers do not expect a look at it meanwhile. */
		while (atomic_flag_test_and_set_explicit(&dev->polling,
							 memory_order_acquire))
			sched_yield();
		error = ibv_resize_cq(dev->cq, cqe);
		atomic_flag_clear_explicit(&dev->polling, memory_order_release);
	}
	if (error) {
		errno = error;
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s: completion queue of %d entries: %m",
			    dev->nic->name, cqe);
	}
	dev->cqe = cqe;
	dev->cqe_reserved = wanted;
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_post_receives(struct tp_device *dev, uint32_t n)
{
	struct ibv_recv_wr wr = {.next = NULL}, *bad;
	struct ibv_sge sge = {.length = sizeof(uint32_t)};
	int error;

	for (uint32_t i = 0; i < n; i++) {
		if (dev->notes) {
			wr.wr_id = dev->notes_count++;
			sge.addr = (uintptr_t)&dev->notes[wr.wr_id];
			sge.lkey = dev->notes_mr->lkey;
			wr.sg_list = &sge;
			wr.num_sge = 1;
		}
		error = ibv_post_srq_recv(dev->srq, &wr, &bad);
		if (error) {
			errno = error;
			return FAIL(DICOMM_ERR_SYSTEM,
				    "verbs %s: post a receive: %m",
				    dev->nic->name);
		}
	}
	return DICOMM_SUCCESS;
}

/* Entries to begin with. Not all of iWARP can make it longer later. */
static int first_cqe(const struct tp_device *dev)
{
	uint64_t n = CQE_FIRST;

	if (dev->nic->fabric == VERBS_IWARP)
		n += (uint64_t)dev->lanes *
		     (VERBS_READS + 16 + 5 * dev->config.slots);
	if (n > CQE_FIRST_MAX)
		n = CQE_FIRST_MAX;
	if (n > (uint64_t)dev->nic->attr.max_cqe)
		n = (uint64_t)dev->nic->attr.max_cqe;
	return (int)n;
}

static dicomm_result_t open_queues(struct tp_device *dev)
{
	struct verbs_nic *nic = dev->nic;
	uint64_t receives =
		(uint64_t)dev->lanes * dev->config.slots + VERBS_BATCH;
	struct ibv_srq_init_attr attr = {.attr = {.max_sge = 1}};

	if (receives > (uint64_t)nic->attr.max_srq_wr)
		receives = (uint64_t)nic->attr.max_srq_wr;
	attr.attr.max_wr = (uint32_t)receives;
	dev->cqe = first_cqe(dev);
	dev->cq = ibv_create_cq(nic->context, dev->cqe, NULL, NULL, 0);
	if (!dev->cq)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s: completion queue of %d entries: %m",
			    nic->name, dev->cqe);
	dev->srq = ibv_create_srq(nic->pd, &attr);
	if (!dev->srq)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s: receive queue of %u requests: %m",
			    nic->name, attr.attr.max_wr);
	if (nic->fabric == VERBS_IWARP) {
		dev->notes = calloc(receives, sizeof(*dev->notes));
		if (!dev->notes)
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "verbs: out of memory");
		dev->notes_mr = ibv_reg_mr(nic->pd, dev->notes,
					   receives * sizeof(*dev->notes),
					   IBV_ACCESS_LOCAL_WRITE);
		if (!dev->notes_mr)
			return FAIL(DICOMM_ERR_SYSTEM,
				    "verbs %s: register receives: %m",
				    nic->name);
	}
	for (int i = 0; i < VERBS_BATCH; i++)
		dev->batch[i].next =
			i + 1 < VERBS_BATCH ? &dev->batch[i + 1] : NULL;
	/* Posting again is put off until there is a batch. */
	return verbs_post_receives(dev, VERBS_BATCH);
}

static dicomm_result_t open_words(struct tp_device *dev)
{
	size_t bytes = (dev->lanes + 1) * sizeof(*dev->words);

	dev->words = calloc(1, bytes);
	dev->in = calloc(dev->lanes, sizeof(*dev->in));
	dev->out = calloc(dev->lanes, sizeof(*dev->out));
	if (!dev->words || !dev->in || !dev->out)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "verbs: no memory for %d ranks", dev->config.ranks);
	dev->words_mr =
		ibv_reg_mr(dev->nic->pd, (void *)dev->words, bytes,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!dev->words_mr)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s: register %zu bytes for credits: %m",
			    dev->nic->name, bytes);
	return DICOMM_SUCCESS;
}

/* At the first lane to send on. */
static dicomm_result_t open_pool(struct tp_device *dev)
{
	struct verbs_pool *p = &dev->pool;
	size_t bytes;

	if (p->mr)
		return DICOMM_SUCCESS;
	p->bytes = dev->stride;
	bytes = (size_t)POOL_COUNT * p->bytes;
	p->memory = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	p->spare = calloc(POOL_COUNT, sizeof(*p->spare));
	if (p->memory && p->spare)
		p->mr = ibv_reg_mr(dev->nic->pd, p->memory, bytes,
				   IBV_ACCESS_LOCAL_WRITE);
	if (!p->mr) {
		free(p->memory);
		free(p->spare);
		p->memory = NULL;
		p->spare = NULL;
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "verbs %s: %zu bytes to send from: %m",
			    dev->nic->name, bytes);
	}
	p->count = POOL_COUNT;
	for (uint16_t i = 0; i < POOL_COUNT; i++)
		p->spare[p->nspare++] = i;
	return DICOMM_SUCCESS;
}

static void verbs_close(struct tp_device *dev);

static dicomm_result_t open_parts(struct tp_device *dev)
{
	TRY(verbs_nic_get((unsigned)dev->config.rank, &dev->nic));
	TRY(open_queues(dev));
	TRY(open_words(dev));
	return verbs_connect_open(dev);
}

static dicomm_result_t verbs_open(const struct tp_config *config,
				  struct tp_device **out)
{
	struct tp_device *dev;
	dicomm_result_t status;

	TRY(common_check_config("verbs", config));
	if (config->slots > 64)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "verbs: %u slots, at most 64 can be",
			    config->slots);
	if ((uint64_t)config->ranks * TP_CLASSES >> LANE_BITS)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "verbs: %d ranks are too many for it",
			    config->ranks);
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	dev->config = *config;
	atomic_flag_clear(&dev->polling);
	atomic_flag_clear(&dev->holding);
	dev->lanes = (uint32_t)config->ranks * TP_CLASSES;
	dev->eager_bytes = (uint32_t)config_int(CONFIG_IB_EAGER_BYTES);
	if (dev->eager_bytes > config->slot_bytes)
		dev->eager_bytes = config->slot_bytes;
	dev->stride = (uint32_t)((LINE_HEAD_BYTES + dev->eager_bytes +
				  TP_LINE_BYTES - 1) /
				 TP_LINE_BYTES * TP_LINE_BYTES);
	gethostname(dev->host, sizeof(dev->host) - 1);
	status = open_parts(dev);
	if (status != DICOMM_SUCCESS) {
		verbs_close(dev);
		return status;
	}
	log_debug("verbs: rank %d uses %s port %u, %s, %" PRIu64 " MB/s",
		  config->rank, dev->nic->name, dev->nic->port,
		  verbs_fabric_name(dev->nic->fabric),
		  dev->nic->bytes_per_s / 1000000);
	*out = dev;
	return DICOMM_SUCCESS;
}

static void verbs_address(const struct tp_device *dev, struct tp_blob *address)
{
	verbs_address_make(dev, address);
}

/* ---- peers ---- */

static bool verbs_reaches(struct tp_device *dev, const struct tp_blob *address,
			  char *why, size_t len)
{
	struct verbs_address a;

	if (!verbs_address_parse(address, &a, why, len))
		return false;
	if (a.fabric != dev->nic->fabric) {
		snprintf(why, len, "its NIC %s speaks %s, mine (%s) %s", a.nic,
			 verbs_fabric_name((enum verbs_fabric)a.fabric),
			 dev->nic->name, verbs_fabric_name(dev->nic->fabric));
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
	TRY(common_check_peer("verbs", config, dev->eager_bytes, rank,
			      &(struct common_terms){a.rank, a.ranks, a.slots,
						     a.eager_bytes}));
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	peer->dev = dev;
	peer->rank = rank;
	peer->address = a;
	peer->next = dev->peers;
	dev->peers = peer;
	*out = peer;
	return DICOMM_SUCCESS;
}

static void verbs_limits(const struct tp_peer *peer, struct tp_limits *limits)
{
	const struct tp_device *dev = peer->dev;

	/* Credits are told at every half of the slots; see release(). */
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
	if (!lane) {
		TRY(open_pool(dev));
		TRY(verbs_connect_call(dev, &peer->address, c, &peer->out[c]));
		return DICOMM_AGAIN;
	}
	switch (atomic_load_explicit(&lane->state, memory_order_acquire)) {
	case LANE_READY:
		out->released = lane->released;
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
	in->data = lane->slots + LINE_HEAD_BYTES;
	in->data_stride = lane->stride;
	in->slot_mask = peer->dev->config.slots - 1;
	return DICOMM_SUCCESS;
}

static void verbs_cost(struct tp_peer *peer, struct tp_cost *cost)
{
	/* Of a NIC of today; switches add a fraction of it. */
	cost->latency_ps = 2000000;
	cost->bytes_per_s = peer->dev->nic->bytes_per_s;
	cost->pull_bytes_per_s = peer->dev->nic->bytes_per_s;
}

/* ---- sending ---- */

/* The lane's state as a status, with its words as the last error. */
static dicomm_result_t state_of(struct verbs_lane *lane)
{
	if (lane->why) {
		log_set_last_error(lane->text);
		return lane->why;
	}
	if (!atomic_load_explicit(&lane->left, memory_order_acquire))
		return DICOMM_SUCCESS;
	lane->why = DICOMM_ERR_REMOTE;
	snprintf(lane->text, sizeof(lane->text),
		 "verbs: rank %d (%s) has closed its side", lane->rank,
		 lane->remote);
	return FAIL(lane->why, "%s", lane->text);
}

static dicomm_result_t post(struct verbs_lane *lane, struct ibv_send_wr *wr,
			    uint32_t n)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(lane->qp, wr, &bad);

	if (__builtin_expect(!error, 1)) {
		lane->posted += n;
		return DICOMM_SUCCESS;
	}
	if (atomic_load(&lane->dev->aborted))
		return DICOMM_ERR_ABORTED;
	errno = error;
	return FAIL(DICOMM_ERR_SYSTEM,
		    "verbs %s port %u: rank %d (%s): post a request: %m",
		    lane->dev->nic->name, lane->dev->nic->port, lane->rank,
		    lane->remote);
}

/* Every so many requests one is signalled, so that the send queue can be
 * emptied; half of it may wait for that. */
static unsigned signal_now(struct verbs_lane *lane, uint32_t n, bool must)
{
	lane->unsignaled += n;
	if (!must && lane->unsignaled < lane->depth / 4)
		return 0;
	lane->unsignaled = 0;
	return IBV_SEND_SIGNALED;
}

static bool has_room(const struct verbs_lane *lane, uint32_t n)
{
	return lane->posted - lane->done + n <= lane->depth;
}

/* No credits known, or a full queue: look again. */
static __attribute__((noinline)) dicomm_result_t
refresh(struct verbs_lane *lane, int rank, uint64_t seq)
{
	if (!lane)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: put to rank %d before connect_out", rank);
	TRY(state_of(lane));
	lane->limit =
		atomic_load_explicit(lane->released, memory_order_acquire) +
		lane->dev->config.slots;
	return seq > lane->limit || !has_room(lane, 2) ? DICOMM_AGAIN
						       : DICOMM_SUCCESS;
}

/* A reference as it travels in a tp_ref. */
struct reference {
	uint64_t addr;
	uint32_t key, pad;
};

static dicomm_result_t verbs_put(struct tp_peer *peer, enum tp_class c,
				 uint64_t seq, uint32_t signature,
				 enum tp_kind kind, const void *body,
				 uint64_t len)
{
	struct tp_device *dev = peer->dev;
	struct verbs_lane *lane = peer->out[c];
	uint32_t slots = dev->config.slots;
	uint32_t bytes = (uint32_t)len, what = 0, n = 1;
	struct {
		uint32_t signature, kind;
		uint64_t len;
	} head;
	struct ibv_send_wr *wr, *last;
	uint32_t imm;

	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (__builtin_expect(!lane || seq > lane->limit || !has_room(lane, 2) ||
				     lane->why,
			     0))
		TRY(refresh(lane, peer->rank, seq));
	if (kind == TP_REF)
		bytes = sizeof(struct reference);
	else if (__builtin_expect(len > dev->eager_bytes, 0))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: put of %" PRIu64 " bytes into a slot of "
			    "%u",
			    len, dev->eager_bytes);
	/* The number travels in both words that are looked at anyway. */
	head.signature = signature;
	head.kind = (uint32_t)kind | ((uint32_t)seq & ~0xffu);
	head.len = len;
	imm = ((uint32_t)dev->config.rank * TP_CLASSES + c) << 8 |
	      ((uint32_t)seq & 0xff);

	wr = &lane->wr;
	lane->sge[0].addr = (uintptr_t)&head;
	lane->sge[0].length = HEAD_BYTES;
	lane->sge[1].addr = (uintptr_t)body;
	lane->sge[1].length = bytes;
	wr->num_sge = 1 + (bytes > 0);
	wr->send_flags = IBV_SEND_INLINE;
	if (HEAD_BYTES + bytes > lane->max_inline) {
		struct verbs_pool *pool = &dev->pool;
		uint8_t *copy;

		if (!pool->nspare)
			return DICOMM_AGAIN;
		what = pool->spare[--pool->nspare] + 1u;
		copy = pool->memory + (what - 1) * (size_t)pool->bytes;
		memcpy(copy, &head, HEAD_BYTES);
		memcpy(copy + HEAD_BYTES, body, bytes);
		lane->sge[0].addr = (uintptr_t)copy;
		lane->sge[0].length = HEAD_BYTES + bytes;
		lane->sge[0].lkey = pool->mr->lkey;
		wr->num_sge = 1;
		wr->send_flags = 0;
	}
	wr->wr.rdma.remote_addr = lane->remote_addr +
				  (seq & (slots - 1)) * lane->stride +
				  LINE_SEQ_BYTES;
	wr->imm_data = imm = htonl(imm);
	last = wr;
	if (__builtin_expect(wr->next != NULL, 0)) {
		lane->note_sge.addr = (uintptr_t)&imm;
		lane->note_sge.length = sizeof(imm);
		lane->note.send_flags = IBV_SEND_INLINE;
		wr->wr_id = request_id(lane, 0, 0, bytes);
		/* siw may still send from a buffer when a write that was not
		 * signalled is complete, and all before it. */
		if (what)
			wr->send_flags |= IBV_SEND_SIGNALED;
		last = &lane->note;
		n = 2;
	}
	last->wr_id = request_id(lane, n - 1, what, bytes);
	last->send_flags |= signal_now(lane, n, what != 0);
	return post(lane, wr, n);
}

/* ---- receiving ---- */

static void untold_add(struct verbs_lane *lane)
{
	struct verbs_lane **head = &lane->dev->untold;

	if (lane->untold_link)
		return;
	lane->untold = *head;
	if (*head)
		(*head)->untold_link = &lane->untold;
	lane->untold_link = head;
	*head = lane;
}

static void untold_remove(struct verbs_lane *lane)
{
	if (!lane->untold_link)
		return;
	*lane->untold_link = lane->untold;
	if (lane->untold)
		lane->untold->untold_link = lane->untold_link;
	lane->untold_link = NULL;
}

/* Write the credits to the sender; if the queue is full, later. */
static dicomm_result_t tell(struct verbs_lane *lane, bool signalled)
{
	uint64_t word = lane->freed;
	struct ibv_sge sge = {.addr = (uintptr_t)&word, .length = sizeof(word)};
	struct ibv_send_wr wr = {
		.wr_id = request_id(lane, 0, 0, sizeof(word)),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_INLINE,
		.wr.rdma = {.remote_addr = lane->remote_addr,
			    .rkey = lane->remote_key},
	};

	if (!has_room(lane, 1)) {
		untold_add(lane);
		return DICOMM_SUCCESS;
	}
	untold_remove(lane);
	/* Who has left needs no credits. */
	if (lane->why ||
	    atomic_load_explicit(&lane->left, memory_order_relaxed))
		return DICOMM_SUCCESS;
	wr.send_flags |= signal_now(lane, 1, signalled);
	lane->told = lane->freed;
	return post(lane, &wr, 1);
}

static dicomm_result_t verbs_release(struct tp_peer *peer, enum tp_class c,
				     uint64_t seq)
{
	struct verbs_lane *lane = peer->in[c];

	if (!lane ||
	    atomic_load_explicit(&peer->dev->aborted, memory_order_relaxed))
		return DICOMM_SUCCESS;
	lane->freed = seq;
	if (seq - lane->told >= peer->dev->config.slots / 2)
		return tell(lane, false);
	if (seq != lane->told)
		untold_add(lane);
	return DICOMM_SUCCESS;
}

static void tell_all(struct tp_device *dev)
{
	struct verbs_lane *next;

	for (struct verbs_lane *l = dev->untold; l; l = next) {
		next = l->untold;
		if (has_room(l, 1))
			tell(l, false);
	}
}

static void verbs_flush(struct tp_device *dev)
{
	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return;
	for (struct verbs_lane *l = dev->untold; l; l = l->untold)
		l->urgent = false;
	tell_all(dev);
}

static bool verbs_offer(struct tp_peer *peer, const void *addr, uint64_t len,
			enum tp_want want, struct tp_ref *ref)
{
	struct reference r = {.addr = (uintptr_t)addr};
	const struct tp_hold *hold = find_hold(peer->dev, addr, len, false);

	_Static_assert(sizeof(r) <= sizeof(*ref), "must fit");
	(void)want;
	if (!hold)
		return false;
	r.key = hold->mr->mr->rkey;
	memcpy(ref, &r, sizeof(r));
	return true;
}

/* To itself a rank needs no NIC. */
static dicomm_result_t verbs_map(struct tp_peer *peer, const struct tp_ref *ref,
				 uint64_t len, const void **ptr)
{
	struct reference r;

	(void)len;
	if (peer->rank != peer->dev->config.rank)
		return DICOMM_ERR_UNSUPPORTED;
	memcpy(&r, ref, sizeof(r));
	*ptr = (const void *)(uintptr_t)r.addr;
	return DICOMM_SUCCESS;
}

static void end_read(struct tp_device *dev, struct verbs_read *read,
		     dicomm_result_t status)
{
	read->pending = 0;
	read->status = status;
	if (read->flushed)
		dev->flushes--;
	atomic_fetch_sub_explicit(&dev->reads, 1, memory_order_relaxed);
}

static dicomm_result_t verbs_read(struct tp_peer *peer, enum tp_class c,
				  uint64_t seq, const struct tp_ref *ref,
				  uint64_t offset, void *dst, uint64_t len)
{
	struct tp_device *dev = peer->dev;
	struct verbs_lane *lane = peer->in[c];
	uint32_t slot = (uint32_t)seq % VERBS_READS;
	const struct tp_hold *hold;
	struct verbs_read *read;
	struct reference r;
	struct ibv_sge sge = {.addr = (uintptr_t)dst, .length = (uint32_t)len};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
	dicomm_result_t status;

	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (!lane)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: read from rank %d before connect_in",
			    peer->rank);
	TRY(state_of(lane));
	read = &lane->reads[slot];
	if (!has_room(lane, 1) || read->pending)
		return DICOMM_AGAIN;
	hold = find_hold(dev, dst, len, true);
	if (len > dev->nic->port_attr.max_msg_sz || !hold)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: read of %" PRIu64 " bytes to %p, which is "
			    "not held",
			    len, dst);
	if (hold->flushed && !verbs_mirror_reserve(dev))
		return DICOMM_AGAIN;
	sge.lkey = hold->mr->mr->lkey;
	read->flushed = hold->flushed;
	read->flush_addr = sge.addr;
	read->flush_key = hold->mr->mr->rkey;
	memcpy(&r, ref, sizeof(r));
	wr.wr_id = request_id(lane, 0, slot + 1, 0);
	wr.send_flags = signal_now(lane, 1, true);
	wr.wr.rdma.remote_addr = r.addr + offset;
	wr.wr.rdma.rkey = r.key;
	read->pending = (uint32_t)len;
	read->status = DICOMM_IN_PROGRESS;
	atomic_fetch_add_explicit(&dev->reads, 1, memory_order_relaxed);
	status = post(lane, &wr, 1);
	if (status != DICOMM_SUCCESS) {
		end_read(dev, read, status);
		return status;
	}
	lane->urgent = true;
	return DICOMM_IN_PROGRESS;
}

static dicomm_result_t verbs_arrived(struct tp_peer *peer, enum tp_class c,
				     uint64_t seq)
{
	struct verbs_lane *lane = peer->in[c];
	const struct verbs_read *read = &lane->reads[seq % VERBS_READS];

	if (atomic_load_explicit(&peer->dev->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (read->status != DICOMM_SUCCESS && lane->why)
		return state_of(lane);
	return read->status;
}

/* ---- completions ---- */

static void post_again(struct tp_device *dev, uint64_t id)
{
	struct ibv_recv_wr *wr = &dev->batch[dev->received], *bad;

	if (dev->notes) {
		struct ibv_sge *sge = &dev->batch_sge[dev->received];

		wr->wr_id = id;
		sge->addr = (uintptr_t)&dev->notes[id];
		sge->length = sizeof(*dev->notes);
		sge->lkey = dev->notes_mr->lkey;
		wr->sg_list = sge;
		wr->num_sge = 1;
	}
	if (++dev->received < VERBS_BATCH)
		return;
	dev->received = 0;
	if (ibv_post_srq_recv(dev->srq, dev->batch, &bad))
		log_error("verbs %s: post receives: %m", dev->nic->name);
}

/* The number near `last` whose lower half is `low`: messages come in any order
 * within the credits. */
static uint64_t extend(uint64_t last, uint32_t low)
{
	return last + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)last);
}

/* A message lies in a slot, all of it. */
static void on_message(struct tp_device *dev, const struct ibv_wc *wc)
{
	uint32_t imm = ntohl(dev->notes ? dev->notes[wc->wr_id] : wc->imm_data);
	uint32_t id = imm >> 8;
	uint64_t seq;
	struct verbs_lane *lane =
		id < dev->lanes ? atomic_load_explicit(&dev->in[id],
						       memory_order_acquire)
				: NULL;
	struct tp_line *line;

	if (!lane || lane->qp->qp_num != wc->qp_num) {
		log_warn("verbs %s: a message on queue pair %#x that is none "
			 "of mine",
			 dev->nic->name, wc->qp_num);
		return;
	}
	line = (struct tp_line *)(lane->slots +
				  (imm & (dev->config.slots - 1)) *
					  (size_t)lane->stride);
	seq = extend(lane->last, (line->kind & ~0xffu) | (imm & 0xff));
	line->kind &= 0xff;
	if (seq > lane->last)
		lane->last = seq;
	atomic_store_explicit(&line->seq, seq, memory_order_release);
}

static void on_failure(struct tp_device *dev, const struct ibv_wc *wc,
		       struct verbs_lane *lane, const struct request *r)
{
	struct verbs_read *read;

	if (r->in && r->what) {
		read = &lane->reads[r->what - 1];
		verbs_lane_broken(lane, wc, "read", read->pending);
		end_read(dev, read, lane->why);
		return;
	}
	if (!r->in && r->what)
		dev->pool.spare[dev->pool.nspare++] = (uint16_t)(r->what - 1);
	verbs_lane_broken(lane, wc, r->in ? "write of credits" : "write",
			  r->bytes);
}

/* All bytes are on their way to where they go. */
static void on_read(struct tp_device *dev, struct verbs_lane *lane,
		    uint32_t slot)
{
	struct verbs_read *read = &lane->reads[slot];
	dicomm_result_t status = DICOMM_SUCCESS;

	if (read->flushed)
		status = verbs_mirror_flush(dev, lane, slot);
	if (!read->flushed || status != DICOMM_SUCCESS)
		end_read(dev, read, status);
}

static void on_flush(struct tp_device *dev, const struct ibv_wc *wc)
{
	uint32_t slot;
	struct verbs_lane *lane = verbs_mirror_lane(dev, wc, &slot);

	if (!lane)
		return;
	if (wc->status != IBV_WC_SUCCESS)
		verbs_lane_broken(lane, wc, "flush", 1);
	end_read(dev, &lane->reads[slot], lane->why);
}

static bool is_flush(const struct tp_device *dev, const struct ibv_wc *wc)
{
	return dev->mirror && wc->qp_num == dev->mirror->qp->qp_num;
}

static void on_completion(struct tp_device *dev, const struct ibv_wc *wc)
{
	struct request r = request_of(wc->wr_id);
	struct verbs_lane *lane;

	if (wc->status == IBV_WC_SUCCESS && (wc->opcode & IBV_WC_RECV)) {
		on_message(dev, wc);
		post_again(dev, wc->wr_id);
		return;
	}
	if (is_flush(dev, wc)) {
		on_flush(dev, wc);
		return;
	}
	/* A flushed receive says nothing about a lane. */
	lane = r.lane < dev->lanes
		       ? atomic_load_explicit(r.in ? &dev->in[r.lane]
						   : &dev->out[r.lane],
					      memory_order_acquire)
		       : NULL;
	if (!lane || !lane->qp || lane->qp->qp_num != wc->qp_num)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		on_failure(dev, wc, lane, &r);
		return;
	}
	lane->done = lane->posted - ((lane->posted - r.count - 1) & COUNT_MASK);
	if (!r.what)
		return;
	if (r.in)
		on_read(dev, lane, r.what - 1u);
	else
		dev->pool.spare[dev->pool.nspare++] = (uint16_t)(r.what - 1);
}

/* Nobody told whom they wait for: now there is time. */
static void on_idle(struct tp_device *dev)
{
	bool all = ++dev->idle >= IDLE_POLLS;
	struct verbs_lane *next;

	for (struct verbs_lane *l = dev->untold; l; l = next) {
		next = l->untold;
		if ((all || l->urgent) && has_room(l, 1))
			tell(l, false);
	}
	if (all)
		dev->idle = 0;
}

static bool verbs_poll(struct tp_device *dev)
{
	struct ibv_wc wc[COMPLETIONS];
	int n;

	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed) ||
	    atomic_flag_test_and_set_explicit(&dev->polling,
					      memory_order_acquire))
		return false;
	n = ibv_poll_cq(dev->cq, COMPLETIONS, wc);
	for (int i = 0; i < n; i++)
		on_completion(dev, &wc[i]);
	atomic_flag_clear_explicit(&dev->polling, memory_order_release);
	if (n > 0) {
		dev->idle = 0;
		return true;
	}
	if (dev->untold)
		on_idle(dev);
	return false;
}

/* ---- ends ---- */

static dicomm_result_t verbs_fence(struct tp_peer *peer, enum tp_class c,
				   uint64_t *seq)
{
	*seq = 0;
	for (int i = 0; i < COMPLETIONS && verbs_poll(peer->dev); i++)
		;
	if (peer->in[c])
		*seq = peer->in[c]->last;
	return DICOMM_SUCCESS;
}

/* After the queue pairs have stopped, reads in flight still end; whoever polls
 * may be another thread, or this one. */
static void abort_drain(struct tp_device *dev)
{
	uint64_t start = clock_ns();
	struct ibv_wc wc[COMPLETIONS];

	while (atomic_load(&dev->reads)) {
		if (clock_ns() - start > DRAIN_NS) {
			log_warn("verbs %s: %u reads are still in flight after "
				 "their queue pairs were stopped",
				 dev->nic->name, atomic_load(&dev->reads));
			return;
		}
		if (atomic_flag_test_and_set_explicit(&dev->polling,
						      memory_order_acquire)) {
			sched_yield();
			continue;
		}
		for (int n = ibv_poll_cq(dev->cq, COMPLETIONS, wc); n > 0;) {
			struct request r = request_of(wc[--n].wr_id);
			bool receive = wc[n].status == IBV_WC_SUCCESS &&
				       (wc[n].opcode & IBV_WC_RECV);

			if (is_flush(dev, &wc[n]) ||
			    (!receive && r.in && r.what))
				atomic_fetch_sub(&dev->reads, 1);
		}
		atomic_flag_clear_explicit(&dev->polling, memory_order_release);
	}
}

static void verbs_abort(struct tp_device *dev)
{
	atomic_store(&dev->aborted, true);
	verbs_lock();
	for (uint32_t i = 0; i < dev->lanes; i++) {
		struct verbs_lane *in = atomic_load(&dev->in[i]);
		struct verbs_lane *out = atomic_load(&dev->out[i]);

		if (in)
			verbs_lane_stop(in);
		if (out)
			verbs_lane_stop(out);
	}
	if (dev->mirror)
		verbs_lane_stop(dev->mirror);
	verbs_unlock();
	abort_drain(dev);
}

dicomm_result_t verbs_probe(struct verbs_lane *lane)
{
	struct ibv_send_wr wr = {.wr_id = request_id(lane, 0, 0, 0),
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr = lane->remote_addr,
					     .rkey = lane->remote_key}};

	if (!has_room(lane, 1))
		return DICOMM_AGAIN;
	lane->unsignaled = 0;
	return post(lane, &wr, 1);
}

/* Wait until the other side has all that was posted, unless it has gone. */
static void drain(struct verbs_lane *lane)
{
	struct tp_device *dev = lane->dev;
	uint64_t start = clock_ns();
	bool asked = false;

	if (atomic_load(&lane->state) != LANE_READY)
		return;
	while (lane->posted != lane->done && !lane->why &&
	       !atomic_load(&lane->left) && !atomic_load(&dev->aborted)) {
		if (!asked && lane->unsignaled)
			asked = verbs_probe(lane) == DICOMM_SUCCESS;
		if (!verbs_poll(dev))
			sched_yield();
		if (clock_ns() - start > DRAIN_NS) {
			log_warn("verbs %s: rank %d (%s) has not taken all "
				 "that was sent to it",
				 dev->nic->name, lane->rank, lane->remote);
			return;
		}
	}
}

static void close_lane(struct tp_device *dev, uint32_t id, bool in)
{
	struct verbs_lane *_Atomic *at = in ? &dev->in[id] : &dev->out[id];
	struct verbs_lane *lane = atomic_load(at);

	if (!lane)
		return;
	drain(lane);
	untold_remove(lane);
	verbs_lock();
	verbs_connect_forget(lane);
	verbs_lane_stop(lane);
	while (atomic_flag_test_and_set_explicit(&dev->polling,
						 memory_order_acquire))
		sched_yield();
	atomic_store(at, NULL);
	atomic_flag_clear_explicit(&dev->polling, memory_order_release);
	verbs_lane_close(lane);
	verbs_unlock();
}

static void close_rank(struct tp_device *dev, uint32_t rank)
{
	for (uint32_t c = 0; c < TP_CLASSES; c++) {
		close_lane(dev, rank * TP_CLASSES + c, false);
		close_lane(dev, rank * TP_CLASSES + c, true);
	}
}

static void verbs_peer_close(struct tp_peer *peer)
{
	struct tp_peer **at;

	if (!peer)
		return;
	verbs_flush(peer->dev);
	close_rank(peer->dev, (uint32_t)peer->rank);
	at = &peer->dev->peers;
	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	free(peer);
}

static void close_memory(struct tp_device *dev)
{
	if (dev->words_mr)
		ibv_dereg_mr(dev->words_mr);
	if (dev->srq)
		ibv_destroy_srq(dev->srq);
	if (dev->notes_mr)
		ibv_dereg_mr(dev->notes_mr);
	if (dev->pool.mr)
		ibv_dereg_mr(dev->pool.mr);
	if (dev->cq)
		ibv_destroy_cq(dev->cq);
	while (dev->holds)
		verbs_drop(dev, dev->holds);
	free(dev->pool.memory);
	free(dev->pool.spare);
	free(dev->notes);
	free((void *)dev->words);
	free((void *)dev->in);
	free((void *)dev->out);
}

static void verbs_close(struct tp_device *dev)
{
	if (!dev)
		return;
	while (dev->peers)
		verbs_peer_close(dev->peers);
	/* No call comes in any more; then what nobody asked for goes, too. */
	verbs_connect_shut(dev);
	for (int r = 0; dev->in && dev->out && r < dev->config.ranks; r++)
		close_rank(dev, (uint32_t)r);
	verbs_mirror_close(dev);
	verbs_connect_close();
	close_memory(dev);
	verbs_nic_put(dev->nic);
	free(dev);
}

static uint64_t verbs_memory(const struct tp_device *dev)
{
	uint64_t bytes = sizeof(*dev);

	bytes += (uint64_t)dev->cqe * 64;
	bytes += dev->lanes * (sizeof(*dev->words) + 2 * sizeof(void *));
	bytes += dev->mirror ? verbs_lane_memory(dev->mirror) : 0;
	bytes += (uint64_t)dev->pool.count * dev->pool.bytes;
	for (const struct tp_peer *p = dev->peers; p; p = p->next)
		bytes += sizeof(*p);
	verbs_lock();
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
	.usable = verbs_usable,
	.open = verbs_open,
	.address = verbs_address,
	.close = verbs_close,
	.reaches = verbs_reaches,
	.peer_open = verbs_peer_open,
	.limits = verbs_limits,
	.connect_out = verbs_connect_out,
	.connect_in = verbs_connect_in,
	.cost = verbs_cost,
	.peer_close = verbs_peer_close,
	.put = verbs_put,
	.release = verbs_release,
	.flush = verbs_flush,
	.hold = verbs_hold,
	.hold_device = verbs_hold_device,
	.drop = verbs_drop,
	.offer = verbs_offer,
	.map = verbs_map,
	.read = verbs_read,
	.arrived = verbs_arrived,
	.poll = verbs_poll,
	/* Whoever waits for a NIC waits for less than a sleep takes. */
	.rest = common_rest,
	.broken = verbs_broken,
	.fence = verbs_fence,
	.abort = verbs_abort,
	.memory = verbs_memory,
};
