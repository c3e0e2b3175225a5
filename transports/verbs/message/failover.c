/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs that are lost: why, in words; and how their channel goes on.
 *
 * What went over a lost queue pair may have landed, or not, or may land late.
 * So both sides stop it, each on its own: after that nothing of it lands here.
 * Each tells the other (over the connection that the channel was made by) that
 * it has, and what has come. Only then the sender sends again what has not, and
 * the receiver tells its credits, over another queue pair. Reads are another
 * matter: who has stopped them need not ask anybody before it reads again.
 */
#include "transports/verbs/message/failover.h"

#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/failure.h"
#include "transports/verbs/channel/lock.h"
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

/* For a NIC to say that a queue pair has brought its last message. */
#define LAST_MS 10

static void complete_all(struct tp_device *dev)
{
	int most = 0;

	for (uint32_t i = 0; i < dev->rails; i++)
		most += dev->rail[i].cqe;
	while (verbs_complete(dev) && most-- > 0)
		;
}

/* A NIC that is dead brings nothing, either. */
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

/* Some NICs finish what they are at after that. */
static void begin_drain(struct verbs_qp *qp)
{
	if (!set_state(qp, IBV_QPS_ERR))
		return;
	qp->state = QP_DRAINING;
	qp->drain_start_ms = clock_ms();
	qp->channel->unfenced++;
}

/* Messages may be on their way from the NIC to the completion queue until it
 * says that there was the last; drivers throw out what is there of a queue pair
 * that is reset, and the receives are lost. Some NICs never say it. Nobody
 * waits here for that: the lock is that of all channels of the process. */
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

/* What the queue pair has brought until now counts; nothing that comes later.
 */
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
	/* One receive may be lost with the message that had begun to come. */
	if (channel->in && qp->rail->srq)
		verbs_rail_receives(qp->rail, NULL, 1);
}

static bool tell(const struct verbs_qp *qp)
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

/* Both sides have stopped it: what of it is to be sent again? */
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

/* AGAIN: there was no room for all. */
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
		verbs_qp_fail(qp, DICOMM_ERR_REMOTE,
			      "the other rank has lost it",
			      "has its NIC failed, or its link?");
	if (qp->state == QP_FAILED) {
		begin_drain(qp);
	} else if (qp->state == QP_DRAINING && has_drained(qp)) {
		stop(qp);
		if (qp->state == QP_STOPPED && !tell(qp))
			log_debug("verbs: rank %d has left", qp->channel->rank);
	}
	if (noticed && qp->state == QP_STOPPED && !qp->fenced)
		collect(qp);
}

/* Is there more to be done at the next turn? */
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
	/* What is not stopped may still land where a read would go again. */
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
