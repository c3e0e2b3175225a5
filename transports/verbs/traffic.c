/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes over lanes: messages, and reads. */
#include "transports/verbs/traffic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/verbs/credits.h"
#include "transports/verbs/hold.h"
#include "transports/verbs/loss.h"
#include "transports/verbs/memory.h"
#include "transports/verbs/nic.h"
#include "transports/verbs/rail.h"

#define HEAD_BYTES sizeof(struct verbs_head)
/* Messages that wait to be sent and do not fit inline. */
#define POOL_COUNT 32
/* Of a message, besides its data. */
#define PACKET_BYTES 64

_Static_assert(VERBS_LINE_HEAD - VERBS_LINE_SEQ == HEAD_BYTES, "head");

struct verbs_lane verbs_no_lane;

uint64_t verbs_request_of(const struct verbs_lane *lane)
{
	return (uint64_t)lane->id << 32 | (uint64_t)lane->in
						  << (32 + VERBS_LANE_BITS);
}

/* ---- sending ---- */

dicomm_result_t verbs_pool_open(struct tp_device *dev)
{
	struct verbs_pool *p = &dev->pool;
	dicomm_result_t status;
	size_t bytes;
	bool good;

	if (p->count)
		return DICOMM_SUCCESS;
	p->bytes = dev->stride;
	bytes = (size_t)POOL_COUNT * p->bytes;
	p->memory = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	p->spare = calloc(POOL_COUNT, sizeof(*p->spare));
	p->user = calloc(POOL_COUNT, sizeof(*p->user));
	good = p->memory && p->spare && p->user;
	for (uint32_t i = 0; i < dev->rails && good; i++) {
		if (verbs_rail_has_gone(dev, &dev->rail[i]))
			continue;
		dev->rail[i].pool_mr =
			ibv_reg_mr(dev->rail[i].nic->pd, p->memory, bytes,
				   IBV_ACCESS_LOCAL_WRITE);
		good = dev->rail[i].pool_mr;
	}
	if (!good) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "verbs %s: %zu bytes to send from: %m%s",
			      dev->rail[0].nic->name, bytes,
			      verbs_memory_hint());
		verbs_pool_close(dev);
		return status;
	}
	p->count = POOL_COUNT;
	for (uint16_t i = 0; i < POOL_COUNT; i++)
		p->spare[p->nspare++] = i;
	return DICOMM_SUCCESS;
}

void verbs_pool_close(struct tp_device *dev)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		if (dev->rail[i].pool_mr)
			ibv_dereg_mr(dev->rail[i].pool_mr);
		dev->rail[i].pool_mr = NULL;
	}
	free(dev->pool.memory);
	free(dev->pool.spare);
	free((void *)dev->pool.user);
	dev->pool = (struct verbs_pool){.count = 0};
}

/* The lane's state as a status, with its words as the last error. */
static dicomm_result_t state_of(struct verbs_lane *lane)
{
	if (lane->why) {
		log_set_last_error(lane->text);
		return lane->why;
	}
	if (!atomic_load_explicit(&lane->left, memory_order_acquire))
		return DICOMM_SUCCESS;
	verbs_lane_end(lane, DICOMM_ERR_REMOTE);
	snprintf(lane->text, sizeof(lane->text),
		 "verbs: rank %d (%s) has closed its side", lane->rank,
		 lane->remote);
	return FAIL(lane->why, "%s", lane->text);
}

static __attribute__((noinline)) dicomm_result_t
refused(const struct verbs_strand *s, int error)
{
	const struct verbs_lane *lane = s->lane;
	const struct verbs_nic *nic = s->rail->nic;

	if (atomic_load(&lane->dev->aborted))
		return DICOMM_ERR_ABORTED;
	errno = error;
	return FAIL(DICOMM_ERR_SYSTEM,
		    "verbs %s port %u: rank %d (%s): post a request: %m",
		    nic->name, nic->port, lane->rank, lane->remote);
}

/* How many requests may follow without a look at the room (there is to be some
 * for two), and without a signal? */
static void look_ahead(struct verbs_strand *s)
{
	uint32_t depth = s->lane->depth;
	int32_t room = (int32_t)(s->done + depth - 1 - s->posted);
	int32_t silent = (int32_t)(s->signaled + depth / 4 - 1 - s->posted);
	int32_t least = room < silent ? room : silent;

	s->easy = s->posted + (least > 0 ? (uint32_t)least : 0);
}

/* Of several strands, this one is lost: what it was to carry is kept, or said
 * once more, as if it had gone out and not come. */
static __attribute__((noinline)) dicomm_result_t
not_posted(struct verbs_strand *s, uint32_t n, int error)
{
	struct verbs_lane *lane = s->lane;
	char what[80];

	if (lane->strands == 1 || atomic_load(&lane->dev->aborted))
		return refused(s, error);
	snprintf(what, sizeof(what), "post a request: %s", strerror(error));
	verbs_strand_give_up(s, DICOMM_ERR_SYSTEM, what, "the NIC failed");
	s->posted += n;
	return lane->why;
}

dicomm_result_t verbs_post(struct verbs_strand *s, struct ibv_send_wr *wr,
			   uint32_t n)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(s->qp, wr, &bad);

	if (__builtin_expect(error, 0))
		return not_posted(s, n, error);
	s->posted += n;
	look_ahead(s);
	return DICOMM_SUCCESS;
}

unsigned verbs_signal_now(struct verbs_strand *s, uint32_t n, bool must)
{
	if (!must && s->posted + n - s->signaled < s->lane->depth / 4)
		return 0;
	s->signaled = s->posted + n;
	return IBV_SEND_SIGNALED;
}

dicomm_result_t verbs_probe(struct verbs_strand *s)
{
	struct ibv_sge nowhere;
	struct ibv_send_wr wr = {
		.wr_id = verbs_request_id(s->lane, s->posted, 0, 0),
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = s->lane->remote_addr,
			    .rkey = s->remote_key}};

	if (!verbs_has_room(s, 1))
		return DICOMM_AGAIN;
	/* There, a write may end when it is in a buffer of this side. */
	if (s->rail->nic->fabric == VERBS_IWARP) {
		nowhere = verbs_rail_nowhere(s->lane->dev, s->rail);
		wr.opcode = IBV_WR_RDMA_READ;
		wr.sg_list = &nowhere;
		wr.num_sge = 1;
	}
	s->signaled = s->posted + 1;
	return verbs_post(s, &wr, 1);
}

/* Whoever has carried the least, in time, of those with room for two. */
static __attribute__((noinline)) struct verbs_strand *
pick_of_many(struct verbs_lane *lane, uint64_t bytes)
{
	struct verbs_strand *best = NULL;

	for (uint32_t i = 0; i < lane->strands; i++) {
		struct verbs_strand *s = &lane->strand[i];

		if (s->state == STRAND_GOOD && verbs_has_room(s, 2) &&
		    (!best || s->load_ps < best->load_ps))
			best = s;
	}
	if (!best)
		return NULL;
	best->load_ps += ((bytes + PACKET_BYTES) * best->ps_per_kib) >> 10;
	return best;
}

struct verbs_strand *verbs_pick(struct verbs_lane *lane, uint64_t bytes)
{
	struct verbs_strand *only = &lane->strand[0];

	if (__builtin_expect(lane->strands != 1, 0))
		return pick_of_many(lane, bytes);
	return __builtin_expect(verbs_has_room(only, 2), 1) ? only : NULL;
}

/* No credits known: look again. */
static inline dicomm_result_t refresh(struct verbs_lane *lane, uint64_t seq)
{
	struct tp_device *dev = lane->dev;
	uint64_t limit;

	if (lane->why ||
	    atomic_load_explicit(&lane->left, memory_order_acquire))
		return state_of(lane);
	verbs_credits_follow(lane);
	if (seq > lane->known + dev->config.slots)
		verbs_credits_take(lane);
	limit = lane->known + dev->config.slots;
	if (!verbs_lane_allow(lane, limit))
		return DICOMM_ERR_ABORTED;
	return seq > limit ? DICOMM_AGAIN : DICOMM_SUCCESS;
}

/* The number travels in two words that are looked at anyway: in the upper bits
 * of the kind, and in the lower ones of what goes with the message. */
static inline void fill_head(struct verbs_head *head, uint64_t seq,
			     uint32_t signature, enum tp_kind kind,
			     uint64_t len)
{
	head->signature = signature;
	head->kind = (uint32_t)kind | ((uint32_t)seq & ~0xffu);
	head->len = len;
}

static inline uint32_t imm_of(const struct verbs_lane *lane, uint64_t seq)
{
	return htonl(lane->imm | ((uint32_t)seq & 0xff));
}

static inline uint64_t line_of(const struct verbs_lane *lane, uint64_t seq)
{
	return lane->lines + (seq & lane->slot_mask) * lane->stride;
}

/* Behind the write of a message: that it is there. A switch may send packets of
 * a plain write by many ways, but none of the others. */
static struct ibv_send_wr *add_note(struct verbs_strand *s, uint32_t what,
				    uint32_t bytes, uint32_t *imm)
{
	struct verbs_lane *lane = s->lane;
	struct ibv_send_wr *wr = &lane->wr, *note = &lane->note;

	wr->wr_id = verbs_request_id(lane, s->posted, 0, bytes);
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->next = note;
	note->send_flags = 0;
	if (note->opcode == IBV_WR_SEND) {
		lane->note_sge.addr = (uintptr_t)imm;
		lane->note_sge.length = sizeof(*imm);
		note->send_flags = IBV_SEND_INLINE;
		/* siw may still send from a buffer when a write that was not
		 * signalled is complete, and all before it. */
		if (what)
			wr->send_flags |= IBV_SEND_SIGNALED;
		return note;
	}
	note->imm_data = *imm;
	note->wr.rdma = wr->wr.rdma;
	return note;
}

/* Its first two pieces are filled in. */
static dicomm_result_t send_message(struct verbs_strand *s, uint64_t seq,
				    uint32_t what, uint32_t bytes)
{
	struct verbs_lane *lane = s->lane;
	struct ibv_send_wr *wr = &lane->wr, *last = wr;
	uint32_t imm = imm_of(lane, seq), n = 1;

	wr->wr.rdma.remote_addr = line_of(lane, seq);
	wr->wr.rdma.rkey = s->remote_key;
	if (__builtin_expect(bytes > lane->note_above, 0)) {
		last = add_note(s, what, bytes, &imm);
		n = 2;
	} else {
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->imm_data = imm;
		wr->next = NULL;
	}
	last->wr_id = verbs_request_id(lane, s->posted + n - 1, what, bytes);
	last->send_flags |= verbs_signal_now(s, n, what != 0);
	return verbs_post(s, wr, n);
}

static void keep(const struct verbs_strand *s, uint64_t seq, uint32_t what,
		 uint32_t bytes, const struct verbs_head *head,
		 const void *body)
{
	struct verbs_lane *lane = s->lane;
	struct verbs_kept *kept = &lane->kept[seq & lane->slot_mask];

	kept->seq = seq;
	kept->by = s;
	kept->count = s->posted;
	kept->what = what;
	kept->bytes = bytes;
	if (what)
		return;
	kept->head = *head;
	memcpy(kept->body, body, bytes);
}

/* The common message. One without bytes is rare. */
static inline bool is_brief(const struct verbs_lane *lane, enum tp_kind kind,
			    uint64_t len)
{
	return kind == TP_DATA && len - 1 < lane->brief.most;
}

static inline dicomm_result_t put_brief(struct verbs_lane *lane, uint64_t seq,
					uint32_t signature, const void *body,
					uint64_t len)
{
	struct verbs_strand *only = &lane->strand[0];
	struct verbs_brief *b = &lane->brief;
	int error;

	fill_head(&b->head, seq, signature, TP_DATA, len);
	b->sge[1].addr = (uintptr_t)body;
	b->sge[1].length = (uint32_t)len;
	b->wr.wr_id = verbs_request_id(lane, only->posted, 0, len);
	b->wr.imm_data = imm_of(lane, seq);
	b->wr.wr.rdma.remote_addr = line_of(lane, seq);
	error = ibv_post_send(only->qp, &b->wr, &b->refused);
	if (__builtin_expect(error, 0))
		return refused(only, error);
	only->posted++;
	return DICOMM_SUCCESS;
}

/* The same where there may be no room, or a signal is to be asked for. */
static dicomm_result_t put_brief_looking(struct verbs_lane *lane, uint64_t seq,
					 uint32_t signature, const void *body,
					 uint64_t len)
{
	struct verbs_strand *only = verbs_pick(lane, len);
	dicomm_result_t status;

	if (__builtin_expect(!only, 0))
		return state_of(lane) ? lane->why : DICOMM_AGAIN;
	lane->brief.wr.send_flags |= verbs_signal_now(only, 1, false);
	status = put_brief(lane, seq, signature, body, len);
	lane->brief.wr.send_flags = IBV_SEND_INLINE;
	look_ahead(only);
	return status;
}

/* Of any length and kind, over any strand; there are credits. It takes what
 * verbs_put() was given, which so need not move it. */
static __attribute__((noinline)) dicomm_result_t
put_any(struct tp_peer *peer, enum tp_class c, uint64_t seq, uint32_t signature,
	enum tp_kind kind, const void *body, uint64_t len)
{
	struct tp_device *dev = peer->dev;
	struct verbs_lane *lane = peer->out[c];
	uint32_t bytes = (uint32_t)len, what = 0;
	struct verbs_strand *s;
	struct verbs_head head;
	bool pooled;

	if (is_brief(lane, kind, len))
		return put_brief_looking(lane, seq, signature, body, len);
	if (kind == TP_REF)
		bytes = sizeof(struct verbs_reference);
	else if (__builtin_expect(len > dev->eager_bytes, 0))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: put of %" PRIu64 " bytes into a slot of "
			    "%u",
			    len, dev->eager_bytes);
	pooled = HEAD_BYTES + bytes > lane->max_inline;
	if (pooled && !dev->pool.nspare)
		return DICOMM_AGAIN;
	s = verbs_pick(lane, bytes);
	if (__builtin_expect(!s, 0))
		return state_of(lane) ? lane->why : DICOMM_AGAIN;
	fill_head(&head, seq, signature, kind, len);
	lane->sge[0].addr = (uintptr_t)&head;
	lane->sge[0].length = HEAD_BYTES;
	lane->sge[1].addr = (uintptr_t)body;
	lane->sge[1].length = bytes;
	lane->wr.num_sge = 1 + (bytes > 0);
	lane->wr.send_flags = IBV_SEND_INLINE;
	if (pooled) {
		struct verbs_pool *pool = &dev->pool;
		uint8_t *copy;

		what = pool->spare[--pool->nspare] + 1u;
		pool->user[what - 1] = s;
		copy = pool->memory + (what - 1) * (size_t)pool->bytes;
		memcpy(copy, &head, HEAD_BYTES);
		memcpy(copy + HEAD_BYTES, body, bytes);
		lane->sge[0].addr = (uintptr_t)copy;
		lane->sge[0].length = HEAD_BYTES + bytes;
		lane->sge[0].lkey = s->rail->pool_mr->lkey;
		lane->wr.num_sge = 1;
		lane->wr.send_flags = 0;
	}
	if (__builtin_expect(lane->kept != NULL, 0))
		keep(s, seq, what, bytes, &head, body);
	return send_message(s, seq, what, bytes);
}

static inline dicomm_result_t put_allowed(struct tp_peer *peer, enum tp_class c,
					  uint64_t seq, uint32_t signature,
					  enum tp_kind kind, const void *body,
					  uint64_t len)
{
	struct verbs_lane *lane = peer->out[c];
	const struct verbs_strand *only = &lane->strand[0];

	if (__builtin_expect(
		    is_brief(lane, kind, len) && only->posted != only->easy, 1))
		return put_brief(lane, seq, signature, body, len);
	return put_any(peer, c, seq, signature, kind, body, len);
}

/* Where credits have to be looked for, or there is something amiss. */
static __attribute__((noinline)) dicomm_result_t
put_refreshed(struct tp_peer *peer, enum tp_class c, uint64_t seq,
	      uint32_t signature, enum tp_kind kind, const void *body,
	      uint64_t len)
{
	struct verbs_lane *lane = peer->out[c];

	if (atomic_load_explicit(&peer->dev->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (lane == &verbs_no_lane)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: put to rank %d before connect_out",
			    peer->rank);
	TRY(refresh(lane, seq));
	return put_allowed(peer, c, seq, signature, kind, body, len);
}

/* May message seq go, as far as known? */
static inline bool is_allowed(const struct verbs_lane *lane, uint64_t seq)
{
	return seq <= atomic_load_explicit(&lane->limit, memory_order_relaxed);
}

dicomm_result_t verbs_put(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			  uint32_t signature, enum tp_kind kind,
			  const void *body, uint64_t len)
{
	struct verbs_lane *lane = peer->out[c];

	if (__builtin_expect(!is_allowed(lane, seq), 0))
		return put_refreshed(peer, c, seq, signature, kind, body, len);
	return put_allowed(peer, c, seq, signature, kind, body, len);
}

dicomm_result_t verbs_send_again(struct verbs_lane *lane,
				 struct verbs_kept *kept)
{
	struct verbs_pool *pool = &lane->dev->pool;
	struct verbs_strand *s = verbs_pick(lane, kept->bytes);

	if (!s)
		return DICOMM_AGAIN;
	lane->sge[0].addr = (uintptr_t)&kept->head;
	lane->sge[0].length = HEAD_BYTES + kept->bytes;
	lane->wr.num_sge = 1;
	lane->wr.send_flags = IBV_SEND_INLINE;
	if (kept->what) {
		uint32_t buffer = kept->what - 1;

		pool->user[buffer] = s;
		lane->sge[0].addr = (uintptr_t)(pool->memory +
						buffer * (size_t)pool->bytes);
		lane->sge[0].lkey = s->rail->pool_mr->lkey;
		lane->wr.send_flags = 0;
	}
	kept->by = s;
	kept->count = s->posted;
	return send_message(s, kept->seq, kept->what, kept->bytes);
}

/* ---- receiving ---- */

bool verbs_offer(struct tp_peer *peer, const void *addr, uint64_t len,
		 enum tp_want want, struct tp_ref *ref)
{
	struct tp_device *dev = peer->dev;
	struct verbs_reference r = {.addr = (uintptr_t)addr};
	struct verbs_keys keys;

	_Static_assert(sizeof(r) <= sizeof(*ref), "must fit");
	(void)want;
	if (!verbs_held(dev, addr, len, false, &keys))
		return false;
	memcpy(r.key, keys.remote, sizeof(*r.key) * dev->rails);
	memcpy(ref, &r, sizeof(r));
	return true;
}

/* To itself a rank needs no NIC. */
dicomm_result_t verbs_map(struct tp_peer *peer, const struct tp_ref *ref,
			  uint64_t len, const void **ptr)
{
	struct verbs_reference r;

	(void)len;
	if (peer->rank != peer->dev->config.rank)
		return DICOMM_ERR_UNSUPPORTED;
	memcpy(&r, ref, sizeof(r));
	*ptr = (const void *)(uintptr_t)r.addr;
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_read_again(struct verbs_lane *lane,
				 struct verbs_read *read)
{
	struct tp_device *dev = lane->dev;
	struct verbs_strand *s = verbs_pick(lane, read->pending);
	struct ibv_sge sge = {.addr = (uintptr_t)read->to,
			      .length = read->pending};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
	dicomm_result_t status;

	if (!s)
		return DICOMM_AGAIN;
	sge.lkey = read->keys.local[s->rail - dev->rail];
	wr.wr_id = verbs_request_id(lane, s->posted,
				    (uint32_t)(read - lane->reads) + 1, 0);
	wr.send_flags = verbs_signal_now(s, 1, true);
	wr.wr.rdma.remote_addr = read->from.addr;
	wr.wr.rdma.rkey = read->from.key[s->to_rail];
	/* Before it can have ended. */
	read->by = s;
	read->number++;
	atomic_fetch_add_explicit(&dev->reads, 1, memory_order_relaxed);
	status = verbs_post(s, &wr, 1);
	/* Or it is begun anew when that one has stopped. */
	if (status != DICOMM_SUCCESS || s->state != STRAND_GOOD)
		verbs_read_end(dev, read);
	return status;
}

/* Each read is read back by a mirror, which takes only so many, and all may
 * have ended before anybody looks. */
static bool may_flush(const struct tp_device *dev)
{
	unsigned reads =
		atomic_load_explicit(&dev->reads, memory_order_relaxed);

	for (uint32_t i = 0; i < dev->rails; i++)
		if (dev->rail[i].mirror && reads >= dev->rail[i].mirror->depth)
			return false;
	return true;
}

dicomm_result_t verbs_read(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			   const struct tp_ref *ref, uint64_t offset, void *dst,
			   uint64_t len)
{
	struct tp_device *dev = peer->dev;
	struct verbs_lane *lane = peer->in[c];
	struct verbs_read *read;
	dicomm_result_t status;

	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (!lane)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: read from rank %d before connect_in",
			    peer->rank);
	TRY(state_of(lane));
	read = &lane->reads[seq % VERBS_READS];
	if (read->pending)
		return DICOMM_AGAIN;
	if (len > dev->max_read ||
	    !verbs_held(dev, dst, len, true, &read->keys))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: read of %" PRIu64 " bytes to %p, which is "
			    "not held",
			    len, dst);
	if (read->keys.flushed && !may_flush(dev))
		return DICOMM_AGAIN;
	memcpy(&read->from, ref, sizeof(read->from));
	read->from.addr += offset;
	read->to = dst;
	read->pending = (uint32_t)len;
	status = verbs_read_again(lane, read);
	if (status != DICOMM_SUCCESS) {
		read->pending = 0;
		return status;
	}
	read->status = DICOMM_IN_PROGRESS;
	lane->reading++;
	if (seq > lane->referred)
		lane->referred = seq;
	return DICOMM_IN_PROGRESS;
}

dicomm_result_t verbs_arrived(struct tp_peer *peer, enum tp_class c,
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
