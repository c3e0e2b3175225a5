/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends messages, and sends them again after a queue pair has failed. */
#include "transports/verbs/message/put.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/message/credits.h"
#include "transports/verbs/message/post.h"

#define HEAD_BYTES sizeof(struct verbs_head)

_Static_assert(VERBS_LINE_HEAD - VERBS_LINE_SEQ == HEAD_BYTES, "head");

struct verbs_channel verbs_no_channel;

/* Look for new credits, since those that are known are not enough. */
static inline dicomm_result_t refresh(struct verbs_channel *channel,
				      uint64_t seq)
{
	struct tp_device *dev = channel->dev;
	uint64_t limit;

	if (channel->why ||
	    atomic_load_explicit(&channel->peer_closed, memory_order_acquire))
		return verbs_channel_status(channel);
	verbs_credits_follow(channel);
	if (seq > channel->known + dev->config.slots)
		verbs_credits_scan(channel);
	limit = channel->known + dev->config.slots;
	if (!verbs_channel_allow(channel, limit))
		return DICOMM_ERR_ABORTED;
	return seq > limit ? DICOMM_AGAIN : DICOMM_SUCCESS;
}

/* The message number travels in two words that the receiver reads anyway: its
 * upper bits in the kind, its lower bits in the immediate. */
static inline void fill_head(struct verbs_head *head, uint64_t seq,
			     uint32_t signature, enum tp_kind kind,
			     uint64_t len)
{
	head->signature = signature;
	head->kind = (uint32_t)kind | ((uint32_t)seq & ~0xffu);
	head->len = len;
}

static inline uint32_t imm_of(const struct verbs_channel *channel, uint64_t seq)
{
	return htonl(channel->imm | ((uint32_t)seq & 0xff));
}

static inline uint64_t line_of(const struct verbs_channel *channel,
			       uint64_t seq)
{
	return channel->lines + (seq & channel->slot_mask) * channel->stride;
}

/* Announce the message by a request behind its write. A switch may send the
 * packets of a plain write by several paths, but not those of other
 * requests. */
static struct ibv_send_wr *add_notify(struct verbs_qp *qp, uint32_t what,
				      uint32_t bytes, uint32_t *imm)
{
	struct verbs_channel *channel = qp->channel;
	struct ibv_send_wr *wr = &channel->wr, *notify = &channel->notify;

	wr->wr_id = verbs_request_id(channel, qp->posted, 0, bytes);
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->next = notify;
	notify->send_flags = 0;
	if (notify->opcode == IBV_WR_SEND) {
		channel->notify_sge.addr = (uintptr_t)imm;
		channel->notify_sge.length = sizeof(*imm);
		notify->send_flags = IBV_SEND_INLINE;
		/* siw may still send from the buffer when a later request is
		 * complete, unless the write itself asks for a completion. */
		if (what)
			wr->send_flags |= IBV_SEND_SIGNALED;
		return notify;
	}
	notify->imm_data = *imm;
	notify->wr.rdma = wr->wr.rdma;
	return notify;
}

/* Send the message of sge[0] and sge[1]. */
static dicomm_result_t send_message(struct verbs_qp *qp, uint64_t seq,
				    uint32_t what, uint32_t bytes)
{
	struct verbs_channel *channel = qp->channel;
	struct ibv_send_wr *wr = &channel->wr, *last = wr;
	uint32_t imm = imm_of(channel, seq), n = 1;

	wr->wr.rdma.remote_addr = line_of(channel, seq);
	wr->wr.rdma.rkey = qp->remote_key;
	if (__builtin_expect(bytes > channel->notify_above, 0)) {
		last = add_notify(qp, what, bytes, &imm);
		n = 2;
	} else {
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->imm_data = imm;
		wr->next = NULL;
	}
	last->wr_id =
		verbs_request_id(channel, qp->posted + n - 1, what, bytes);
	last->send_flags |= verbs_signal_now(qp, n, what != 0);
	return verbs_post(qp, wr, n);
}

static void record_for_replay(const struct verbs_qp *qp, uint64_t seq,
			      uint32_t what, uint32_t bytes,
			      const struct verbs_head *head, const void *body)
{
	struct verbs_channel *channel = qp->channel;
	struct verbs_replay_entry *replay =
		&channel->replay[seq & channel->slot_mask];

	replay->seq = seq;
	replay->by = qp;
	replay->count = qp->posted;
	replay->what = what;
	replay->bytes = bytes;
	if (what)
		return;
	replay->head = *head;
	memcpy(replay->body, body, bytes);
}

/* Returns true if put_fast() can send the message. Messages without bytes are
 * rare, so it excludes them. */
static inline bool is_fast(const struct verbs_channel *channel,
			   enum tp_kind kind, uint64_t len)
{
	return kind == TP_DATA && len - 1 < channel->fast.max_bytes;
}

static inline dicomm_result_t put_fast(struct verbs_channel *channel,
				       uint64_t seq, uint32_t signature,
				       const void *body, uint64_t len)
{
	struct verbs_qp *only = &channel->qp[0];
	struct verbs_fast_put *b = &channel->fast;
	int error;

	fill_head(&b->head, seq, signature, TP_DATA, len);
	b->sge[1].addr = (uintptr_t)body;
	b->sge[1].length = (uint32_t)len;
	b->wr.wr_id = verbs_request_id(channel, only->posted, 0, len);
	b->wr.imm_data = imm_of(channel, seq);
	b->wr.wr.rdma.remote_addr = line_of(channel, seq);
	error = ibv_post_send(only->ibv, &b->wr, &b->bad_wr);
	if (__builtin_expect(error, 0))
		return verbs_post_refused(only, error);
	only->posted++;
	return DICOMM_SUCCESS;
}

/* put_fast(), for when the queue may be full, or a completion is due. */
static dicomm_result_t put_fast_checked(struct verbs_channel *channel,
					uint64_t seq, uint32_t signature,
					const void *body, uint64_t len)
{
	struct verbs_qp *only = verbs_pick_qp(channel, len);
	dicomm_result_t status;

	if (__builtin_expect(!only, 0))
		return verbs_channel_status(channel) ? channel->why
						     : DICOMM_AGAIN;
	channel->fast.wr.send_flags |= verbs_signal_now(only, 1, false);
	status = put_fast(channel, seq, signature, body, len);
	channel->fast.wr.send_flags = IBV_SEND_INLINE;
	verbs_look_ahead(only);
	return status;
}

/* Send a message of any length and kind, over any queue pair, with a credit. It
 * has the same arguments as verbs_put(), so that the call moves none. */
static __attribute__((noinline)) dicomm_result_t
put_any(struct tp_peer *peer, enum tp_class c, uint64_t seq, uint32_t signature,
	enum tp_kind kind, const void *body, uint64_t len)
{
	struct tp_device *dev = peer->dev;
	struct verbs_channel *channel = peer->out[c];
	uint32_t bytes = (uint32_t)len, what = 0;
	struct verbs_qp *qp;
	struct verbs_head head;
	bool pooled;

	if (is_fast(channel, kind, len))
		return put_fast_checked(channel, seq, signature, body, len);
	if (kind == TP_REF)
		bytes = sizeof(struct verbs_reference);
	else if (__builtin_expect(len > dev->eager_bytes, 0))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: put of %" PRIu64 " bytes into a slot of "
			    "%u",
			    len, dev->eager_bytes);
	pooled = HEAD_BYTES + bytes > channel->max_inline;
	if (pooled && !dev->pool.nspare)
		return DICOMM_AGAIN;
	qp = verbs_pick_qp(channel, bytes);
	if (__builtin_expect(!qp, 0))
		return verbs_channel_status(channel) ? channel->why
						     : DICOMM_AGAIN;
	fill_head(&head, seq, signature, kind, len);
	channel->sge[0].addr = (uintptr_t)&head;
	channel->sge[0].length = HEAD_BYTES;
	channel->sge[1].addr = (uintptr_t)body;
	channel->sge[1].length = bytes;
	channel->wr.num_sge = 1 + (bytes > 0);
	channel->wr.send_flags = IBV_SEND_INLINE;
	if (pooled) {
		struct verbs_pool *pool = &dev->pool;
		uint8_t *copy;

		what = pool->spare[--pool->nspare] + 1u;
		pool->user[what - 1] = qp;
		copy = pool->memory + (what - 1) * (size_t)pool->bytes;
		memcpy(copy, &head, HEAD_BYTES);
		memcpy(copy + HEAD_BYTES, body, bytes);
		channel->sge[0].addr = (uintptr_t)copy;
		channel->sge[0].length = HEAD_BYTES + bytes;
		channel->sge[0].lkey = qp->rail->pool_mr->lkey;
		channel->wr.num_sge = 1;
		channel->wr.send_flags = 0;
	}
	if (__builtin_expect(channel->replay != NULL, 0))
		record_for_replay(qp, seq, what, bytes, &head, body);
	return send_message(qp, seq, what, bytes);
}

static inline dicomm_result_t put_allowed(struct tp_peer *peer, enum tp_class c,
					  uint64_t seq, uint32_t signature,
					  enum tp_kind kind, const void *body,
					  uint64_t len)
{
	struct verbs_channel *channel = peer->out[c];
	const struct verbs_qp *only = &channel->qp[0];

	if (__builtin_expect(is_fast(channel, kind, len) &&
				     only->posted != only->unchecked_to,
			     1))
		return put_fast(channel, seq, signature, body, len);
	return put_any(peer, c, seq, signature, kind, body, len);
}

/* Handle a put that needs a new credit, or for which something is wrong. */
static __attribute__((noinline)) dicomm_result_t
put_refreshed(struct tp_peer *peer, enum tp_class c, uint64_t seq,
	      uint32_t signature, enum tp_kind kind, const void *body,
	      uint64_t len)
{
	struct verbs_channel *channel = peer->out[c];

	if (atomic_load_explicit(&peer->dev->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (channel == &verbs_no_channel)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: put to rank %d before connect_out",
			    peer->rank);
	TRY(refresh(channel, seq));
	return put_allowed(peer, c, seq, signature, kind, body, len);
}

/* Returns true if known credits allow message seq. */
static inline bool is_allowed(const struct verbs_channel *channel, uint64_t seq)
{
	return seq <=
	       atomic_load_explicit(&channel->limit, memory_order_relaxed);
}

dicomm_result_t verbs_put(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			  uint32_t signature, enum tp_kind kind,
			  const void *body, uint64_t len)
{
	struct verbs_channel *channel = peer->out[c];

	if (__builtin_expect(!is_allowed(channel, seq), 0))
		return put_refreshed(peer, c, seq, signature, kind, body, len);
	return put_allowed(peer, c, seq, signature, kind, body, len);
}

dicomm_result_t verbs_resend(struct verbs_channel *channel,
			     struct verbs_replay_entry *replay)
{
	struct verbs_pool *pool = &channel->dev->pool;
	struct verbs_qp *qp = verbs_pick_qp(channel, replay->bytes);

	if (!qp)
		return DICOMM_AGAIN;
	channel->sge[0].addr = (uintptr_t)&replay->head;
	channel->sge[0].length = HEAD_BYTES + replay->bytes;
	channel->wr.num_sge = 1;
	channel->wr.send_flags = IBV_SEND_INLINE;
	if (replay->what) {
		uint32_t buffer = replay->what - 1;

		pool->user[buffer] = qp;
		channel->sge[0].addr =
			(uintptr_t)(pool->memory +
				    buffer * (size_t)pool->bytes);
		channel->sge[0].lkey = qp->rail->pool_mr->lkey;
		channel->wr.send_flags = 0;
	}
	replay->by = qp;
	replay->count = qp->posted;
	return send_message(qp, replay->seq, replay->what, replay->bytes);
}
