/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flushes: a NIC reports a read as complete when its bytes are on their way to
 * the memory of a device, and the report may be there first. A read of that
 * memory overtakes no write to it: so the NIC reads back a byte, by a queue
 * pair that is connected to itself, and only then has the data arrived.
 */
#include "transports/verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/log.h"

static uint64_t id_of(const struct verbs_lane *lane, uint32_t slot)
{
	return (uint64_t)lane->id << 8 | slot;
}

/* With the lock. */
static dicomm_result_t open_mirror(struct tp_device *dev)
{
	struct verbs_card card = {.magic = 0};
	struct verbs_lane *mirror = calloc(1, sizeof(*mirror));
	dicomm_result_t status;

	if (!mirror)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	mirror->dev = dev;
	mirror->rank = dev->config.rank;
	/* It only ever reads. */
	mirror->in = true;
	snprintf(mirror->remote, sizeof(mirror->remote), "flush");
	status = verbs_lane_open(mirror, &card);
	if (status == DICOMM_SUCCESS)
		status = verbs_lane_connect(mirror, &card);
	if (status == DICOMM_SUCCESS)
		dev->mirror = mirror;
	else
		verbs_lane_close(mirror);
	return status;
}

dicomm_result_t verbs_mirror_open(struct tp_device *dev)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	verbs_lock();
	if (!dev->mirror)
		status = open_mirror(dev);
	verbs_unlock();
	return status;
}

void verbs_mirror_close(struct tp_device *dev)
{
	if (!dev->mirror)
		return;
	verbs_lock();
	verbs_lane_close(dev->mirror);
	dev->mirror = NULL;
	verbs_unlock();
}

bool verbs_mirror_reserve(struct tp_device *dev)
{
	if (dev->flushes == dev->mirror->depth)
		return false;
	dev->flushes++;
	return true;
}

dicomm_result_t verbs_mirror_flush(struct tp_device *dev,
				   const struct verbs_lane *lane, uint32_t slot)
{
	const struct verbs_read *read = &lane->reads[slot];
	/* What is read is of no use; it goes behind the credits. */
	struct ibv_sge sge = {.addr = (uintptr_t)&dev->words[dev->lanes],
			      .length = 1,
			      .lkey = dev->words_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id_of(lane, slot),
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr = read->flush_addr,
					     .rkey = read->flush_key}};
	struct ibv_send_wr *bad;
	int error = ibv_post_send(dev->mirror->qp, &wr, &bad);

	if (!error)
		return DICOMM_SUCCESS;
	errno = error;
	return FAIL(DICOMM_ERR_SYSTEM, "verbs %s: post a flush: %m",
		    dev->nic->name);
}

struct verbs_lane *verbs_mirror_lane(struct tp_device *dev,
				     const struct ibv_wc *wc, uint32_t *slot)
{
	uint64_t id = wc->wr_id >> 8;

	*slot = wc->wr_id & 0xff;
	return atomic_load_explicit(&dev->in[id], memory_order_acquire);
}
