/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs that are lost: why, in words. */
#include "transports/verbs/verbs.h"

#include <inttypes.h>
#include <stdio.h>

#include "src/base/log.h"

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

/* A request that did not fail by itself: what has the port to say? Some NICs
 * report no more than that when they cannot send, and learn of their link a
 * second later. */
static const char *flush_hint(const struct verbs_nic *nic, dicomm_result_t *why)
{
	struct ibv_port_attr port;

	if (!ibv_query_port(nic->context, nic->port, &port) &&
	    port.state == IBV_PORT_ACTIVE)
		return hint(IBV_WC_WR_FLUSH_ERR);
	*why = DICOMM_ERR_SYSTEM;
	return "the port of this rank has no link";
}

static void set_text(struct verbs_strand *s, const char *what,
		     const char *hint_text)
{
	const struct verbs_nic *nic = s->rail->nic;
	struct verbs_lane *lane = s->lane;
	char gid[INET6_ADDRSTRLEN];

	verbs_gid_text(&nic->gid, gid);
	snprintf(lane->text, sizeof(lane->text),
		 "verbs %s port %u gid %s: rank %d (%s): queue pair %#x: %s: "
		 "%s",
		 nic->name, nic->port, gid, lane->rank, lane->remote,
		 s->qp->qp_num, what, hint_text);
}

void verbs_lane_give_up(struct verbs_strand *s, dicomm_result_t why,
			const char *what, const char *hint_text)
{
	struct verbs_lane *lane = s->lane;

	if (lane->why)
		return;
	lane->why = why;
	set_text(s, what, hint_text);
	log_error("%s", lane->text);
	log_set_last_error(lane->text);
}

void verbs_lane_broken(struct verbs_strand *s, const struct ibv_wc *wc,
		       const char *operation, uint64_t bytes)
{
	struct verbs_lane *lane = s->lane;
	/* Over iWARP, the end of a connection is seen by the NIC first, or by
	 * siw as a send that fails. */
	bool gone = atomic_load(&lane->left) ||
		    (s->cm && (wc->status == IBV_WC_WR_FLUSH_ERR ||
			       wc->status == IBV_WC_LOC_QP_OP_ERR));
	const char *hint_text = hint(wc->status);
	char what[160];

	if (lane->why)
		return;
	lane->why = gone || is_remote(wc->status) ? DICOMM_ERR_REMOTE
						  : DICOMM_ERR_SYSTEM;
	/* Who has gone, the control plane tells better. */
	if (gone) {
		snprintf(lane->text, sizeof(lane->text),
			 "verbs: rank %d (%s) has closed its side", lane->rank,
			 lane->remote);
		log_debug("%s", lane->text);
	} else {
		if (wc->status == IBV_WC_WR_FLUSH_ERR)
			hint_text = flush_hint(s->rail->nic, &lane->why);
		snprintf(what, sizeof(what),
			 "%s of %" PRIu64 " bytes: %s (vendor error %#x)",
			 operation, bytes, ibv_wc_status_str(wc->status),
			 wc->vendor_err);
		set_text(s, what, hint_text);
		log_error("%s", lane->text);
	}
	log_set_last_error(lane->text);
}
