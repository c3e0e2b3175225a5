/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What NICs do not tell by a completion: a port without a link, a device that
 * is no more, requests that never end. A NIC gives up a silent peer by itself,
 * most of the time; but not all do, iWARP leaves it to TCP, and who waits for a
 * message has nothing under way that could fail. So each wait has a bound here,
 * which follows from what the NIC was told of its own.
 */
#include "transports/verbs/watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "transports/verbs/lane.h"
#include "transports/verbs/loss.h"
#include "transports/verbs/nic.h"
#include "transports/verbs/rail.h"
#include "transports/verbs/traffic.h"
#include "transports/verbs/verbs.h"

/* The specification lets a NIC take up to four times as long as it was told. */
#define NIC_SLACK 4
/* For a thread of a loaded machine to see what its NIC has done. */
#define SLACK_MS 2000
/* Over iWARP, who waits asks the other NIC so often whether it is there. */
#define ASK_MS 1000
/* One look stands for no more than that: nobody may have looked for long. */
#define LOOK_MS 1000
/* Slower than that nothing is alive. */
#define BYTES_PER_MS 1000

/* How long a NIC tries before it gives a peer up. */
static uint64_t retry_ms(void)
{
	uint64_t ns = UINT64_C(4096) << config_int(CONFIG_IB_TIMEOUT);

	return ns * (uint64_t)(config_int(CONFIG_IB_RETRY_CNT) + 1) / 1000000;
}

/* ---- events ---- */

static void on_link(struct verbs_nic *nic, unsigned port, bool up)
{
	if (port != nic->port)
		return;
	if (!up && !atomic_load(&nic->lost_ms)) {
		atomic_store(&nic->lost_ms, clock_ms());
		log_warn("verbs %s port %u: the link is down", nic->name,
			 nic->port);
	} else if (up && atomic_load(&nic->lost_ms)) {
		atomic_store(&nic->lost_ms, 0);
		log_warn("verbs %s port %u: the link is up again", nic->name,
			 nic->port);
	}
}

static void on_gone(struct verbs_nic *nic, const char *text)
{
	atomic_store(&nic->fatal, text);
	atomic_store(&nic->gone, true);
}

static void on_event(struct verbs_nic *nic, const struct ibv_async_event *e)
{
	const char *text = ibv_event_type_str(e->event_type);
	struct verbs_strand *s;

	switch (e->event_type) {
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
		on_link(nic, (unsigned)e->element.port_num,
			e->event_type == IBV_EVENT_PORT_ACTIVE);
		break;
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
		atomic_store(&nic->changed, true);
		log_debug("verbs %s: %s", nic->name, text);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		s = e->element.qp->qp_context;
		atomic_store(&s->event, text);
		break;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		s = e->element.qp->qp_context;
		s->last = true;
		break;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_SRQ_ERR:
		atomic_store(&nic->fatal, text);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		on_gone(nic, text);
		break;
	default:
		log_debug("verbs %s: %s", nic->name, text);
		break;
	}
}

bool verbs_watch_events(struct verbs_nic *nic)
{
	struct ibv_async_event e;

	/* Who destroys a queue pair waits until its events are acknowledged. */
	while (!ibv_get_async_event(nic->context, &e)) {
		on_event(nic, &e);
		ibv_ack_async_event(&e);
	}
	if (errno != EIO)
		return true;
	/* The kernel has taken the device out, and has said so most often. */
	if (!atomic_load(&nic->gone))
		on_gone(nic, "it has gone");
	return false;
}

/* ---- looks ---- */

static uint64_t bytes_under_way(const struct verbs_lane *lane)
{
	uint64_t bytes = 0;

	for (int i = 0; lane->in && i < VERBS_READS; i++)
		bytes += lane->reads[i].pending;
	return bytes;
}

/* Where what has ended may still be lost, it takes a request to find out. */
static bool is_to_ask(struct verbs_strand *s, uint32_t passed_ms)
{
	if (s->rail->nic->fabric != VERBS_IWARP)
		return false;
	s->idle_ms += passed_ms;
	if (s->idle_ms < ASK_MS)
		return false;
	s->idle_ms = 0;
	return true;
}

static void look_at_requests(struct verbs_strand *s, uint32_t passed_ms)
{
	uint32_t left = s->posted - s->done;
	uint64_t bytes = bytes_under_way(s->lane);
	uint64_t bound = NIC_SLACK * retry_ms() + SLACK_MS;
	dicomm_result_t status;
	char what[120];

	if (s->state != STRAND_GOOD)
		return;
	if (s->done != s->seen_done || (!left && !is_to_ask(s, passed_ms))) {
		s->seen_done = s->done;
		s->stuck_ms = 0;
		return;
	}
	/* Of requests that complete in silence this asks how they are. */
	status = !left || verbs_is_silent(s) ? verbs_probe(s) : DICOMM_SUCCESS;
	if (status != DICOMM_SUCCESS && status != DICOMM_AGAIN) {
		verbs_strand_give_up(s, status, "a request was refused",
				     "the NIC failed");
		return;
	}
	s->stuck_ms += passed_ms;
	if (s->stuck_ms < bound + bytes / BYTES_PER_MS)
		return;
	snprintf(what, sizeof(what),
		 "%" PRIu32 " requests, reads of %" PRIu64
		 " bytes among them, have not ended in %" PRIu32 " ms",
		 left, bytes, s->stuck_ms);
	verbs_strand_give_up(s, DICOMM_ERR_REMOTE, what,
			     "is the other rank's machine alive, and its link "
			     "up? The bound follows from DICOMM_IB_TIMEOUT and "
			     "DICOMM_IB_RETRY_CNT");
}

static void look_at_nic(struct verbs_strand *s, uint64_t now)
{
	const struct verbs_nic *nic = s->rail->nic;
	const char *fatal = atomic_load(&nic->fatal);
	const char *event = atomic_load(&s->event);
	uint64_t lost = atomic_load(&nic->lost_ms);
	char what[80];

	if (event && nic->fabric == VERBS_IWARP) {
		/* Of iWARP, so ends a connection that the other side drops. */
		verbs_strand_give_up(s, DICOMM_ERR_REMOTE, event,
				     "the connection has ended");
	} else if (fatal || event) {
		verbs_strand_give_up(s, DICOMM_ERR_SYSTEM,
				     fatal ? fatal : event, "the NIC failed");
	} else if (lost && now > lost + retry_ms()) {
		snprintf(what, sizeof(what), "no link for %" PRIu64 " ms",
			 now - lost);
		verbs_strand_give_up(
			s, DICOMM_ERR_SYSTEM, what,
			"the port of this rank has lost its cable, "
			"or was set down; DICOMM_IB_TIMEOUT and "
			"DICOMM_IB_RETRY_CNT say how long to wait "
			"for it");
	}
}

static dicomm_result_t look(struct verbs_lane *lane, uint64_t now,
			    uint32_t passed_ms, int *peer)
{
	/* Until it is ready, it belongs to the thread that connects. */
	if (!lane ||
	    atomic_load_explicit(&lane->state, memory_order_acquire) !=
		    LANE_READY ||
	    atomic_load_explicit(&lane->left, memory_order_acquire))
		return DICOMM_SUCCESS;
	for (uint32_t i = 0; i < lane->strands && !lane->why; i++)
		look_at_nic(&lane->strand[i], now);
	for (uint32_t i = 0; i < lane->strands && !lane->why; i++)
		look_at_requests(&lane->strand[i], passed_ms);
	if (!lane->why)
		return DICOMM_SUCCESS;
	/* Who closes a lane may be heard of a moment later. */
	if (!lane->reported) {
		lane->reported = true;
		return DICOMM_SUCCESS;
	}
	*peer = lane->rank;
	log_set_last_error(lane->text);
	return lane->why;
}

dicomm_result_t verbs_broken(struct tp_device *dev, int *peer)
{
	uint64_t now = clock_ms(), passed = now - dev->looked_ms;

	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return DICOMM_SUCCESS;
	if (passed > LOOK_MS)
		passed = dev->looked_ms ? LOOK_MS : 0;
	dev->looked_ms = now;
	for (uint32_t i = 0; i < dev->lanes; i++) {
		TRY(look(atomic_load(&dev->out[i]), now, (uint32_t)passed,
			 peer));
		TRY(look(atomic_load(&dev->in[i]), now, (uint32_t)passed,
			 peer));
	}
	return DICOMM_SUCCESS;
}
