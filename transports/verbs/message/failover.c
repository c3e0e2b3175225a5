/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failover: a channel goes on when one of its queue pairs has failed.
 *
 * Messages that were posted on that queue pair may have arrived, may be lost,
 * or may arrive late. So each side stops its queue pair; after that nothing
 * arrives by it. Then each side sends the other a notice, over the TCP
 * connection of the channel, and the receiver's notice says which messages have
 * arrived. When a side has stopped its queue pair and has the peer's notice,
 * the queue pair is fenced: the sender sends the missing messages again from
 * the replay buffer, and the receiver its credits, over other queue pairs.
 *
 * Reads need no notice: a rank that has stopped its own queue pair can read
 * again.
 */
#include "transports/verbs/message/failover.h"

#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/failure.h"
#include "transports/verbs/channel/loopback.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/connection/exchange.h"
#include "transports/verbs/message/bounce.h"
#include "transports/verbs/message/completion.h"
#include "transports/verbs/message/credits.h"
#include "transports/verbs/message/put.h"
#include "transports/verbs/message/read.h"
#include "transports/verbs/nic/events.h"
#include "transports/verbs/nic/nic.h"

/* How long a NIC may take to report the last message of a queue pair. */
#define LAST_MS 10

static void complete_all(struct tp_device *dev)
{
	int most = 0;

	for (uint32_t i = 0; i < dev->rails; i++)
		most += dev->rail[i].cqe;
	while (verbs_complete(dev) && most-- > 0)
		;
}

/* Set the state of the queue pair, and take all completions. Succeeds, too, if
 * the NIC has failed: then nothing arrives in any case. */
static bool set_state(struct verbs_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	struct verbs_channel *channel = qp->channel;
	int error = ibv_modify_qp(qp->ibv, &attr, IBV_QP_STATE);

	complete_all(channel->dev);
	if (!error || atomic_load(&qp->rail->nic->fatal))
		return true;
	verbs_qp_set_text(qp, "it cannot be stopped", strerror(error));
	verbs_channel_fail(channel, DICOMM_ERR_SYSTEM);
	log_error("%s", channel->text);
	return false;
}

/* Begin to drain. Some NICs still complete what they are doing after this. */
static void begin_drain(struct verbs_qp *qp)
{
	if (!set_state(qp, IBV_QPS_ERR))
		return;
	qp->state = QP_DRAINING;
	qp->drain_start_ms = clock_ms();
	qp->channel->unfenced++;
}

/* Returns true if all that the queue pair has received is taken from the
 * completion queue. Messages may be on their way into it until the NIC reports
 * the last one; some NICs never do, so there is a time limit. Drivers discard
 * completions when a queue pair is reset, and the receives would be lost. This
 * does not wait, since the lock is that of all channels of the process. */
static bool has_drained(struct verbs_qp *qp)
{
	struct verbs_nic *nic = qp->rail->nic;
	bool closing = clock_ms() >= qp->drain_start_ms + LAST_MS;

	if (!qp->channel->in)
		return true;
	verbs_nic_events(nic);
	complete_all(qp->channel->dev);
	return qp->events.last_wqe || closing || atomic_load(&nic->fatal);
}

/* Reset the queue pair. What it has delivered so far counts; what comes later
 * does not. */
static void stop(struct verbs_qp *qp)
{
	struct verbs_channel *channel = qp->channel;
	struct tp_device *dev = channel->dev;

	if (!set_state(qp, IBV_QPS_RESET))
		return;
	qp->state = QP_STOPPED;
	for (uint32_t i = 0; i < VERBS_READS; i++) {
		if (channel->reads[i].by != qp)
			continue;
		channel->reads[i].by = NULL;
		atomic_fetch_sub(&dev->reads, 1);
	}
	/* A message that was arriving may have used up a receive, so post
	 * one more. */
	if (channel->in && qp->rail->srq)
		verbs_rail_receives(qp->rail, NULL, 1);
}

static bool send_notice(const struct verbs_qp *qp)
{
	struct verbs_channel *channel = qp->channel;
	uint64_t mask = 0;

	for (uint32_t i = 0; channel->in && i < channel->dev->config.slots; i++)
		if (verbs_has_arrived(channel, channel->consumed + 1 + i))
			mask |= UINT64_C(1) << i;
	return verbs_send_notice(channel, (uint32_t)(qp - channel->qp),
				 channel->consumed, mask);
}

static bool has_arrived_there(const struct verbs_qp *qp, uint64_t seq)
{
	uint64_t after = seq - qp->received_to - 1;

	return seq <= qp->received_to ||
	       (after < 64 && qp->received_mask >> after & 1);
}

/* Both sides have stopped the queue pair: find out which messages have to be
 * sent again. */
static void collect(struct verbs_qp *qp)
{
	struct verbs_channel *channel = qp->channel;
	struct verbs_pool *pool = &channel->dev->pool;

	channel->unfenced--;
	qp->fenced = true;
	if (channel->in) {
		channel->urgent = true;
		verbs_credits_defer(channel);
		return;
	}
	for (uint32_t i = 0; i < channel->dev->config.slots; i++) {
		struct verbs_replay_entry *replay = &channel->replay[i];

		if (replay->by != qp ||
		    (int32_t)(replay->count - qp->done) < 0 ||
		    has_arrived_there(qp, replay->seq))
			continue;
		channel->resend |= UINT64_C(1) << i;
		if (replay->what)
			pool->user[replay->what - 1] = NULL;
	}
	for (uint32_t i = 0; i < pool->count; i++)
		if (pool->user[i] == qp)
			verbs_pool_give(pool, i);
	log_info("verbs %s: rank %d (%s): %d messages are sent again",
		 qp->rail->nic->name, channel->rank, channel->remote,
		 __builtin_popcountll(channel->resend));
}

/* Send all missing messages, and post all missing reads, again. Returns AGAIN
 * if no queue pair has room for the rest. */
static dicomm_result_t resend_all(struct verbs_channel *channel)
{
	while (channel->resend) {
		int slot = __builtin_ctzll(channel->resend);

		TRY(verbs_resend(channel, &channel->replay[slot]));
		channel->resend &= channel->resend - 1;
	}
	for (uint32_t i = 0; channel->in && i < VERBS_READS; i++) {
		struct verbs_read *read = &channel->reads[i];

		if (read->pending && !read->by)
			TRY(verbs_post_read(channel, read));
	}
	return DICOMM_SUCCESS;
}

static void step_qp(struct verbs_qp *qp)
{
	bool noticed = atomic_load(&qp->noticed);

	if (noticed && qp->state == QP_GOOD)
		verbs_qp_fail(qp, DICOMM_ERR_REMOTE, "the peer has stopped it",
			      "has its NIC failed, or its link?");
	if (qp->state == QP_FAILED) {
		begin_drain(qp);
	} else if (qp->state == QP_DRAINING && has_drained(qp)) {
		stop(qp);
		if (qp->state == QP_STOPPED && !send_notice(qp))
			log_debug("verbs: rank %d has left", qp->channel->rank);
	}
	if (noticed && qp->state == QP_STOPPED && !qp->fenced)
		collect(qp);
}

/* Do the next steps of one channel. Returns true if it has to be called
 * again. */
static bool failover(struct verbs_channel *channel)
{
	dicomm_result_t status;
	bool more = false;

	if (!channel || atomic_load(&channel->state) != CHANNEL_READY ||
	    channel->why)
		return false;
	for (uint32_t i = 0; i < channel->qps && !channel->why; i++)
		step_qp(&channel->qp[i]);
	for (uint32_t i = 0; i < channel->qps; i++)
		more |= channel->qp[i].state == QP_FAILED ||
			channel->qp[i].state == QP_DRAINING;
	/* Read again only when nothing can arrive at the same place any
	 * more. */
	if (channel->why || more)
		return !channel->why;
	status = resend_all(channel);
	if (status == DICOMM_SUCCESS || status == DICOMM_AGAIN)
		return status == DICOMM_AGAIN;
	verbs_channel_fail(channel, status);
	snprintf(channel->text, sizeof(channel->text), "%s", log_last_error());
	return false;
}

void verbs_failover_run(struct tp_device *dev)
{
	bool more = false;

	verbs_lock();
	atomic_store(&dev->failover, false);
	for (uint32_t i = 0; i < dev->channels && !atomic_load(&dev->aborted);
	     i++) {
		more |= failover(atomic_load(&dev->out[i]));
		more |= failover(atomic_load(&dev->in[i]));
	}
	for (uint32_t i = 0; i < dev->rails && !atomic_load(&dev->aborted); i++)
		more |= verbs_loopback_repair(dev, &dev->rail[i]);
	if (more)
		atomic_store(&dev->failover, true);
	verbs_unlock();
}

bool verbs_failover_pending(const struct verbs_channel *channel)
{
	return channel->unfenced || channel->resend ||
	       atomic_load(&channel->dev->failover);
}
