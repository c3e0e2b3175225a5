/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue pair of a lane: from its making to the words for its end. */
#include "transports/verbs/verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "src/base/config.h"
#include "src/base/log.h"

/* Of bytes that a reference or a line holds, behind its head. */
#define INLINE_BYTES (TP_LINE_BYTES - 8)
/* Reads under way at a time; more wait in the send queue. */
#define READS_AT_ONCE 16
#define MIN_RNR_TIMER 12 /* 0.64 ms; it never comes to that */

static uint32_t min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static dicomm_result_t create_qp(struct verbs_lane *lane)
{
	struct tp_device *dev = lane->dev;
	struct verbs_nic *nic = dev->nic;
	struct ibv_qp_init_attr attr = {
		.qp_context = lane,
		.send_cq = dev->cq,
		.recv_cq = dev->cq,
		.srq = dev->srq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = lane->depth, .max_send_sge = 2},
	};
	uint32_t room = nic->max_inline ? nic->max_inline : INLINE_BYTES;

	/* Few offer less than a line; then it is half of that. */
	do {
		errno = 0;
		attr.cap.max_inline_data = room;
		lane->qp = ibv_create_qp(nic->pd, &attr);
	} while (!lane->qp && !nic->max_inline && (room /= 2) > 8);
	if (!lane->qp)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s port %u: rank %d: create a queue pair "
			    "of %u requests: %m",
			    nic->name, nic->port, lane->rank, lane->depth);
	nic->max_inline = room;
	lane->max_inline = attr.cap.max_inline_data;
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_lane_open(struct verbs_lane *lane,
				struct verbs_card *card)
{
	struct tp_device *dev = lane->dev;
	struct verbs_nic *nic = dev->nic;
	uint32_t slots = dev->config.slots;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,
		.port_num = nic->port,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	/* A sender: two requests for each message, at most. A receiver: one
	 * read for each slot, and credits. */
	lane->depth = lane->in ? VERBS_READS + 16 : 4 * slots;
	lane->depth = min32(lane->depth, (uint32_t)nic->attr.max_qp_wr);
	TRY(verbs_reserve(dev, lane->depth + (lane->in ? slots : 0)));
	TRY(create_qp(lane));
	if (ibv_modify_qp(lane->qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				  IBV_QP_ACCESS_FLAGS))
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s port %u: queue pair to INIT: %m",
			    nic->name, nic->port);
	randombytes_buf(&lane->psn, sizeof(lane->psn));
	lane->psn &= 0xffffff;
	memcpy(card->gid, nic->gid.raw, sizeof(card->gid));
	card->qpn = lane->qp->qp_num;
	card->psn = lane->psn;
	card->lid = nic->port_attr.lid;
	card->mtu = nic->port_attr.active_mtu;
	card->reads = min32((uint32_t)nic->attr.max_qp_rd_atom, READS_AT_ONCE);
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_lane_inbox(struct verbs_lane *lane,
				 struct verbs_card *card)
{
	struct tp_device *dev = lane->dev;
	size_t bytes = (size_t)dev->config.slots * dev->stride;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "verbs: inbox of rank %d: map %zu bytes: %m",
			    lane->rank, bytes);
	lane->slots = memory;
	lane->slots_bytes = bytes;
	lane->stride = dev->stride;
	lane->slots_mr =
		ibv_reg_mr(dev->nic->pd, memory, bytes,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!lane->slots_mr)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s: inbox of rank %d: register %zu bytes: "
			    "%m",
			    dev->nic->name, lane->rank, bytes);
	TRY(verbs_post_receives(dev, dev->config.slots));
	card->addr = (uintptr_t)memory;
	card->rkey = lane->slots_mr->rkey;
	return DICOMM_SUCCESS;
}

static void address_of(const struct verbs_nic *nic,
		       const struct verbs_card *remote, struct ibv_ah_attr *ah)
{
	bool global = nic->fabric != VERBS_INFINIBAND ||
		      memcmp(nic->gid.raw, remote->gid, 8) != 0;

	*ah = (struct ibv_ah_attr){
		.dlid = (uint16_t)remote->lid,
		.sl = (uint8_t)config_int(CONFIG_IB_SL),
		.port_num = nic->port,
		.is_global = global,
	};
	if (!global)
		return;
	memcpy(ah->grh.dgid.raw, remote->gid, sizeof(remote->gid));
	ah->grh.sgid_index = nic->gid_index;
	ah->grh.hop_limit = 64;
	ah->grh.traffic_class = (uint8_t)config_int(CONFIG_IB_TC);
}

static bool makes_sense(const struct verbs_card *remote)
{
	return remote->mtu >= IBV_MTU_256 && remote->mtu <= IBV_MTU_4096 &&
	       remote->qpn <= 0xffffff && remote->psn <= 0xffffff;
}

static dicomm_result_t modify(struct verbs_lane *lane, struct ibv_qp_attr *attr,
			      int mask, const char *state)
{
	struct verbs_nic *nic = lane->dev->nic;
	int error = ibv_modify_qp(lane->qp, attr, mask);

	if (!error)
		return DICOMM_SUCCESS;
	errno = error;
	return FAIL(DICOMM_ERR_SYSTEM,
		    "verbs %s port %u: rank %d (%s): queue pair to %s: %m",
		    nic->name, nic->port, lane->rank, lane->remote, state);
}

/* What a put fills in is the rest. */
static void prepare(struct verbs_lane *lane)
{
	bool iwarp = lane->dev->nic->fabric == VERBS_IWARP;

	lane->wr = (struct ibv_send_wr){
		.sg_list = lane->sge,
		.opcode =
			iwarp ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM,
		.next = iwarp ? &lane->note : NULL,
		.wr.rdma = {.rkey = lane->remote_key},
	};
	lane->note = (struct ibv_send_wr){
		.sg_list = &lane->note_sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
	};
}

static void set_remote(struct verbs_lane *lane, const struct verbs_card *remote)
{
	lane->remote_addr = remote->addr;
	lane->remote_key = remote->rkey;
	if (lane->in)
		return;
	lane->stride = remote->stride;
	lane->limit = lane->dev->config.slots;
	prepare(lane);
}

dicomm_result_t verbs_lane_connect(struct verbs_lane *lane,
				   const struct verbs_card *remote)
{
	struct verbs_nic *nic = lane->dev->nic;
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)min32(nic->port_attr.active_mtu,
						remote->mtu),
		.dest_qp_num = remote->qpn,
		.rq_psn = remote->psn,
		.max_dest_rd_atomic = (uint8_t)min32(
			(uint32_t)nic->attr.max_qp_rd_atom, READS_AT_ONCE),
		.min_rnr_timer = MIN_RNR_TIMER,
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = (uint8_t)config_int(CONFIG_IB_TIMEOUT),
		.retry_cnt = (uint8_t)config_int(CONFIG_IB_RETRY_CNT),
		.rnr_retry = 7,
		.sq_psn = lane->psn,
		.max_rd_atomic = (uint8_t)min32(
			min32((uint32_t)nic->attr.max_qp_init_rd_atom,
			      remote->reads),
			READS_AT_ONCE),
	};

	if (nic->fabric == VERBS_IWARP) {
		set_remote(lane, remote);
		return DICOMM_SUCCESS;
	}
	if (!makes_sense(remote))
		return FAIL(DICOMM_ERR_REMOTE,
			    "verbs: rank %d (%s): its queue pair makes no "
			    "sense",
			    lane->rank, lane->remote);
	address_of(nic, remote, &rtr.ah_attr);
	TRY(modify(lane, &rtr,
		   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		   "RTR"));
	TRY(modify(lane, &rts,
		   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			   IBV_QP_MAX_QP_RD_ATOMIC,
		   "RTS"));
	set_remote(lane, remote);
	return DICOMM_SUCCESS;
}

void verbs_lane_stop(struct verbs_lane *lane)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (lane->qp)
		ibv_modify_qp(lane->qp, &attr, IBV_QP_STATE);
}

void verbs_lane_close(struct verbs_lane *lane)
{
	struct tp_device *dev = lane->dev;

	if (lane->qp) {
		ibv_destroy_qp(lane->qp);
		dev->cqe_reserved -=
			lane->depth + (lane->in ? dev->config.slots : 0);
	}
	verbs_cm_close(lane->cm);
	if (lane->slots_mr)
		ibv_dereg_mr(lane->slots_mr);
	if (lane->slots)
		munmap(lane->slots, lane->slots_bytes);
	free(lane);
}

uint64_t verbs_lane_memory(const struct verbs_lane *lane)
{
	/* What the driver keeps for a request is not told; 64 bytes is usual.
	 */
	return sizeof(*lane) + lane->slots_bytes + lane->depth * UINT64_C(64);
}

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

static void set_text(struct verbs_lane *lane, const char *what,
		     const char *hint_text)
{
	const struct verbs_nic *nic = lane->dev->nic;
	char gid[INET6_ADDRSTRLEN];

	verbs_gid_text(&nic->gid, gid);
	snprintf(lane->text, sizeof(lane->text),
		 "verbs %s port %u gid %s: rank %d (%s): queue pair %#x: %s: "
		 "%s",
		 nic->name, nic->port, gid, lane->rank, lane->remote,
		 lane->qp->qp_num, what, hint_text);
}

void verbs_lane_give_up(struct verbs_lane *lane, dicomm_result_t why,
			const char *what, const char *hint_text)
{
	if (lane->why)
		return;
	lane->why = why;
	set_text(lane, what, hint_text);
	log_error("%s", lane->text);
	log_set_last_error(lane->text);
}

void verbs_lane_broken(struct verbs_lane *lane, const struct ibv_wc *wc,
		       const char *operation, uint64_t bytes)
{
	/* Over iWARP, the end of a connection is seen by the NIC first, or by
	 * siw as a send that fails. */
	bool gone = atomic_load(&lane->left) ||
		    (lane->cm && (wc->status == IBV_WC_WR_FLUSH_ERR ||
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
			hint_text = flush_hint(lane->dev->nic, &lane->why);
		snprintf(what, sizeof(what),
			 "%s of %" PRIu64 " bytes: %s (vendor error %#x)",
			 operation, bytes, ibv_wc_status_str(wc->status),
			 wc->vendor_err);
		set_text(lane, what, hint_text);
		log_error("%s", lane->text);
	}
	log_set_last_error(lane->text);
}
