/* SPDX-License-Identifier: BSD-3-Clause */
/* Flushes. A NIC reports a read as complete when it has sent the bytes towards
 * the memory of the device. The report may overtake the bytes. But a read of
 * that memory does not overtake a write to it. So the NIC reads one byte back,
 * over a queue pair that connects it to itself. When that read is complete, the
 * data is in the memory. */
#include "transports/verbs/channel/loopback.h"

#include <errno.h>
#include <stdio.h>

#include "src/base/log.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/open.h"
#include "transports/verbs/channel/rail.h"

#define SLOT_BITS 8
#define NUMBER_SHIFT (SLOT_BITS + VERBS_CHANNEL_BITS)

static uint64_t id_of(const struct verbs_channel *channel, uint32_t slot)
{
	return (uint64_t)channel->reads[slot].number << NUMBER_SHIFT |
	       (uint64_t)channel->id << SLOT_BITS | slot;
}

/* The caller holds verbs_lock(). */
static dicomm_result_t open_loopback(struct tp_device *dev,
				     struct verbs_rail *rail)
{
	uint32_t me = (uint32_t)(rail - dev->rail);
	struct verbs_connect_msg msg = {
		.qp[0] = {.rail = me, .remote_rail = me}};
	/* created as a receiver's channel, since it only reads */
	struct verbs_channel *loopback =
		verbs_channel_new(dev, dev->config.rank, 0, true, 1);
	dicomm_result_t status;

	if (!loopback)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	snprintf(loopback->remote, sizeof(loopback->remote), "flush");
	status = verbs_channel_open(loopback, &msg);
	if (status == DICOMM_SUCCESS)
		status = verbs_channel_connect(loopback, &msg);
	if (status == DICOMM_SUCCESS)
		rail->loopback = loopback;
	else
		verbs_channel_close(loopback);
	return status;
}

dicomm_result_t verbs_loopback_open(struct tp_device *dev,
				    struct verbs_rail *rail)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	verbs_lock();
	if (!rail->loopback)
		status = open_loopback(dev, rail);
	verbs_unlock();
	return status;
}

void verbs_loopback_failed(struct tp_device *dev, struct verbs_rail *rail)
{
	rail->loopback->why = DICOMM_ERR_SYSTEM;
	atomic_store(&dev->failover, true);
	verbs_poll_all(dev);
}

/* The failed queue pair stays until there is a new one. */
bool verbs_loopback_repair(struct tp_device *dev, struct verbs_rail *rail)
{
	struct verbs_channel *broken = rail->loopback;

	if (!broken || !broken->why || atomic_load(&rail->nic->fatal))
		return false;
	/* Wait until all flushes of the failed queue pair have completed with
	 * an error. Their completions are recognised by its number. */
	if (rail->flushes)
		return true;
	if (open_loopback(dev, rail) != DICOMM_SUCCESS)
		return false;
	verbs_channel_close(broken);
	log_info("verbs %s: the loopback queue pair is connected again",
		 rail->nic->name);
	return false;
}

void verbs_loopback_close(struct verbs_rail *rail)
{
	if (!rail->loopback)
		return;
	verbs_lock();
	verbs_channel_close(rail->loopback);
	rail->loopback = NULL;
	verbs_unlock();
}

int verbs_loopback_flush(const struct verbs_channel *channel, uint32_t slot)
{
	const struct tp_device *dev = channel->dev;
	const struct verbs_read *read = &channel->reads[slot];
	struct verbs_rail *rail = read->by->rail;
	uint32_t key = read->keys.remote[rail - dev->rail];
	struct ibv_sge sge = verbs_rail_scratch(dev, rail);
	struct ibv_send_wr wr = {
		.wr_id = id_of(channel, slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)read->to, .rkey = key}};
	struct ibv_send_wr *bad;
	int error;

	if (rail->loopback->why)
		return ENOTCONN;
	/* Cannot happen: verbs_read() checks for room. */
	if (rail->flushes == rail->loopback->depth)
		return ENOBUFS;
	error = ibv_post_send(rail->loopback->qp[0].ibv, &wr, &bad);
	rail->flushes += !error;
	return error;
}

struct verbs_read *verbs_loopback_read(struct tp_device *dev,
				       const struct ibv_wc *wc,
				       struct verbs_channel **lane_out)
{
	uint32_t id = wc->wr_id >> SLOT_BITS & ((1u << VERBS_CHANNEL_BITS) - 1);
	struct verbs_channel *channel =
		atomic_load_explicit(&dev->in[id], memory_order_acquire);
	struct verbs_read *read;

	if (!channel)
		return NULL;
	read = &channel->reads[wc->wr_id & ((1u << SLOT_BITS) - 1)];
	if (lane_out)
		*lane_out = channel;
	return read->by && read->number == wc->wr_id >> NUMBER_SHIFT ? read
								     : NULL;
}
