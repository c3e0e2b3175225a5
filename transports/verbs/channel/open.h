/* SPDX-License-Identifier: BSD-3-Clause */
/* Creates, connects and closes channels. */
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
/* Create the queue pairs, on the rails that the message names, and write their
 * addresses into the message. */
dicomm_result_t verbs_channel_open(struct verbs_channel *channel,
				   struct verbs_connect_msg *msg);
/* Create the receiver's inbox, and write its address into the message. */
dicomm_result_t verbs_channel_inbox(struct verbs_channel *channel,
				    struct verbs_connect_msg *msg);
/* verbs_channel_set_remote() stores the content of the peer's message.
 * verbs_channel_connect() then connects the queue pairs, unless librdmacm does.
 * If one cannot be connected, the channel uses the others; if none can, this
 * fails. */
dicomm_result_t
verbs_channel_set_remote(struct verbs_channel *channel,
			 const struct verbs_connect_msg *remote);
dicomm_result_t verbs_channel_connect(struct verbs_channel *channel,
				      const struct verbs_connect_msg *remote);
/* Set all queue pairs to the error state. Nothing in flight arrives after
 * that. */
void verbs_channel_stop(struct verbs_channel *channel);
void verbs_channel_close(struct verbs_channel *channel);
/* Give each queue pair a share of the traffic by the rates of its two ports.
 * If all shares are equal, different pairs of ranks begin with different
 * queue pairs. */
void verbs_channel_balance(struct verbs_channel *channel,
			   const struct verbs_connect_msg *remote);

#endif
