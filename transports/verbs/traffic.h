/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes over lanes: messages, and reads. */
#ifndef DICOMM_TRANSPORTS_VERBS_TRAFFIC_H
#define DICOMM_TRANSPORTS_VERBS_TRAFFIC_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/lane.h"
#include "transports/verbs/verbs.h"

/* Nothing may be put there. It stands for a lane that is not yet there, so that
 * who puts looks at the limit alone. */
extern struct verbs_lane verbs_no_lane;

/* At the first lane to send on. */
dicomm_result_t verbs_pool_open(struct tp_device *dev);
void verbs_pool_close(struct tp_device *dev);

static inline void verbs_pool_give(struct verbs_pool *pool, uint32_t buffer)
{
	pool->user[buffer] = NULL;
	pool->spare[pool->nspare++] = (uint16_t)buffer;
}

/* The next `bytes`: which strand? One with room, if there is one. */
struct verbs_strand *verbs_pick(struct verbs_lane *lane, uint64_t bytes);
/* What the identifiers of all its requests share. */
uint64_t verbs_request_of(const struct verbs_lane *lane);
/* In an identifier, from below: bytes; what; the lane; and the request's number
 * among those of its strand, of which the lower bits do that there is room for,
 * since they are more than a queue is long. */
#define VERBS_WHAT_SHIFT 21
#define VERBS_COUNT_SHIFT 53

/* Of the request that has so many before it; what and bytes are for whoever
 * looks at its completion. */
static inline uint64_t verbs_request_id(const struct verbs_lane *lane,
					uint32_t posted, uint32_t what,
					uint64_t bytes)
{
	return (uint64_t)posted << VERBS_COUNT_SHIFT | lane->request |
	       (uint64_t)what << VERBS_WHAT_SHIFT | bytes;
}

/* Every so many requests one is signalled, so that the send queue can be
 * emptied; half of it may wait for that. */
unsigned verbs_signal_now(struct verbs_strand *s, uint32_t n, bool must);
dicomm_result_t verbs_post(struct verbs_strand *s, struct ibv_send_wr *wr,
			   uint32_t n);
/* A request that completes when all before it have, and the other NIC has
 * answered; no data is of any use. */
dicomm_result_t verbs_probe(struct verbs_strand *s);
/* Once more, over any strand; AGAIN: none has room. */
dicomm_result_t verbs_send_again(struct verbs_lane *lane,
				 struct verbs_kept *kept);
dicomm_result_t verbs_read_again(struct verbs_lane *lane,
				 struct verbs_read *read);

/* It is not under way any more. */
static inline void verbs_read_end(struct tp_device *dev,
				  struct verbs_read *read)
{
	read->by = NULL;
	atomic_fetch_sub_explicit(&dev->reads, 1, memory_order_relaxed);
}

/* As in struct transport. */
dicomm_result_t verbs_put(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			  uint32_t signature, enum tp_kind kind,
			  const void *body, uint64_t len);
bool verbs_offer(struct tp_peer *peer, const void *addr, uint64_t len,
		 enum tp_want want, struct tp_ref *ref);
dicomm_result_t verbs_map(struct tp_peer *peer, const struct tp_ref *ref,
			  uint64_t len, const void **ptr);
dicomm_result_t verbs_read(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			   const struct tp_ref *ref, uint64_t offset, void *dst,
			   uint64_t len);
dicomm_result_t verbs_arrived(struct tp_peer *peer, enum tp_class c,
			      uint64_t seq);

#endif
