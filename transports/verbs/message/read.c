/* SPDX-License-Identifier: BSD-3-Clause */
/* Large messages: the receiver reads them from the sender's memory. */
#include "transports/verbs/message/read.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/message/memory.h"
#include "transports/verbs/message/post.h"

bool verbs_offer(struct tp_peer *peer, const void *addr, uint64_t len,
		 enum tp_want want, struct tp_ref *ref)
{
	struct tp_device *dev = peer->dev;
	struct verbs_reference r = {.addr = (uintptr_t)addr};
	struct verbs_keys keys;

	_Static_assert(sizeof(r) <= sizeof(*ref), "must fit");
	(void)want;
	if (!verbs_mem_keys(dev, addr, len, false, &keys))
		return false;
	memcpy(r.key, keys.remote, sizeof(*r.key) * dev->rails);
	memcpy(ref, &r, sizeof(r));
	return true;
}

/* Only a rank's own memory is mapped; it needs no NIC. */
dicomm_result_t verbs_map(struct tp_peer *peer, const struct tp_ref *ref,
			  uint64_t len, const void **ptr)
{
	struct verbs_reference r;

	(void)len;
	if (peer->rank != peer->dev->config.rank)
		return DICOMM_ERR_UNSUPPORTED;
	memcpy(&r, ref, sizeof(r));
	*ptr = (const void *)(uintptr_t)r.addr;
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_post_read(struct verbs_channel *channel,
				struct verbs_read *read)
{
	struct tp_device *dev = channel->dev;
	struct verbs_qp *qp = verbs_pick_qp(channel, read->pending);
	struct ibv_sge sge = {.addr = (uintptr_t)read->to,
			      .length = read->pending};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
	dicomm_result_t status;

	if (!qp)
		return DICOMM_AGAIN;
	sge.lkey = read->keys.local[qp->rail - dev->rail];
	wr.wr_id = verbs_request_id(channel, qp->posted,
				    (uint32_t)(read - channel->reads) + 1, 0);
	wr.send_flags = verbs_signal_now(qp, 1, true);
	wr.wr.rdma.remote_addr = read->from.addr;
	wr.wr.rdma.rkey = read->from.key[qp->remote_rail];
	/* Set this first: the read may complete at once. */
	read->by = qp;
	read->number++;
	atomic_fetch_add_explicit(&dev->reads, 1, memory_order_relaxed);
	status = verbs_post(qp, &wr, 1);
	/* If the queue pair failed but the channel goes on, the read is posted
	 * again when that queue pair has stopped. */
	if (status != DICOMM_SUCCESS || qp->state != QP_GOOD)
		verbs_read_end(dev, read);
	return status;
}

/* Returns true if there is room for one more flush on each NIC. Each read into
 * such memory needs one, and all reads may complete before anybody polls. */
static bool may_flush(const struct tp_device *dev)
{
	unsigned reads =
		atomic_load_explicit(&dev->reads, memory_order_relaxed);

	for (uint32_t i = 0; i < dev->rails; i++)
		if (dev->rail[i].loopback &&
		    reads >= dev->rail[i].loopback->depth)
			return false;
	return true;
}

dicomm_result_t verbs_read(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			   const struct tp_ref *ref, uint64_t offset, void *dst,
			   uint64_t len)
{
	struct tp_device *dev = peer->dev;
	struct verbs_channel *channel = peer->in[c];
	struct verbs_read *read;
	dicomm_result_t status;

	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (!channel)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: read from rank %d before connect_in",
			    peer->rank);
	TRY(verbs_channel_status(channel));
	read = &channel->reads[seq % VERBS_READS];
	if (read->pending)
		return DICOMM_AGAIN;
	if (len > dev->max_read ||
	    !verbs_mem_keys(dev, dst, len, true, &read->keys))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "verbs: read of %" PRIu64 " bytes to %p, which is "
			    "not registered",
			    len, dst);
	if (read->keys.flushed && !may_flush(dev))
		return DICOMM_AGAIN;
	memcpy(&read->from, ref, sizeof(read->from));
	read->from.addr += offset;
	read->to = dst;
	read->pending = (uint32_t)len;
	status = verbs_post_read(channel, read);
	if (status != DICOMM_SUCCESS) {
		read->pending = 0;
		return status;
	}
	read->status = DICOMM_IN_PROGRESS;
	channel->reads_active++;
	if (seq > channel->last_read)
		channel->last_read = seq;
	return DICOMM_IN_PROGRESS;
}

dicomm_result_t verbs_read_status(struct tp_peer *peer, enum tp_class c,
				  uint64_t seq)
{
	struct verbs_channel *channel = peer->in[c];
	const struct verbs_read *read = &channel->reads[seq % VERBS_READS];

	if (atomic_load_explicit(&peer->dev->aborted, memory_order_relaxed))
		return DICOMM_ERR_ABORTED;
	if (read->status != DICOMM_SUCCESS && channel->why)
		return verbs_channel_status(channel);
	return read->status;
}
