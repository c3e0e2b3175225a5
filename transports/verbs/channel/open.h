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
/* Create the queue pairs, on the rails that the message names; their addresses
 * go into the message. */
dicomm_result_t verbs_channel_open(struct verbs_channel *channel,
				   struct verbs_connect_msg *msg);
/* Make the receiver's inbox; its address goes into the message. */
dicomm_result_t verbs_channel_inbox(struct verbs_channel *channel,
				    struct verbs_connect_msg *msg);
/* Take over what the peer's message says. Then connect the queue pairs, unless
 * librdmacm does. If one cannot be connected, the channel goes on with the
 * others; if none can, this fails. */
dicomm_result_t
verbs_channel_set_remote(struct verbs_channel *channel,
			 const struct verbs_connect_msg *remote);
dicomm_result_t verbs_channel_connect(struct verbs_channel *channel,
				      const struct verbs_connect_msg *remote);
/* Set all queue pairs to the error state: nothing in flight arrives any
 * more. */
void verbs_channel_stop(struct verbs_channel *channel);
void verbs_channel_close(struct verbs_channel *channel);
/* Give each queue pair a share of the traffic by the rates of its two ports. If
 * all are alike, each pair of ranks begins with another one. */
void verbs_channel_balance(struct verbs_channel *channel,
			   const struct verbs_connect_msg *remote);

#endif
