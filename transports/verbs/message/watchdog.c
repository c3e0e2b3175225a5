/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A watchdog for failures that no completion reports: a port without a link, a
 * device that was removed, requests that never complete.
 *
 * Usually a NIC gives up a silent peer by itself. But not all do, iWARP leaves
 * it to TCP, and a rank that only waits for a message has no request that could
 * fail. So each wait has a bound here, which follows from the NIC's own
 * timeouts.
 */
#include "transports/verbs/message/watchdog.h"

#include <inttypes.h>
#include <stdio.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/failure.h"
#include "transports/verbs/message/post.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"

/* The specification allows a NIC four times the timeout that it was given. */
#define NIC_SLACK 4
/* Extra time for the peer's thread, or this one, on a loaded machine. */
#define SLACK_MS 2000
/* iWARP: how often a waiting rank asks the peer's NIC whether it is there. */
#define ASK_MS 1000
/* Most time that is counted between two looks, since nobody may have looked
 * for long. */
#define LOOK_MS 1000
/* No read is slower than this. */
#define BYTES_PER_MS 1000

/* Returns how long a NIC retries before it gives up a peer. */
static uint64_t retry_ms(void)
{
	uint64_t ns = UINT64_C(4096) << config_int(CONFIG_IB_TIMEOUT);

	return ns * (uint64_t)(config_int(CONFIG_IB_RETRY_CNT) + 1) / 1000000;
}

static uint64_t bytes_under_way(const struct verbs_channel *channel)
{
	uint64_t bytes = 0;

	for (int i = 0; channel->in && i < VERBS_READS; i++)
		bytes += channel->reads[i].pending;
	return bytes;
}

/* Returns true if it is time to ask the peer's NIC. That is needed over iWARP,
 * where data may be lost after its request is complete. */
static bool must_ask(struct verbs_qp *qp, uint32_t passed_ms)
{
	if (qp->rail->nic->fabric != VERBS_IWARP)
		return false;
	qp->idle_ms += passed_ms;
	if (qp->idle_ms < ASK_MS)
		return false;
	qp->idle_ms = 0;
	return true;
}

static void watch_requests(struct verbs_qp *qp, uint32_t passed_ms)
{
	uint32_t left = qp->posted - qp->done;
	uint64_t bytes = bytes_under_way(qp->channel);
	uint64_t bound = NIC_SLACK * retry_ms() + SLACK_MS;
	dicomm_result_t status;
	char what[120];

	if (qp->state != QP_GOOD)
		return;
	if (qp->done != qp->seen_done || (!left && !must_ask(qp, passed_ms))) {
		qp->seen_done = qp->done;
		qp->stuck_ms = 0;
		return;
	}
	/* If the last requests ask for no completion, post one that does. */
	status = !left || verbs_has_unsignaled(qp) ? verbs_probe(qp)
						   : DICOMM_SUCCESS;
	if (status != DICOMM_SUCCESS && status != DICOMM_AGAIN) {
		verbs_qp_fail(qp, status, "a request was refused",
			      "the NIC failed");
		return;
	}
	qp->stuck_ms += passed_ms;
	if (qp->stuck_ms < bound + bytes / BYTES_PER_MS)
		return;
	snprintf(what, sizeof(what),
		 "%" PRIu32 " requests, reads of %" PRIu64
		 " bytes among them, have not ended in %" PRIu32 " ms",
		 left, bytes, qp->stuck_ms);
	verbs_qp_fail(qp, DICOMM_ERR_REMOTE, what,
		      "is the other rank's machine alive, and its link "
		      "up? The bound follows from DICOMM_IB_TIMEOUT and "
		      "DICOMM_IB_RETRY_CNT");
}

static void watch_nic(struct verbs_qp *qp, uint64_t now)
{
	const struct verbs_nic *nic = qp->rail->nic;
	const char *fatal = atomic_load(&nic->fatal);
	const char *event = atomic_load(&qp->events.failed);
	uint64_t lost = atomic_load(&nic->link_down_ms);
	char what[80];

	if (event && nic->fabric == VERBS_IWARP) {
		/* Over iWARP, the end of a connection shows like this. */
		verbs_qp_fail(qp, DICOMM_ERR_REMOTE, event,
			      "the connection has ended");
	} else if (fatal || event) {
		verbs_qp_fail(qp, DICOMM_ERR_SYSTEM, fatal ? fatal : event,
			      "the NIC failed");
	} else if (lost && now > lost + retry_ms()) {
		snprintf(what, sizeof(what), "no link for %" PRIu64 " ms",
			 now - lost);
		verbs_qp_fail(qp, DICOMM_ERR_SYSTEM, what,
			      "the port of this rank has lost its cable, "
			      "or was set down; DICOMM_IB_TIMEOUT and "
			      "DICOMM_IB_RETRY_CNT say how long to wait "
			      "for it");
	}
}

static dicomm_result_t watch_channel(struct verbs_channel *channel,
				     uint64_t now, uint32_t passed_ms,
				     int *peer)
{
	/* Before CHANNEL_READY, the channel belongs to the connection
	 * thread. */
	if (!channel ||
	    atomic_load_explicit(&channel->state, memory_order_acquire) !=
		    CHANNEL_READY ||
	    atomic_load_explicit(&channel->peer_closed, memory_order_acquire))
		return DICOMM_SUCCESS;
	for (uint32_t i = 0; i < channel->qps && !channel->why; i++)
		watch_nic(&channel->qp[i], now);
	for (uint32_t i = 0; i < channel->qps && !channel->why; i++)
		watch_requests(&channel->qp[i], passed_ms);
	if (!channel->why)
		return DICOMM_SUCCESS;
	/* Report the failure at the second look: that the peer has closed the
	 * channel may become known a moment later. */
	if (!channel->reported) {
		channel->reported = true;
		return DICOMM_SUCCESS;
	}
	*peer = channel->rank;
	log_set_last_error(channel->text);
	return channel->why;
}

dicomm_result_t verbs_broken(struct tp_device *dev, int *peer)
{
	uint64_t now = clock_ms(), passed = now - dev->watched_ms;

	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return DICOMM_SUCCESS;
	if (passed > LOOK_MS)
		passed = dev->watched_ms ? LOOK_MS : 0;
	dev->watched_ms = now;
	for (uint32_t i = 0; i < dev->channels; i++) {
		TRY(watch_channel(atomic_load(&dev->out[i]), now,
				  (uint32_t)passed, peer));
		TRY(watch_channel(atomic_load(&dev->in[i]), now,
				  (uint32_t)passed, peer));
	}
	return DICOMM_SUCCESS;
}
