/* SPDX-License-Identifier: BSD-3-Clause */
/* Posts requests: the rare cases. */
#include "transports/verbs/message/post.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/failure.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"

/* Bytes that a message costs besides its data. */
#define PACKET_BYTES 64

struct verbs_qp *verbs_pick_of_many(struct verbs_channel *channel,
				    uint64_t bytes)
{
	struct verbs_qp *best = NULL;

	for (uint32_t i = 0; i < channel->qps; i++) {
		struct verbs_qp *qp = &channel->qp[i];

		if (qp->state == QP_GOOD && verbs_has_room(qp, 2) &&
		    (!best || qp->load_ps < best->load_ps))
			best = qp;
	}
	if (!best)
		return NULL;
	best->load_ps += ((bytes + PACKET_BYTES) * best->ps_per_kib) >> 10;
	return best;
}

dicomm_result_t verbs_post_refused(const struct verbs_qp *qp, int error)
{
	const struct verbs_channel *channel = qp->channel;
	const struct verbs_nic *nic = qp->rail->nic;

	if (atomic_load(&channel->dev->aborted))
		return DICOMM_ERR_ABORTED;
	errno = error;
	return FAIL(DICOMM_ERR_SYSTEM,
		    "verbs %s port %u: rank %d (%s): post a request: %m",
		    nic->name, nic->port, channel->rank, channel->remote);
}

/* If the channel has other queue pairs, this one fails, and the request counts
 * as posted and lost. It is in the replay buffer, or it is a credit that is
 * sent again. */
static __attribute__((noinline)) dicomm_result_t
post_failed(struct verbs_qp *qp, uint32_t n, int error)
{
	struct verbs_channel *channel = qp->channel;
	char what[80];

	if (channel->qps == 1 || atomic_load(&channel->dev->aborted))
		return verbs_post_refused(qp, error);
	snprintf(what, sizeof(what), "post a request: %s", strerror(error));
	verbs_qp_fail(qp, DICOMM_ERR_SYSTEM, what, "the NIC failed");
	qp->posted += n;
	return channel->why;
}

dicomm_result_t verbs_post(struct verbs_qp *qp, struct ibv_send_wr *wr,
			   uint32_t n)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(qp->ibv, wr, &bad);

	if (__builtin_expect(error, 0))
		return post_failed(qp, n, error);
	qp->posted += n;
	verbs_look_ahead(qp);
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_probe(struct verbs_qp *qp)
{
	struct ibv_sge scratch;
	struct ibv_send_wr wr = {
		.wr_id = verbs_request_id(qp->channel, qp->posted, 0, 0),
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = qp->channel->remote_addr,
			    .rkey = qp->remote_key}};

	if (!verbs_has_room(qp, 1))
		return DICOMM_AGAIN;
	/* Over iWARP a write may complete when it is only in a buffer of this
	 * side. So read from the peer. */
	if (qp->rail->nic->fabric == VERBS_IWARP) {
		scratch = verbs_rail_scratch(qp->channel->dev, qp->rail);
		wr.opcode = IBV_WR_RDMA_READ;
		wr.sg_list = &scratch;
		wr.num_sge = 1;
	}
	qp->signaled = qp->posted + 1;
	return verbs_post(qp, &wr, 1);
}
