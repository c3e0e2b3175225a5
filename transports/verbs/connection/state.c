/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of making a channel: it becomes ready, or fails. */
#include "transports/verbs/connection/state.h"

#include <stdio.h>

#include "transports/verbs/channel/channel.h"
#include "transports/verbs/connection/conn.h"

/* Only the first cause is stored: another thread may already be reading it. */
void verbs_channel_failed(struct verbs_channel *channel, dicomm_result_t why,
			  const char *text)
{
	if (atomic_load(&channel->state) == CHANNEL_FAILED)
		return;
	verbs_channel_fail(channel, why);
	snprintf(channel->text, sizeof(channel->text), "%s", text);
	atomic_store_explicit(&channel->state, CHANNEL_FAILED,
			      memory_order_release);
}

void verbs_qp_connected(struct verbs_qp *qp)
{
	struct verbs_channel *channel = qp->channel;

	if (!channel->conn || channel->conn->stage != CONN_AWAITING_RDMA_CM)
		return;
	qp->rdma_cm_done = true;
	for (uint32_t i = 0; i < channel->qps; i++)
		if (!channel->qp[i].rdma_cm_done)
			return;
	channel->conn->stage = CONN_OPEN;
	channel->conn->deadline_ms = 0;
	atomic_store_explicit(&channel->state, CHANNEL_READY,
			      memory_order_release);
}

void verbs_qp_connect_failed(struct verbs_qp *qp, const char *what,
			     const char *why)
{
	struct verbs_channel *channel = qp->channel;
	char text[256];

	if (atomic_load(&channel->state) != CHANNEL_CONNECTING)
		return;
	if (channel->conn)
		channel->conn->deadline_ms = 0;
	snprintf(text, sizeof(text), "verbs %.40s: rank %d (%s): %.40s: %.60s",
		 qp->rail->nic->name, channel->rank, channel->remote, what,
		 why);
	verbs_channel_failed(channel, DICOMM_ERR_REMOTE, text);
}
