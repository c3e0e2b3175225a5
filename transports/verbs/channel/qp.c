/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue pair: created (INIT), connected (RTR, then RTS), destroyed. */
#include "transports/verbs/channel/qp.h"

#include <errno.h>
#include <rdma/rdma_cma.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "src/base/config.h"
#include "src/base/log.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/ports.h"
#include "transports/verbs/nic/registration.h"

/* Code for 0.64 ms. It hardly matters: senders never wait for receives. */
#define MIN_RNR_TIMER 12
/* Attempts to connect. The kernel asks the network for the address of the
 * peer's NIC, and gives up after a second. That is too short if many ranks ask
 * at once. */
#define RESOLVE_TRIES 3

static uint32_t min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static dicomm_result_t create_qp(struct verbs_qp *qp)
{
	struct verbs_channel *channel = qp->channel;
	struct verbs_nic *nic = qp->rail->nic;
	struct ibv_qp_init_attr attr = {
		.qp_context = &qp->events,
		.send_cq = qp->rail->cq,
		.recv_cq = qp->rail->cq,
		.srq = qp->rail->srq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = channel->depth, .max_send_sge = 2},
	};
	uint32_t room = nic->max_inline ? nic->max_inline : VERBS_INLINE;

	if (!qp->rail->srq) {
		attr.cap.max_recv_wr =
			channel->in ? channel->dev->config.slots : 1;
		attr.cap.max_recv_sge = 1;
	}
	/* A few NICs offer less inline space than a line needs. Halve the size
	 * until the NIC accepts it. */
	do {
		errno = 0;
		attr.cap.max_inline_data = room;
		qp->ibv = ibv_create_qp(nic->pd, &attr);
	} while (!qp->ibv && !nic->max_inline && (room /= 2) > 8);
	if (!qp->ibv)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s port %u: rank %d: create a queue pair "
			    "of %u requests: %m%s",
			    nic->name, nic->port, channel->rank, channel->depth,
			    verbs_memory_hint());
	qp->qpn = qp->ibv->qp_num;
	nic->max_inline = room;
	channel->max_inline =
		min32(channel->max_inline, attr.cap.max_inline_data);
	return DICOMM_SUCCESS;
}

/* Returns true if packets to this port need a GID. InfiniBand virtual functions
 * share the LID of their port, so packets to them do. */
static bool must_be_global(const struct verbs_nic *nic)
{
	return nic->port_attr.flags & IBV_QPF_GRH_REQUIRED;
}

dicomm_result_t verbs_qp_open(struct verbs_qp *qp,
			      struct verbs_qp_address *mine)
{
	struct verbs_rail *rail = qp->rail;
	struct verbs_nic *nic = rail->nic;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = nic->pkey_index,
		.port_num = nic->port,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	dicomm_result_t status;
	char why[64];

	if (!nic->gids) {
		verbs_nic_say_no_gid(why, sizeof(why));
		return FAIL(DICOMM_ERR_NO_PATH, "verbs %s port %u: rank %d: %s",
			    nic->name, nic->port, qp->channel->rank, why);
	}
	qp->gid = nic->gid[0];
	TRY(verbs_rail_reserve(rail, verbs_channel_completions(qp->channel)));
	status = create_qp(qp);
	if (status != DICOMM_SUCCESS) {
		rail->cqe_reserved -= verbs_channel_completions(qp->channel);
		return status;
	}
	errno = ibv_modify_qp(qp->ibv, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				      IBV_QP_ACCESS_FLAGS);
	if (errno)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s port %u: queue pair to INIT, in the "
			    "partition at %u: %m",
			    nic->name, nic->port, nic->pkey_index);
	randombytes_buf(&qp->psn, sizeof(qp->psn));
	qp->psn &= 0xffffff;
	mine->gids = nic->gids;
	for (uint32_t i = 0; i < nic->gids; i++)
		memcpy(mine->gid[i], nic->gid[i].gid.raw, sizeof(mine->gid[i]));
	mine->qpn = qp->qpn;
	mine->psn = qp->psn;
	mine->lid = nic->port_attr.lid;
	mine->global = must_be_global(nic);
	mine->mtu = nic->port_attr.active_mtu;
	mine->reads = verbs_reads(nic->attr.max_qp_rd_atom);
	mine->bytes_per_s = nic->bytes_per_s;
	return DICOMM_SUCCESS;
}

static void address_of(const struct verbs_qp *qp,
		       const struct verbs_qp_address *remote,
		       struct ibv_ah_attr *ah)
{
	const struct verbs_nic *nic = qp->rail->nic;
	const struct verbs_gid *mine = &qp->gid;
	const uint8_t *theirs = remote->gid[qp->to_gid];
	bool global = nic->fabric != VERBS_INFINIBAND || must_be_global(nic) ||
		      remote->global || memcmp(mine->gid.raw, theirs, 8) != 0;

	*ah = (struct ibv_ah_attr){
		.dlid = (uint16_t)remote->lid,
		.sl = (uint8_t)config_int(CONFIG_IB_SL),
		.port_num = nic->port,
		.is_global = global,
	};
	if (!global)
		return;
	memcpy(ah->grh.dgid.raw, theirs, sizeof(ah->grh.dgid.raw));
	ah->grh.sgid_index = mine->index;
	ah->grh.hop_limit = 64;
	ah->grh.traffic_class = (uint8_t)config_int(CONFIG_IB_TC);
}

static bool is_valid_address(const struct verbs_qp_address *remote)
{
	return remote->mtu >= IBV_MTU_256 && remote->mtu <= IBV_MTU_4096 &&
	       remote->qpn <= 0xffffff && remote->psn <= 0xffffff;
}

static dicomm_result_t modify(struct verbs_qp *qp, struct ibv_qp_attr *attr,
			      int mask, const char *state)
{
	struct verbs_channel *channel = qp->channel;
	const struct verbs_nic *nic = qp->rail->nic;
	char gid[INET6_ADDRSTRLEN];
	int error = ETIMEDOUT;

	for (int i = 0; error == ETIMEDOUT && i < RESOLVE_TRIES; i++)
		error = ibv_modify_qp(qp->ibv, attr, mask);
	if (!error)
		return DICOMM_SUCCESS;
	verbs_gid_text(&qp->gid.gid, gid);
	snprintf(channel->text, sizeof(channel->text),
		 "verbs %s port %u gid %s: rank %d (%s): queue pair to %s: %s",
		 nic->name, nic->port, gid, channel->rank, channel->remote,
		 state,
		 verbs_nic_has_gid(nic, &qp->gid) ? strerror(error)
						  : VERBS_GID_LEFT);
	return DICOMM_ERR_SYSTEM;
}

dicomm_result_t verbs_qp_connect(struct verbs_qp *qp,
				 const struct verbs_qp_address *remote)
{
	const struct verbs_nic *nic = qp->rail->nic;
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)min32(nic->port_attr.active_mtu,
						remote->mtu),
		.dest_qp_num = remote->qpn,
		.rq_psn = remote->psn,
		.max_dest_rd_atomic = verbs_reads(nic->attr.max_qp_rd_atom),
		.min_rnr_timer = MIN_RNR_TIMER,
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = (uint8_t)config_int(CONFIG_IB_TIMEOUT),
		.retry_cnt = (uint8_t)config_int(CONFIG_IB_RETRY_CNT),
		.rnr_retry = 7,
		.sq_psn = qp->psn,
		.max_rd_atomic = (uint8_t)min32(
			verbs_reads(nic->attr.max_qp_init_rd_atom),
			remote->reads),
	};

	if (!is_valid_address(remote)) {
		snprintf(qp->channel->text, sizeof(qp->channel->text),
			 "verbs: rank %d (%s): the address of its queue pair "
			 "is invalid",
			 qp->channel->rank, qp->channel->remote);
		return DICOMM_ERR_REMOTE;
	}
	address_of(qp, remote, &rtr.ah_attr);
	TRY(modify(qp, &rtr,
		   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		   "RTR"));
	return modify(qp, &rts,
		      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			      IBV_QP_MAX_QP_RD_ATOMIC,
		      "RTS");
}

void verbs_qp_close(struct verbs_qp *qp)
{
	if (qp->ibv) {
		ibv_destroy_qp(qp->ibv);
		qp->rail->cqe_reserved -=
			verbs_channel_completions(qp->channel);
	}
	if (qp->cm)
		rdma_destroy_id(qp->cm);
}
