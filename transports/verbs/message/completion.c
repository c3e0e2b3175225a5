/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles completions: messages that have arrived, and requests that
 * have ended. */
#include "transports/verbs/message/completion.h"

#include <stdio.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/failure.h"
#include "transports/verbs/channel/loopback.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/message/bounce.h"
#include "transports/verbs/message/post.h"
#include "transports/verbs/message/read.h"

/* The part of a request's number for which its identifier has room. */
#define COUNT_MASK (UINT32_MAX >> (VERBS_COUNT_SHIFT - 32))

/* What an identifier tells about its request. */
struct request {
	uint32_t count; /* lower bits of its number on its queue pair */
	uint32_t bytes;
	uint32_t channel;
	bool in;
	/* On a sender: bounce buffer + 1. On a receiver: read + 1. 0:
	 * neither. */
	uint16_t what;
};

static struct request request_of(uint64_t id)
{
	return (struct request){
		.count = (uint32_t)(id >> VERBS_COUNT_SHIFT),
		.bytes = (uint32_t)id & ((1u << VERBS_WHAT_SHIFT) - 1),
		.channel =
			(uint32_t)(id >> 32) & ((1u << VERBS_CHANNEL_BITS) - 1),
		.what = (uint16_t)((uint32_t)id >> VERBS_WHAT_SHIFT),
		.in = id >> (32 + VERBS_CHANNEL_BITS) & 1,
	};
}

static __attribute__((noinline)) struct verbs_qp *
qp_of_many(struct verbs_channel *channel, const struct verbs_rail *rail,
	   uint32_t qpn)
{
	for (uint32_t i = 1; i < channel->qps; i++)
		if (verbs_is_qp(&channel->qp[i], rail, qpn))
			return &channel->qp[i];
	return NULL;
}

/* Returns the channel's queue pair of that number and rail, or NULL. */
static inline struct verbs_qp *qp_of(struct verbs_channel *channel,
				     const struct verbs_rail *rail,
				     uint32_t qpn)
{
	if (__builtin_expect(!channel, 0))
		return NULL;
	if (__builtin_expect(!verbs_is_qp(&channel->qp[0], rail, qpn), 0))
		return qp_of_many(channel, rail, qpn);
	return &channel->qp[0];
}

static __attribute__((noinline)) void
on_unknown_qp(const struct verbs_rail *rail, const struct ibv_wc *wc)
{
	log_warn("verbs %s: a message on queue pair %#x, which is unknown",
		 rail->nic->name, wc->qp_num);
}

static void on_message(struct tp_device *dev, struct verbs_rail *rail,
		       const struct ibv_wc *wc)
{
	uint32_t notify = ntohl(verbs_rail_imm(rail, wc));
	struct verbs_channel *channel = verbs_channel_in(dev, notify >> 8);
	struct verbs_qp *qp = qp_of(channel, rail, wc->qp_num);

	/* If the queue pair is stopped, the sender was told that this message
	 * has not arrived, and sends it again. */
	if (!qp)
		on_unknown_qp(rail, wc);
	else if (qp->state != QP_STOPPED)
		verbs_on_arrival(channel, notify);
}

static void on_failure(struct verbs_qp *qp, const struct ibv_wc *wc,
		       const struct request *r)
{
	struct verbs_channel *channel = qp->channel;

	if (r->in && r->what) {
		struct verbs_read *read = &channel->reads[r->what - 1];

		verbs_qp_completion_error(qp, wc, "read", read->pending);
		verbs_read_end(channel->dev, read);
		if (channel->why) {
			read->pending = 0;
			read->status = channel->why;
			channel->reads_active--;
		}
		return;
	}
	verbs_qp_completion_error(qp, wc, r->in ? "write of credits" : "write",
				  r->bytes);
	if (r->what && channel->why)
		verbs_pool_give(&channel->dev->pool, r->what - 1u);
}

static void finish_read(struct verbs_channel *channel, struct verbs_read *read,
			dicomm_result_t status)
{
	read->pending = 0;
	read->status = status;
	channel->reads_active--;
	verbs_read_end(channel->dev, read);
}

/* The NIC has completed a read: all of its bytes are on their way to memory.
 * Flush them if they need that. */
static void on_read(struct verbs_channel *channel, uint32_t slot)
{
	struct verbs_read *read = &channel->reads[slot];
	struct verbs_qp *qp;
	char what[80];
	int error;

	if (!read->keys.flushed) {
		finish_read(channel, read, DICOMM_SUCCESS);
		return;
	}
	error = verbs_loopback_flush(channel, slot);
	if (!error)
		return;
	/* The flush failed: another queue pair reads again, if there is one. */
	qp = &channel->qp[read->by - channel->qp];
	verbs_loopback_failed(channel->dev, qp->rail);
	snprintf(what, sizeof(what), "post a flush: %s", strerror(error));
	verbs_qp_fail(qp, DICOMM_ERR_SYSTEM, what, "the NIC failed");
	if (channel->why)
		finish_read(channel, read, channel->why);
}

/* A flush has ended. If it failed, another queue pair does the read again, if
 * there is one. */
static void on_flush(struct tp_device *dev, struct verbs_rail *rail,
		     const struct ibv_wc *wc)
{
	struct verbs_channel *channel;
	struct verbs_read *read = verbs_loopback_read(dev, wc, &channel);

	rail->flushes--;
	if (wc->status != IBV_WC_SUCCESS)
		verbs_loopback_failed(dev, rail);
	if (!read)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		verbs_qp_completion_error(&channel->qp[read->by - channel->qp],
					  wc, "flush", 1);
		if (!channel->why)
			return;
	}
	finish_read(channel, read, channel->why);
}

/* Handle a completion that is not a message. */
static __attribute__((noinline)) void on_request(struct tp_device *dev,
						 struct verbs_rail *rail,
						 const struct ibv_wc *wc)
{
	struct verbs_channel *channel;
	struct verbs_qp *qp;
	struct request r;

	if (verbs_is_flush(rail, wc)) {
		on_flush(dev, rail, wc);
		return;
	}
	/* The identifier of a flushed receive names no channel. */
	r = request_of(wc->wr_id);
	channel = r.channel < dev->channels
			  ? atomic_load_explicit(r.in ? &dev->in[r.channel]
						      : &dev->out[r.channel],
						 memory_order_acquire)
			  : NULL;
	qp = qp_of(channel, rail, wc->qp_num);
	if (!qp || qp->state == QP_STOPPED)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		on_failure(qp, wc, &r);
		return;
	}
	qp->done = qp->posted - ((qp->posted - r.count - 1) & COUNT_MASK);
	if (!r.what)
		return;
	if (r.in)
		on_read(channel, r.what - 1u);
	else
		verbs_pool_give(&dev->pool, r.what - 1u);
}

/* Handle a completion after an abort: only count the reads that have ended. */
static void on_aborted(struct tp_device *dev, struct verbs_rail *rail,
		       const struct ibv_wc *wc)
{
	struct request r = request_of(wc->wr_id);
	struct verbs_read *read;
	struct verbs_qp *qp;

	if (verbs_is_flush(rail, wc)) {
		read = verbs_loopback_read(dev, wc, NULL);
		if (read)
			verbs_read_end(dev, read);
		return;
	}
	if (!r.in || !r.what || verbs_is_message(wc))
		return;
	qp = qp_of(verbs_channel_in(dev, r.channel), rail, wc->qp_num);
	if (!qp)
		return;
	read = &qp->channel->reads[r.what - 1];
	if (read->by == qp)
		verbs_read_end(dev, read);
}

/* Post the receive of this message again, together with those of its batch; but
 * not to a queue pair that has stopped. */
static __attribute__((noinline)) void receive_again(struct tp_device *dev,
						    struct verbs_rail *rail,
						    const struct ibv_wc *wc)
{
	struct verbs_qp *qp;
	uint32_t id;

	if (rail->srq) {
		verbs_rail_post_batch(rail, NULL);
		return;
	}
	rail->batch_room = 1;
	id = ntohl(verbs_rail_imm(rail, wc)) >> 8;
	qp = qp_of(verbs_channel_in(dev, id), rail, wc->qp_num);
	if (qp && qp->state != QP_STOPPED)
		verbs_rail_post_batch(rail, qp->ibv);
}

static void on_completions(struct tp_device *dev, struct verbs_rail *rail,
			   const struct ibv_wc *wc, int n)
{
	for (; n > 0; wc++, n--)
		if (verbs_is_message(wc)) {
			on_message(dev, rail, wc);
			if (verbs_rail_received(rail))
				receive_again(dev, rail, wc);
		} else {
			on_request(dev, rail, wc);
		}
}

bool verbs_complete_aborted(struct tp_device *dev)
{
	struct ibv_wc wc[VERBS_COMPLETIONS];
	bool moved = false;

	for (uint32_t k = 0; k < dev->rails; k++) {
		struct verbs_rail *rail = &dev->rail[k];
		int n = ibv_poll_cq(rail->cq, VERBS_COMPLETIONS, wc);

		for (int i = 0; i < n; i++)
			on_aborted(dev, rail, &wc[i]);
		moved |= n > 0;
	}
	return moved;
}

__attribute__((noinline)) bool verbs_end_aborted(struct tp_device *dev, int n)
{
	for (int i = 0; i < n; i++)
		on_aborted(dev, &dev->rail[0], &dev->wc[i]);
	return verbs_complete_aborted(dev) || n > 0;
}

__attribute__((noinline)) bool verbs_complete_others(struct tp_device *dev)
{
	bool moved = false;

	for (uint32_t k = 1; k < dev->rails; k++) {
		struct verbs_rail *rail = &dev->rail[k];
		int n = ibv_poll_cq(rail->cq, VERBS_COMPLETIONS, dev->wc);

		on_completions(dev, rail, dev->wc, n);
		moved |= n > 0;
	}
	return moved;
}

__attribute__((noinline)) bool
verbs_complete_rest(struct tp_device *dev, const struct ibv_wc *wc, int n)
{
	on_completions(dev, &dev->rail[0], wc, n);
	verbs_complete_others(dev);
	return true;
}

__attribute__((noinline)) bool
verbs_complete_received(struct tp_device *dev, const struct ibv_wc *wc, int n)
{
	receive_again(dev, &dev->rail[0], wc);
	return verbs_complete_rest(dev, wc + 1, n - 1);
}

bool verbs_complete(struct tp_device *dev)
{
	int n = verbs_poll_first(dev);

	return verbs_is_aborted(dev) ? verbs_end_aborted(dev, n)
				     : verbs_complete_more(dev, n);
}
