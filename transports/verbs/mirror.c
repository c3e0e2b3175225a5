/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flushes: a NIC reports a read as complete when its bytes are on their way to
 * the memory of a device, and the report may be there first. A read of that
 * memory overtakes no write to it: so the NIC reads back a byte, by a queue
 * pair that is connected to itself, and only then has the data arrived.
 */
#include "transports/verbs/mirror.h"

#include <errno.h>
#include <stdio.h>

#include "src/base/log.h"
#include "transports/verbs/address.h"
#include "transports/verbs/connect.h"
#include "transports/verbs/nic.h"
#include "transports/verbs/verbs.h"

#define SLOT_BITS 8
#define NUMBER_SHIFT (SLOT_BITS + VERBS_LANE_BITS)

static uint64_t id_of(const struct verbs_lane *lane, uint32_t slot)
{
	return (uint64_t)lane->reads[slot].number << NUMBER_SHIFT |
	       (uint64_t)lane->id << SLOT_BITS | slot;
}

/* With the lock. */
static dicomm_result_t open_mirror(struct tp_device *dev,
				   struct verbs_rail *rail)
{
	uint32_t me = (uint32_t)(rail - dev->rail);
	struct verbs_card card = {.end[0] = {.rail = me, .to_rail = me}};
	/* It only ever reads. */
	struct verbs_lane *mirror =
		verbs_lane_new(dev, dev->config.rank, 0, true, 1);
	dicomm_result_t status;

	if (!mirror)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	snprintf(mirror->remote, sizeof(mirror->remote), "flush");
	status = verbs_lane_open(mirror, &card);
	if (status == DICOMM_SUCCESS)
		status = verbs_lane_connect(mirror, &card);
	if (status == DICOMM_SUCCESS)
		rail->mirror = mirror;
	else
		verbs_lane_close(mirror);
	return status;
}

dicomm_result_t verbs_mirror_open(struct tp_device *dev,
				  struct verbs_rail *rail)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	verbs_lock();
	if (!rail->mirror)
		status = open_mirror(dev, rail);
	verbs_unlock();
	return status;
}

void verbs_mirror_failed(struct tp_device *dev, struct verbs_rail *rail)
{
	rail->mirror->why = DICOMM_ERR_SYSTEM;
	atomic_store(&dev->repair, true);
	verbs_poll_all(dev);
}

/* The old one stays in its place until there is a new one. */
bool verbs_mirror_repair(struct tp_device *dev, struct verbs_rail *rail)
{
	struct verbs_lane *broken = rail->mirror;

	if (!broken || !broken->why || atomic_load(&rail->nic->fatal))
		return false;
	/* All of them come out of the NIC with an error, by its number. */
	if (rail->flushes)
		return true;
	if (open_mirror(dev, rail) != DICOMM_SUCCESS)
		return false;
	verbs_lane_close(broken);
	log_info("verbs %s: connected to itself again", rail->nic->name);
	return false;
}

void verbs_mirror_close(struct verbs_rail *rail)
{
	if (!rail->mirror)
		return;
	verbs_lock();
	verbs_lane_close(rail->mirror);
	rail->mirror = NULL;
	verbs_unlock();
}

int verbs_mirror_flush(const struct verbs_lane *lane, uint32_t slot)
{
	const struct tp_device *dev = lane->dev;
	const struct verbs_read *read = &lane->reads[slot];
	struct verbs_rail *rail = read->by->rail;
	uint32_t key = read->keys.remote[rail - dev->rail];
	struct ibv_sge sge = verbs_rail_nowhere(dev, rail);
	struct ibv_send_wr wr = {
		.wr_id = id_of(lane, slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)read->to, .rkey = key}};
	struct ibv_send_wr *bad;
	int error;

	if (rail->mirror->why)
		return ENOTCONN;
	/* read() sees to it that there is room. */
	if (rail->flushes == rail->mirror->depth)
		return ENOBUFS;
	error = ibv_post_send(rail->mirror->strand[0].qp, &wr, &bad);
	rail->flushes += !error;
	return error;
}

struct verbs_read *verbs_mirror_read(struct tp_device *dev,
				     const struct ibv_wc *wc,
				     struct verbs_lane **lane_out)
{
	uint32_t id = wc->wr_id >> SLOT_BITS & ((1u << VERBS_LANE_BITS) - 1);
	struct verbs_lane *lane =
		atomic_load_explicit(&dev->in[id], memory_order_acquire);
	struct verbs_read *read;

	if (!lane)
		return NULL;
	read = &lane->reads[wc->wr_id & ((1u << SLOT_BITS) - 1)];
	if (lane_out)
		*lane_out = lane;
	return read->by && read->number == wc->wr_id >> NUMBER_SHIFT ? read
								     : NULL;
}
