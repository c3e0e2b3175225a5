/* SPDX-License-Identifier: BSD-3-Clause */
/* Small queries of a channel. */
#include "transports/verbs/channel/channel.h"

#include <stdio.h>

#include "src/base/log.h"

struct verbs_qp *verbs_good_qp(struct verbs_channel *channel)
{
	for (uint32_t i = 0; i < channel->qps; i++)
		if (channel->qp[i].state == QP_GOOD)
			return &channel->qp[i];
	return NULL;
}

bool verbs_has_arrived(const struct verbs_channel *channel, uint64_t seq)
{
	uint64_t slot = seq & (channel->dev->config.slots - 1);
	const struct tp_line *line =
		(const struct tp_line *)(channel->slots +
					 slot * channel->stride);

	return atomic_load_explicit(&line->seq, memory_order_acquire) >= seq;
}

uint32_t verbs_channel_completions(const struct verbs_channel *channel)
{
	return channel->depth + (channel->in ? channel->dev->config.slots : 0);
}

uint64_t verbs_channel_memory(const struct verbs_channel *channel)
{
	/* Drivers do not tell how much they keep for a request; 64 bytes
	 * is usual. */
	return sizeof(*channel) + channel->slots_bytes +
	       (channel->replay
			? channel->dev->config.slots * sizeof(*channel->replay)
			: 0) +
	       channel->qps *
		       (sizeof(*channel->qp) + channel->depth * UINT64_C(64));
}

dicomm_result_t verbs_channel_status(struct verbs_channel *channel)
{
	if (channel->why) {
		log_set_last_error(channel->text);
		return channel->why;
	}
	if (!atomic_load_explicit(&channel->peer_closed, memory_order_acquire))
		return DICOMM_SUCCESS;
	verbs_channel_fail(channel, DICOMM_ERR_REMOTE);
	snprintf(channel->text, sizeof(channel->text),
		 "verbs: rank %d (%s) has closed its side", channel->rank,
		 channel->remote);
	return FAIL(channel->why, "%s", channel->text);
}
