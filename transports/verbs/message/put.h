/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends messages, and sends them again after a queue pair has failed. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_PUT_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_PUT_H

#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/channel/channel.h"

/* Stands for a channel that is not connected. Its limit is 0, so a put needs no
 * further check. */
extern struct verbs_channel verbs_no_channel;

/* Send a message of the replay buffer again, over any queue pair. Returns AGAIN
 * if none has room. */
dicomm_result_t verbs_resend(struct verbs_channel *channel,
			     struct verbs_replay_entry *replay);
/* As in struct transport. */
dicomm_result_t verbs_put(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			  uint32_t signature, enum tp_kind kind,
			  const void *body, uint64_t len);

#endif
