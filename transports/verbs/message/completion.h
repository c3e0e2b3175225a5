/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles completions: messages that have arrived, and requests that have
 * ended. What a poll does most often is inline here; everything else is a
 * call. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_COMPLETION_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_COMPLETION_H

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/rail.h"

/* Take completions from all queues. Returns true if there were any. */
bool verbs_complete(struct tp_device *dev);
/* Take completions from all queues after an abort. Only counts reads that end;
 * channels stay as they are. Any thread that holds verbs_lock() may call this.
 * Returns true if there were any. */
bool verbs_complete_aborted(struct tp_device *dev);
/* As verbs_complete_aborted(), for a caller that has already taken n
 * completions from the first queue, in dev->wc. */
bool verbs_end_aborted(struct tp_device *dev, int n);
/* Take completions from all queues but the first. Returns true if there
 * were any. */
bool verbs_complete_others(struct tp_device *dev);
/* Handle n completions of the first queue, of any kind, then take those of the
 * other queues. */
bool verbs_complete_rest(struct tp_device *dev, const struct ibv_wc *wc, int n);
/* As verbs_complete_rest(), if the message of the first completion is already
 * handled, and has completed a batch of receives. */
bool verbs_complete_received(struct tp_device *dev, const struct ibv_wc *wc,
			     int n);

static inline bool verbs_is_qp(const struct verbs_qp *qp,
			       const struct verbs_rail *rail, uint32_t qpn)
{
	return qp->qpn == qpn && qp->rail == rail;
}

static inline struct verbs_channel *
verbs_channel_in(const struct tp_device *dev, uint32_t id)
{
	return __builtin_expect(id < dev->channels, 1)
		       ? atomic_load_explicit(&dev->in[id],
					      memory_order_acquire)
		       : NULL;
}

/* Two comparisons are faster here: a combined one would need constants in
 * registers. */
static inline bool verbs_is_message(const struct ibv_wc *wc)
{
	return __builtin_expect(wc->status == IBV_WC_SUCCESS, 1) &&
	       __builtin_expect(wc->opcode & IBV_WC_RECV, IBV_WC_RECV);
}

/* Returns the number closest to `last` that has these lower bits. Messages
 * arrive in any order within their credits. */
static uint64_t verbs_extend(uint64_t last, uint32_t low)
{
	return last + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)last);
}

/* Handle a message that is complete in its slot. */
static inline void verbs_on_arrival(struct verbs_channel *channel,
				    uint32_t notify)
{
	struct tp_line *line =
		(struct tp_line *)(channel->slots +
				   (notify & channel->slot_mask) *
					   channel->stride);
	uint64_t seq = verbs_extend(channel->last_arrived,
				    (line->kind & ~0xffu) | (notify & 0xff));

	line->kind &= 0xff;
	if (seq > channel->last_arrived)
		channel->last_arrived = seq;
	atomic_store_explicit(&line->seq, seq, memory_order_release);
}

/* Returns the channel of a message that needs nothing rare, or NULL if it has
 * to be handled by a call. */
static inline struct verbs_channel *
verbs_plain_channel(const struct tp_device *dev, const struct verbs_rail *rail,
		    const struct ibv_wc *wc)
{
	struct verbs_channel *channel;

	if (!verbs_is_message(wc) ||
	    __builtin_expect(rail->imm_words != NULL, 0))
		return NULL;
	channel = verbs_channel_in(dev, ntohl(wc->imm_data) >> 8);
	return channel && verbs_is_qp(&channel->qp[0], rail, wc->qp_num) &&
			       channel->qp[0].state != QP_STOPPED
		       ? channel
		       : NULL;
}

/* Handle the n completions in dev->wc. Everything rare is done by a tail call,
 * so that this function saves no registers. */
static inline __attribute__((always_inline)) bool
verbs_complete_more(struct tp_device *dev, int n)
{
	struct verbs_rail *rail = &dev->rail[0];
	const struct ibv_wc *wc = dev->wc;

	for (int left = n; left > 0; wc++, left--) {
		struct verbs_channel *channel =
			verbs_plain_channel(dev, rail, wc);

		if (__builtin_expect(!channel, 0))
			return verbs_complete_rest(dev, wc, left);
		verbs_on_arrival(channel, ntohl(wc->imm_data));
		if (verbs_rail_received(rail))
			return verbs_complete_received(dev, wc, left);
	}
	if (__builtin_expect(dev->rails != 1, 0))
		return verbs_complete_others(dev) || n > 0;
	return n > 0;
}

static inline bool verbs_is_aborted(const struct tp_device *dev)
{
	return __builtin_expect(
		atomic_load_explicit(&dev->aborted, memory_order_relaxed), 0);
}

static inline int verbs_poll_first(struct tp_device *dev)
{
	return ibv_poll_cq(dev->rail[0].cq, VERBS_COMPLETIONS, dev->wc);
}

#endif
