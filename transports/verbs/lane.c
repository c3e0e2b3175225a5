/* SPDX-License-Identifier: BSD-3-Clause */
/* Lanes and their queue pairs: how they are made, and go. */
#include "transports/verbs/lane.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "src/base/config.h"
#include "src/base/log.h"
#include "transports/verbs/choose.h"
#include "transports/verbs/cm.h"
#include "transports/verbs/loss.h"
#include "transports/verbs/memory.h"
#include "transports/verbs/rail.h"
#include "transports/verbs/traffic.h"
#include "transports/verbs/verbs.h"

#define MIN_RNR_TIMER 12 /* 0.64 ms; it never comes to that */
/* The kernel asks who has the address of the other NIC, and gives up after a
 * second: too soon for a network where all ask at once. */
#define RESOLVE_TRIES 3
/* Of a byte per second, for 1024 of them. */
#define PS_KIB (UINT64_C(1000000000000) * 1024)

static uint32_t min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

struct verbs_lane *verbs_lane_new(struct tp_device *dev, int rank, uint32_t c,
				  bool in, uint32_t strands)
{
	struct verbs_lane *lane =
		calloc(1, sizeof(*lane) + strands * sizeof(*lane->strand));

	if (!lane)
		return NULL;
	lane->dev = dev;
	lane->rank = rank;
	lane->id = (uint32_t)rank * TP_CLASSES + c;
	lane->in = in;
	lane->request = verbs_request_of(lane);
	lane->imm = ((uint32_t)dev->config.rank * TP_CLASSES + c) << 8;
	lane->max_inline = UINT32_MAX;
	lane->slot_mask = dev->config.slots - 1;
	lane->strands = strands;
	for (uint32_t i = 0; i < strands; i++)
		lane->strand[i].lane = lane;
	return lane;
}

static dicomm_result_t create_qp(struct verbs_strand *s)
{
	struct verbs_lane *lane = s->lane;
	struct verbs_nic *nic = s->rail->nic;
	struct ibv_qp_init_attr attr = {
		.qp_context = s,
		.send_cq = s->rail->cq,
		.recv_cq = s->rail->cq,
		.srq = s->rail->srq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = lane->depth, .max_send_sge = 2},
	};
	uint32_t room = nic->max_inline ? nic->max_inline : VERBS_INLINE;

	if (!s->rail->srq) {
		attr.cap.max_recv_wr = lane->in ? lane->dev->config.slots : 1;
		attr.cap.max_recv_sge = 1;
	}
	/* Few offer less than a line; then it is half of that. */
	do {
		errno = 0;
		attr.cap.max_inline_data = room;
		s->qp = ibv_create_qp(nic->pd, &attr);
	} while (!s->qp && !nic->max_inline && (room /= 2) > 8);
	if (!s->qp)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s port %u: rank %d: create a queue pair "
			    "of %u requests: %m%s",
			    nic->name, nic->port, lane->rank, lane->depth,
			    verbs_memory_hint());
	s->qpn = s->qp->qp_num;
	nic->max_inline = room;
	lane->max_inline = min32(lane->max_inline, attr.cap.max_inline_data);
	return DICOMM_SUCCESS;
}

/* What its entries of the completion queue are for. */
static uint32_t completions_of(const struct verbs_lane *lane)
{
	return lane->depth + (lane->in ? lane->dev->config.slots : 0);
}

/* Virtual functions of InfiniBand share the LID of their port: what has no GID
 * in it goes to another. */
static bool must_be_global(const struct verbs_nic *nic)
{
	return nic->port_attr.flags & IBV_QPF_GRH_REQUIRED;
}

static dicomm_result_t open_strand(struct verbs_strand *s,
				   struct verbs_end *end)
{
	struct verbs_rail *rail = s->rail;
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
			    nic->name, nic->port, s->lane->rank, why);
	}
	s->gid = nic->gid[0];
	TRY(verbs_rail_reserve(rail, completions_of(s->lane)));
	status = create_qp(s);
	if (status != DICOMM_SUCCESS) {
		rail->cqe_reserved -= completions_of(s->lane);
		return status;
	}
	errno = ibv_modify_qp(s->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				      IBV_QP_ACCESS_FLAGS);
	if (errno)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s port %u: queue pair to INIT, in the "
			    "partition at %u: %m",
			    nic->name, nic->port, nic->pkey_index);
	randombytes_buf(&s->psn, sizeof(s->psn));
	s->psn &= 0xffffff;
	end->gids = nic->gids;
	for (uint32_t i = 0; i < nic->gids; i++)
		memcpy(end->gid[i], nic->gid[i].gid.raw, sizeof(end->gid[i]));
	end->qpn = s->qpn;
	end->psn = s->psn;
	end->lid = nic->port_attr.lid;
	end->global = must_be_global(nic);
	end->mtu = nic->port_attr.active_mtu;
	end->reads = verbs_reads(nic->attr.max_qp_rd_atom);
	end->bytes_per_s = nic->bytes_per_s;
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_lane_open(struct verbs_lane *lane,
				struct verbs_card *card)
{
	struct tp_device *dev = lane->dev;

	/* A sender: two requests for each message, at most. A receiver: one
	 * read for each slot, and credits. All may go over one strand. */
	lane->depth = lane->in ? VERBS_READS + 16 : 4 * dev->config.slots;
	card->strands = lane->strands;
	for (uint32_t i = 0; i < lane->strands; i++) {
		struct verbs_strand *s = &lane->strand[i];
		const struct verbs_end *end = &card->end[i];

		s->rail = &dev->rail[end->rail];
		s->to_rail = end->to_rail;
		lane->depth = min32(lane->depth,
				    (uint32_t)s->rail->nic->attr.max_qp_wr);
	}
	for (uint32_t i = 0; i < lane->strands; i++)
		TRY(open_strand(&lane->strand[i], &card->end[i]));
	return DICOMM_SUCCESS;
}

/* The inbox as that rail knows it. */
static dicomm_result_t register_inbox(struct verbs_lane *lane, uint32_t rail)
{
	struct tp_device *dev = lane->dev;
	struct verbs_nic *nic = dev->rail[rail].nic;

	if (lane->slots_mr[rail])
		return DICOMM_SUCCESS;
	lane->slots_mr[rail] = ibv_reg_mr(
		nic->pd, lane->slots, lane->slots_bytes, verbs_own_access(nic));
	if (!lane->slots_mr[rail])
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s: inbox of rank %d: register %zu bytes: "
			    "%m%s",
			    nic->name, lane->rank, lane->slots_bytes,
			    verbs_memory_hint());
	/* All messages may come this way. */
	if (!dev->rail[rail].srq)
		return DICOMM_SUCCESS;
	return verbs_rail_receives(&dev->rail[rail], NULL, dev->config.slots);
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
	for (uint32_t i = 0; i < lane->strands; i++) {
		struct verbs_end *end = &card->end[i];
		struct verbs_strand *s = &lane->strand[i];

		TRY(register_inbox(lane, end->rail));
		if (!s->rail->srq)
			TRY(verbs_rail_receives(s->rail, s->qp,
						dev->config.slots));
		end->rkey = lane->slots_mr[end->rail]->rkey;
	}
	card->addr = (uintptr_t)memory;
	return DICOMM_SUCCESS;
}

bool verbs_has_come(const struct verbs_lane *lane, uint64_t seq)
{
	uint64_t slot = seq & (lane->dev->config.slots - 1);
	const struct tp_line *line =
		(const struct tp_line *)(lane->slots + slot * lane->stride);

	return atomic_load_explicit(&line->seq, memory_order_acquire) >= seq;
}

static void address_of(const struct verbs_strand *s,
		       const struct verbs_end *remote, struct ibv_ah_attr *ah)
{
	const struct verbs_nic *nic = s->rail->nic;
	const struct verbs_gid *mine = &s->gid;
	const uint8_t *theirs = remote->gid[s->to_gid];
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

static bool makes_sense(const struct verbs_end *remote)
{
	return remote->mtu >= IBV_MTU_256 && remote->mtu <= IBV_MTU_4096 &&
	       remote->qpn <= 0xffffff && remote->psn <= 0xffffff;
}

static dicomm_result_t modify(struct verbs_strand *s, struct ibv_qp_attr *attr,
			      int mask, const char *state)
{
	struct verbs_lane *lane = s->lane;
	const struct verbs_nic *nic = s->rail->nic;
	char gid[INET6_ADDRSTRLEN];
	int error = ETIMEDOUT;

	for (int i = 0; error == ETIMEDOUT && i < RESOLVE_TRIES; i++)
		error = ibv_modify_qp(s->qp, attr, mask);
	if (!error)
		return DICOMM_SUCCESS;
	verbs_gid_text(&s->gid.gid, gid);
	snprintf(lane->text, sizeof(lane->text),
		 "verbs %s port %u gid %s: rank %d (%s): queue pair to %s: %s",
		 nic->name, nic->port, gid, lane->rank, lane->remote, state,
		 verbs_nic_has_gid(nic, &s->gid) ? strerror(error)
						 : VERBS_GID_LEFT);
	return DICOMM_ERR_SYSTEM;
}

/* What a put fills in is the rest. */
static void prepare_brief(struct verbs_lane *lane)
{
	struct verbs_brief *b = &lane->brief;

	if (lane->strands > 1 || lane->note_above < 0 ||
	    lane->max_inline < sizeof(b->head))
		return;
	b->most = min32(lane->max_inline - (uint32_t)sizeof(b->head),
			lane->dev->eager_bytes);
	if (b->most > (uint64_t)lane->note_above)
		b->most = (uint64_t)lane->note_above;
	b->sge[0] = (struct ibv_sge){.addr = (uintptr_t)&b->head,
				     .length = sizeof(b->head)};
	b->wr = (struct ibv_send_wr){
		.sg_list = b->sge,
		.num_sge = 2,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_INLINE,
		.wr.rdma.rkey = lane->strand[0].remote_key,
	};
}

/* The same for messages of any kind. */
static void prepare(struct verbs_lane *lane)
{
	bool iwarp = lane->dev->rail[0].nic->fabric == VERBS_IWARP;

	lane->wr = (struct ibv_send_wr){.sg_list = lane->sge};
	lane->note = (struct ibv_send_wr){
		.sg_list = &lane->note_sge,
		.num_sge = iwarp,
		.opcode = iwarp ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	lane->note_above = iwarp ? -1 : config_int(CONFIG_IB_AR_THRESHOLD);
	prepare_brief(lane);
}

/* If not, lane->text says why. */
static dicomm_result_t connect_strand(struct verbs_strand *s,
				      const struct verbs_end *remote)
{
	const struct verbs_nic *nic = s->rail->nic;
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
		.sq_psn = s->psn,
		.max_rd_atomic = (uint8_t)min32(
			verbs_reads(nic->attr.max_qp_init_rd_atom),
			remote->reads),
	};

	if (!makes_sense(remote)) {
		snprintf(s->lane->text, sizeof(s->lane->text),
			 "verbs: rank %d (%s): its queue pair makes no sense",
			 s->lane->rank, s->lane->remote);
		return DICOMM_ERR_REMOTE;
	}
	address_of(s, remote, &rtr.ah_attr);
	TRY(modify(s, &rtr,
		   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		   "RTR"));
	return modify(s, &rts,
		      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			      IBV_QP_MAX_QP_RD_ATOMIC,
		      "RTS");
}

/* Of the strands here, or there, that share a rail: each has its part. */
static uint64_t part_of(const struct verbs_lane *lane, uint32_t strand,
			bool there, uint64_t bytes_per_s)
{
	const struct verbs_strand *s = lane->strand;
	uint64_t users = 0;

	for (uint32_t i = 0; i < lane->strands; i++)
		users += there ? s[i].to_rail == s[strand].to_rail
			       : s[i].rail == s[strand].rail;
	return bytes_per_s / users;
}

void verbs_lane_share(struct verbs_lane *lane, const struct verbs_card *remote)
{
	uint32_t first = (uint32_t)(lane->rank + lane->dev->config.rank);

	for (uint32_t i = 0; i < lane->strands; i++) {
		struct verbs_strand *s = &lane->strand[i];
		uint64_t here =
			part_of(lane, i, false, s->rail->nic->bytes_per_s);
		uint64_t there =
			part_of(lane, i, true, remote->end[i].bytes_per_s);
		uint64_t rate = here < there ? here : there;

		s->ps_per_kib = PS_KIB / (rate ? rate : 1);
		s->load_ps = (i + first) % lane->strands;
	}
}

dicomm_result_t verbs_lane_connect(struct verbs_lane *lane,
				   const struct verbs_card *remote)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	for (uint32_t i = 0; i < lane->strands; i++) {
		struct verbs_strand *s = &lane->strand[i];
		dicomm_result_t mine = connect_strand(s, &remote->end[i]);

		if (mine == DICOMM_SUCCESS)
			continue;
		status = mine;
		s->state = STRAND_LOST;
		atomic_store(&lane->dev->repair, true);
	}
	if (status == DICOMM_SUCCESS)
		return DICOMM_SUCCESS;
	if (!verbs_strand_good(lane))
		return FAIL(status, "%s", lane->text);
	log_warn("%s; goes on without it", lane->text);
	return DICOMM_SUCCESS;
}

bool verbs_lane_allow(struct verbs_lane *lane, uint64_t limit)
{
	/* Before the look whether an abort has set it. */
	atomic_store(&lane->limit, limit);
	if (!atomic_load(&lane->dev->aborted))
		return true;
	atomic_store(&lane->limit, 0);
	return false;
}

/* Who is called chooses for both sides, and may have lost the rail that was
 * asked for. */
static void meet_end(struct verbs_strand *s, const struct verbs_end *remote)
{
	const struct verbs_nic *nic = s->rail->nic;
	uint32_t mine = 0;

	if (!s->lane->in) {
		s->to_rail = remote->rail;
		return;
	}
	verbs_choose_pair(nic->gid, nic->gids, remote->gid, remote->gids, &mine,
			  &s->to_gid);
	s->gid = nic->gid[mine];
}

dicomm_result_t verbs_lane_meet(struct verbs_lane *lane,
				const struct verbs_card *remote)
{
	for (uint32_t i = 0; i < lane->strands; i++) {
		lane->strand[i].remote_key = remote->end[i].rkey;
		meet_end(&lane->strand[i], &remote->end[i]);
	}
	verbs_lane_share(lane, remote);
	lane->remote_addr = remote->addr;
	if (lane->in)
		return DICOMM_SUCCESS;
	/* Where one may be lost and the others go on. */
	if (lane->strands > 1 &&
	    lane->strand[0].rail->nic->fabric != VERBS_IWARP) {
		lane->kept =
			calloc(lane->dev->config.slots, sizeof(*lane->kept));
		if (!lane->kept)
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "verbs: out of memory");
		lane->max_inline = min32(lane->max_inline, VERBS_INLINE);
	}
	lane->stride = remote->stride;
	verbs_lane_allow(lane, lane->dev->config.slots);
	lane->lines = remote->addr + VERBS_LINE_SEQ;
	prepare(lane);
	return DICOMM_SUCCESS;
}

void verbs_lane_stop(struct verbs_lane *lane)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	for (uint32_t i = 0; i < lane->strands; i++)
		if (lane->strand[i].qp)
			ibv_modify_qp(lane->strand[i].qp, &attr, IBV_QP_STATE);
}

void verbs_lane_close(struct verbs_lane *lane)
{
	for (uint32_t i = 0; i < lane->strands; i++) {
		struct verbs_strand *s = &lane->strand[i];

		if (s->qp) {
			ibv_destroy_qp(s->qp);
			s->rail->cqe_reserved -= completions_of(lane);
		}
		verbs_cm_close(s->cm);
	}
	for (uint32_t i = 0; i < VERBS_RAILS; i++)
		if (lane->slots_mr[i])
			ibv_dereg_mr(lane->slots_mr[i]);
	if (lane->slots)
		munmap(lane->slots, lane->slots_bytes);
	free(lane->kept);
	free(lane);
}

uint64_t verbs_lane_memory(const struct verbs_lane *lane)
{
	/* What the driver keeps for a request is not told; 64 bytes is usual.
	 */
	return sizeof(*lane) + lane->slots_bytes +
	       (lane->kept ? lane->dev->config.slots * sizeof(*lane->kept)
			   : 0) +
	       lane->strands *
		       (sizeof(*lane->strand) + lane->depth * UINT64_C(64));
}
