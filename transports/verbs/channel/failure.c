/* SPDX-License-Identifier: BSD-3-Clause */
/* Failure of a queue pair: finds the cause and logs it once. Then the channel
 * goes on without it, or fails. */
#include "transports/verbs/channel/failure.h"

#include <inttypes.h>
#include <stdio.h>

#include "src/base/log.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/ports.h"

static const char *hint(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "no answer: is the other rank alive, its link up, and "
		       "RoCE's UDP port 4791 open between them? "
		       "DICOMM_IB_TIMEOUT and DICOMM_IB_RETRY_CNT say how long "
		       "to try";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the other side had no receive posted, which is a bug";
	case IBV_WC_REM_ACCESS_ERR:
		return "the other side has withdrawn that memory";
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return "the other NIC could not do it";
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
		return "memory of this rank is gone, or a bug";
	case IBV_WC_WR_FLUSH_ERR:
		return "the NIC stopped the queue pair without a reason: has "
		       "the port of this rank just lost its link?";
	default:
		return "the NIC failed";
	}
}

static bool is_remote(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return true;
	default:
		return false;
	}
}

static bool has_link(const struct verbs_nic *nic)
{
	struct ibv_port_attr port;

	return !ibv_query_port(nic->context, nic->port, &port) &&
	       port.state == IBV_PORT_ACTIVE;
}

/* Returns a hint for a request that was flushed, from the state of the port.
 * Some NICs report only a flush when they cannot send, and notice a second
 * later that their link is down. */
static const char *flush_hint(const struct verbs_nic *nic, dicomm_result_t *why)
{
	if (has_link(nic))
		return hint(IBV_WC_WR_FLUSH_ERR);
	*why = DICOMM_ERR_SYSTEM;
	return "the port of this rank has no link";
}

void verbs_qp_set_text(struct verbs_qp *qp, const char *what,
		       const char *hint_text)
{
	const struct verbs_nic *nic = qp->rail->nic;
	struct verbs_channel *channel = qp->channel;
	char gid[INET6_ADDRSTRLEN];

	verbs_gid_text(&qp->gid.gid, gid);
	if (!verbs_nic_has_gid(nic, &qp->gid) && has_link(nic))
		hint_text = VERBS_GID_LEFT;
	snprintf(channel->text, sizeof(channel->text),
		 "verbs %s port %u gid %s: rank %d (%s): queue pair %#x: %s: "
		 "%s",
		 nic->name, nic->port, gid, channel->rank, channel->remote,
		 qp->qpn, what, hint_text);
}

/* Returns true if another queue pair could do what this one could not. */
static bool is_path_error(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_FATAL_ERR:
	case IBV_WC_GENERAL_ERR:
		return true;
	default:
		return false;
	}
}

/* Let the channel go on without this queue pair. Returns false if it has
 * no other. */
static bool fail_over(struct verbs_qp *qp)
{
	struct verbs_channel *channel = qp->channel;
	const struct verbs_qp *other;

	/* Over iWARP, TCP has given up, and so has the peer, which ends the
	 * whole channel. */
	if (qp->rail->nic->fabric == VERBS_IWARP)
		return false;
	qp->state = QP_FAILED;
	other = verbs_good_qp(channel);
	if (!other) {
		qp->state = QP_GOOD;
		return false;
	}
	log_warn("%s; the channel continues over %s port %u", channel->text,
		 other->rail->nic->name, other->rail->nic->port);
	atomic_store(&channel->dev->failover, true);
	verbs_poll_all(channel->dev);
	return true;
}

void verbs_qp_fail(struct verbs_qp *qp, dicomm_result_t why, const char *what,
		   const char *hint_text)
{
	struct verbs_channel *channel = qp->channel;

	if (channel->why || qp->state != QP_GOOD)
		return;
	verbs_qp_set_text(qp, what, hint_text);
	if (fail_over(qp))
		return;
	verbs_channel_fail(channel, why);
	log_error("%s", channel->text);
	log_set_last_error(channel->text);
}

void verbs_qp_completion_error(struct verbs_qp *qp, const struct ibv_wc *wc,
			       const char *operation, uint64_t bytes)
{
	struct verbs_channel *channel = qp->channel;
	/* Over iWARP, the NIC is the first to see that the connection has
	 * ended, which siw reports as a failed send. But the NIC itself may
	 * have ended it. */
	bool ended = qp->rail->nic->fabric == VERBS_IWARP &&
		     (wc->status == IBV_WC_WR_FLUSH_ERR ||
		      wc->status == IBV_WC_LOC_QP_OP_ERR);
	bool peer_left = atomic_load(&channel->peer_closed) ||
			 (ended && has_link(qp->rail->nic));
	dicomm_result_t why = peer_left || is_remote(wc->status)
				      ? DICOMM_ERR_REMOTE
				      : DICOMM_ERR_SYSTEM;
	const char *hint_text = hint(wc->status);
	char what[160];

	if (channel->why || qp->state != QP_GOOD)
		return;
	/* Log no error: the control plane reports better which rank has gone,
	 * and why. */
	if (peer_left) {
		verbs_channel_fail(channel, why);
		snprintf(channel->text, sizeof(channel->text),
			 "verbs: rank %d (%s) has closed its side",
			 channel->rank, channel->remote);
		log_debug("%s", channel->text);
		log_set_last_error(channel->text);
		return;
	}
	if (ended || wc->status == IBV_WC_WR_FLUSH_ERR)
		hint_text = flush_hint(qp->rail->nic, &why);
	snprintf(what, sizeof(what),
		 "%s of %" PRIu64 " bytes: %s (vendor error %#x)", operation,
		 bytes, ibv_wc_status_str(wc->status), wc->vendor_err);
	verbs_qp_set_text(qp, what, hint_text);
	if (is_path_error(wc->status) && fail_over(qp))
		return;
	verbs_channel_fail(channel, why);
	log_error("%s", channel->text);
	log_set_last_error(channel->text);
}

/* Only the first cause is stored: another thread may already be reading it. */
void verbs_channel_failed(struct verbs_channel *channel, dicomm_result_t why,
			  const char *text)
{
	if (atomic_load(&channel->state) == CHANNEL_FAILED)
		return;
	verbs_channel_fail(channel, why);
	snprintf(channel->text, sizeof(channel->text), "%s", text);
	atomic_store_explicit(&channel->state, CHANNEL_FAILED,
			      memory_order_release);
}
