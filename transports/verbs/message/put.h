/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: sent now, or again after a queue pair has failed. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_PUT_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_PUT_H

#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/channel/channel.h"

/* Nothing may be put there. It stands for a channel that is not yet there, so
 * that a put looks at the limit alone. */
extern struct verbs_channel verbs_no_channel;

/* Once more, over any queue pair; AGAIN: none has room. */
dicomm_result_t verbs_resend(struct verbs_channel *channel,
			     struct verbs_replay_entry *replay);
/* As in struct transport. */
dicomm_result_t verbs_put(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			  uint32_t signature, enum tp_kind kind,
			  const void *body, uint64_t len);

#endif
