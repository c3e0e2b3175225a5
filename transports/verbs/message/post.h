/* SPDX-License-Identifier: BSD-3-Clause */
/* Post requests: on which queue pair, with or without a completion. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_POST_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_POST_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/verbs/channel/channel.h"

/* In an identifier, from below: bytes; what; the channel; and the request's
 * number among those of its queue pair, of which the lower bits do that there
 * is room for, since they are more than a queue is long. */
#define VERBS_WHAT_SHIFT 21
#define VERBS_COUNT_SHIFT 53

/* Of the request that has so many before it; what and bytes are for whoever
 * looks at its completion. */
static inline uint64_t verbs_request_id(const struct verbs_channel *channel,
					uint32_t posted, uint32_t what,
					uint64_t bytes)
{
	return (uint64_t)posted << VERBS_COUNT_SHIFT | channel->request |
	       (uint64_t)what << VERBS_WHAT_SHIFT | bytes;
}

/* Of several queue pairs with room for two requests, the one that has carried
 * the least, in time; NULL: none has room. */
struct verbs_qp *verbs_pick_of_many(struct verbs_channel *channel,
				    uint64_t bytes);
/* What a refused request means; an error number. */
dicomm_result_t verbs_post_refused(const struct verbs_qp *qp, int error);
dicomm_result_t verbs_post_failed(struct verbs_qp *qp, uint32_t n, int error);
/* A request that completes when all before it have, and the other NIC has
 * answered; no data is of any use. */
dicomm_result_t verbs_probe(struct verbs_qp *qp);

/* The queue pair for the next `bytes`; NULL: none has room. */
static inline struct verbs_qp *verbs_pick_qp(struct verbs_channel *channel,
					     uint64_t bytes)
{
	struct verbs_qp *only = &channel->qp[0];

	if (__builtin_expect(channel->qps != 1, 0))
		return verbs_pick_of_many(channel, bytes);
	return __builtin_expect(verbs_has_room(only, 2), 1) ? only : NULL;
}

/* How many requests may follow without a look at the room (there is to be some
 * for two), and without a signal? */
static inline void verbs_look_ahead(struct verbs_qp *qp)
{
	uint32_t depth = qp->channel->depth;
	int32_t room = (int32_t)(qp->done + depth - 1 - qp->posted);
	int32_t silent = (int32_t)(qp->signaled + depth / 4 - 1 - qp->posted);
	int32_t least = room < silent ? room : silent;

	qp->unchecked_to = qp->posted + (least > 0 ? (uint32_t)least : 0);
}

/* Every so many requests one is signalled, so that the send queue can be
 * emptied; half of it may wait for that. */
static inline unsigned verbs_signal_now(struct verbs_qp *qp, uint32_t n,
					bool must)
{
	if (!must && qp->posted + n - qp->signaled < qp->channel->depth / 4)
		return 0;
	qp->signaled = qp->posted + n;
	return IBV_SEND_SIGNALED;
}

dicomm_result_t verbs_post(struct verbs_qp *qp, struct ibv_send_wr *wr,
			   uint32_t n);

#endif
