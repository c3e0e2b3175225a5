/* SPDX-License-Identifier: BSD-3-Clause */
/* How channels are made, and go. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_OPEN_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_OPEN_H

#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

struct tp_device;
struct verbs_channel;
struct verbs_connect_msg;

struct verbs_channel *verbs_channel_new(struct tp_device *dev, int rank,
					uint32_t c, bool in, uint32_t qps);
/* Queue pairs in INIT, over the rails that the message names; their addresses
 * in the message. */
dicomm_result_t verbs_channel_open(struct verbs_channel *channel,
				   struct verbs_connect_msg *msg);
/* Inbox, for a receiver. */
dicomm_result_t verbs_channel_inbox(struct verbs_channel *channel,
				    struct verbs_connect_msg *msg);
/* What the other side has said of its own; then connect the queue pairs, unless
 * librdmacm does. One that cannot be has failed, unless it is the last. */
dicomm_result_t
verbs_channel_set_remote(struct verbs_channel *channel,
			 const struct verbs_connect_msg *remote);
dicomm_result_t verbs_channel_connect(struct verbs_channel *channel,
				      const struct verbs_connect_msg *remote);
/* Nothing in flight lands any more. */
void verbs_channel_stop(struct verbs_channel *channel);
void verbs_channel_close(struct verbs_channel *channel);
/* Each queue pair carries as much as both its ports can. Where all are alike,
 * each pair of ranks begins with another. */
void verbs_channel_balance(struct verbs_channel *channel,
			   const struct verbs_connect_msg *remote);

#endif
