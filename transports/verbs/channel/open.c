/* SPDX-License-Identifier: BSD-3-Clause */
/* Creates, connects and closes channels. */
#include "transports/verbs/channel/open.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "src/base/config.h"
#include "src/base/log.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/qp.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/nic/choose.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/registration.h"

/* Picoseconds that 1 KiB takes at one byte per second. */
#define PS_KIB (UINT64_C(1000000000000) * 1024)

static uint32_t min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

struct verbs_channel *verbs_channel_new(struct tp_device *dev, int rank,
					uint32_t c, bool in, uint32_t qps)
{
	struct verbs_channel *channel =
		calloc(1, sizeof(*channel) + qps * sizeof(*channel->qp));

	if (!channel)
		return NULL;
	channel->dev = dev;
	channel->rank = rank;
	channel->id = (uint32_t)rank * TP_CLASSES + c;
	channel->in = in;
	channel->request = verbs_request_base(channel);
	channel->imm = ((uint32_t)dev->config.rank * TP_CLASSES + c) << 8;
	channel->max_inline = UINT32_MAX;
	channel->slot_mask = dev->config.slots - 1;
	channel->qps = qps;
	if (!in)
		channel->words = &dev->words[channel->id];
	for (uint32_t i = 0; i < qps; i++)
		channel->qp[i].channel = channel;
	return channel;
}

dicomm_result_t verbs_channel_open(struct verbs_channel *channel,
				   struct verbs_connect_msg *msg)
{
	struct tp_device *dev = channel->dev;

	/* A sender posts at most two requests for each message. A receiver
	 * posts a read for each message, and credits. One queue pair may get
	 * all of them. */
	channel->depth = channel->in ? VERBS_READS + 16 : 4 * dev->config.slots;
	msg->qps = channel->qps;
	for (uint32_t i = 0; i < channel->qps; i++) {
		struct verbs_qp *qp = &channel->qp[i];
		const struct verbs_qp_address *end = &msg->qp[i];

		qp->rail = &dev->rail[end->rail];
		qp->remote_rail = end->remote_rail;
		channel->depth = min32(channel->depth,
				       (uint32_t)qp->rail->nic->attr.max_qp_wr);
	}
	for (uint32_t i = 0; i < channel->qps; i++)
		TRY(verbs_qp_open(&channel->qp[i], &msg->qp[i]));
	return DICOMM_SUCCESS;
}

/* Register the inbox with one rail, if that is not done yet. */
static dicomm_result_t register_inbox(struct verbs_channel *channel,
				      uint32_t rail)
{
	struct tp_device *dev = channel->dev;
	struct verbs_nic *nic = dev->rail[rail].nic;

	if (channel->slots_mr[rail])
		return DICOMM_SUCCESS;
	channel->slots_mr[rail] =
		ibv_reg_mr(nic->pd, channel->slots, channel->slots_bytes,
			   verbs_own_access(nic));
	if (!channel->slots_mr[rail])
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s: inbox of rank %d: register %zu bytes: "
			    "%m%s",
			    nic->name, channel->rank, channel->slots_bytes,
			    verbs_memory_hint());
	/* All messages of the channel may arrive by this rail. */
	if (!dev->rail[rail].srq)
		return DICOMM_SUCCESS;
	return verbs_rail_receives(&dev->rail[rail], NULL, dev->config.slots);
}

dicomm_result_t verbs_channel_inbox(struct verbs_channel *channel,
				    struct verbs_connect_msg *msg)
{
	struct tp_device *dev = channel->dev;
	size_t bytes = (size_t)dev->config.slots * dev->stride;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "verbs: inbox of rank %d: map %zu bytes: %m",
			    channel->rank, bytes);
	channel->slots = memory;
	channel->slots_bytes = bytes;
	channel->stride = dev->stride;
	for (uint32_t i = 0; i < channel->qps; i++) {
		struct verbs_qp_address *end = &msg->qp[i];
		struct verbs_qp *qp = &channel->qp[i];

		TRY(register_inbox(channel, end->rail));
		if (!qp->rail->srq)
			TRY(verbs_rail_receives(qp->rail, qp->ibv,
						dev->config.slots));
		end->rkey = channel->slots_mr[end->rail]->rkey;
	}
	msg->addr = (uintptr_t)memory;
	return DICOMM_SUCCESS;
}

/* Fill in everything that put_fast() does not. */
static void prepare_fast(struct verbs_channel *channel)
{
	struct verbs_fast_put *b = &channel->fast;

	if (channel->qps > 1 || channel->notify_above < 0 ||
	    channel->max_inline < sizeof(b->head))
		return;
	b->max_bytes = min32(channel->max_inline - (uint32_t)sizeof(b->head),
			     channel->dev->eager_bytes);
	if (b->max_bytes > (uint64_t)channel->notify_above)
		b->max_bytes = (uint64_t)channel->notify_above;
	b->sge[0] = (struct ibv_sge){.addr = (uintptr_t)&b->head,
				     .length = sizeof(b->head)};
	b->wr = (struct ibv_send_wr){
		.sg_list = b->sge,
		.num_sge = 2,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_INLINE,
		.wr.rdma.rkey = channel->qp[0].remote_key,
	};
}

/* Fill in everything that is the same for all messages. */
static void prepare(struct verbs_channel *channel)
{
	bool iwarp = channel->dev->rail[0].nic->fabric == VERBS_IWARP;

	channel->wr = (struct ibv_send_wr){.sg_list = channel->sge};
	channel->notify = (struct ibv_send_wr){
		.sg_list = &channel->notify_sge,
		.num_sge = iwarp,
		.opcode = iwarp ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	channel->notify_above = iwarp ? -1 : config_int(CONFIG_IB_AR_THRESHOLD);
	prepare_fast(channel);
}

/* Returns a queue pair's part of the rate of its rail (`there`: of the peer's
 * rail). The queue pairs of one rail share it. */
static uint64_t part_of(const struct verbs_channel *channel, uint32_t which,
			bool there, uint64_t bytes_per_s)
{
	const struct verbs_qp *qp = channel->qp;
	uint64_t users = 0;

	for (uint32_t i = 0; i < channel->qps; i++)
		users += there ? qp[i].remote_rail == qp[which].remote_rail
			       : qp[i].rail == qp[which].rail;
	return bytes_per_s / users;
}

void verbs_channel_balance(struct verbs_channel *channel,
			   const struct verbs_connect_msg *remote)
{
	uint32_t first = (uint32_t)(channel->rank + channel->dev->config.rank);

	for (uint32_t i = 0; i < channel->qps; i++) {
		struct verbs_qp *qp = &channel->qp[i];
		uint64_t here =
			part_of(channel, i, false, qp->rail->nic->bytes_per_s);
		uint64_t there =
			part_of(channel, i, true, remote->qp[i].bytes_per_s);
		uint64_t rate = here < there ? here : there;

		qp->ps_per_kib = PS_KIB / (rate ? rate : 1);
		qp->load_ps = (i + first) % channel->qps;
	}
}

dicomm_result_t verbs_channel_connect(struct verbs_channel *channel,
				      const struct verbs_connect_msg *remote)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	for (uint32_t i = 0; i < channel->qps; i++) {
		struct verbs_qp *qp = &channel->qp[i];
		dicomm_result_t mine = verbs_qp_connect(qp, &remote->qp[i]);

		if (mine == DICOMM_SUCCESS)
			continue;
		status = mine;
		qp->state = QP_FAILED;
		atomic_store(&channel->dev->failover, true);
	}
	if (status == DICOMM_SUCCESS)
		return DICOMM_SUCCESS;
	if (!verbs_good_qp(channel))
		return FAIL(status, "%s", channel->text);
	log_warn("%s; the channel continues without it", channel->text);
	return DICOMM_SUCCESS;
}

/* Choose the GIDs, or take the choice over. The receiver chooses GIDs and rails
 * for both sides, since it may have lost the rail that the sender asked for. */
static void set_remote_qp(struct verbs_qp *qp,
			  const struct verbs_qp_address *remote)
{
	const struct verbs_nic *nic = qp->rail->nic;
	uint32_t mine = 0;

	if (!qp->channel->in) {
		qp->remote_rail = remote->rail;
		return;
	}
	verbs_choose_pair(nic->gid, nic->gids, remote->gid, remote->gids, &mine,
			  &qp->to_gid);
	qp->gid = nic->gid[mine];
}

dicomm_result_t verbs_channel_set_remote(struct verbs_channel *channel,
					 const struct verbs_connect_msg *remote)
{
	for (uint32_t i = 0; i < channel->qps; i++) {
		channel->qp[i].remote_key = remote->qp[i].rkey;
		set_remote_qp(&channel->qp[i], &remote->qp[i]);
	}
	verbs_channel_balance(channel, remote);
	channel->remote_addr = remote->addr;
	if (channel->in)
		return DICOMM_SUCCESS;
	/* With several queue pairs, the channel needs a replay buffer, in case
	 * one fails. */
	if (channel->qps > 1 &&
	    channel->qp[0].rail->nic->fabric != VERBS_IWARP) {
		channel->replay = calloc(channel->dev->config.slots,
					 sizeof(*channel->replay));
		if (!channel->replay)
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "verbs: out of memory");
		channel->max_inline = min32(channel->max_inline, VERBS_INLINE);
	}
	channel->stride = remote->stride;
	verbs_channel_allow(channel, channel->dev->config.slots);
	channel->lines = remote->addr + VERBS_LINE_SEQ;
	prepare(channel);
	return DICOMM_SUCCESS;
}

void verbs_channel_stop(struct verbs_channel *channel)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	for (uint32_t i = 0; i < channel->qps; i++)
		if (channel->qp[i].ibv)
			ibv_modify_qp(channel->qp[i].ibv, &attr, IBV_QP_STATE);
}

void verbs_channel_close(struct verbs_channel *channel)
{
	for (uint32_t i = 0; i < channel->qps; i++)
		verbs_qp_close(&channel->qp[i]);
	for (uint32_t i = 0; i < VERBS_RAILS; i++)
		if (channel->slots_mr[i])
			ibv_dereg_mr(channel->slots_mr[i]);
	if (channel->slots)
		munmap(channel->slots, channel->slots_bytes);
	free(channel->replay);
	free(channel);
}
