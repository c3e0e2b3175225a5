/* SPDX-License-Identifier: BSD-3-Clause */
/* Large messages: the receiver reads them from the sender's memory. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_READ_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_READ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/channel/channel.h"

/* Post a read, over any queue pair. Returns AGAIN if none has room. */
dicomm_result_t verbs_post_read(struct verbs_channel *channel,
				struct verbs_read *read);

/* Count a read whose request has ended. */
static inline void verbs_read_end(struct tp_device *dev,
				  struct verbs_read *read)
{
	read->by = NULL;
	atomic_fetch_sub_explicit(&dev->reads, 1, memory_order_relaxed);
}

/* As in struct transport. */
bool verbs_offer(struct tp_peer *peer, const void *addr, uint64_t len,
		 enum tp_want want, struct tp_ref *ref);
dicomm_result_t verbs_map(struct tp_peer *peer, const struct tp_ref *ref,
			  uint64_t len, const void **ptr);
dicomm_result_t verbs_read(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			   const struct tp_ref *ref, uint64_t offset, void *dst,
			   uint64_t len);
dicomm_result_t verbs_read_status(struct tp_peer *peer, enum tp_class c,
				  uint64_t seq);

#endif
