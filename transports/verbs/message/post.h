/* SPDX-License-Identifier: BSD-3-Clause */
/* Posts requests: chooses a queue pair, and whether the request needs
 * a completion. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_POST_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_POST_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/verbs/channel/channel.h"

/* The identifier of a request, from bit 0 on: bytes; what; channel; the lower
 * bits of the request's number on its queue pair. These bits are enough, since
 * they count further than a queue is long. */
#define VERBS_WHAT_SHIFT 21
#define VERBS_COUNT_SHIFT 53

/* Returns the identifier of the next request of a queue pair. `what` and
 * `bytes` are for its completion. */
static inline uint64_t verbs_request_id(const struct verbs_channel *channel,
					uint32_t posted, uint32_t what,
					uint64_t bytes)
{
	return (uint64_t)posted << VERBS_COUNT_SHIFT | channel->request |
	       (uint64_t)what << VERBS_WHAT_SHIFT | bytes;
}

/* Returns the queue pair that has carried the least so far, counted in time,
 * among those with room for two requests. NULL if none has room. */
struct verbs_qp *verbs_pick_of_many(struct verbs_channel *channel,
				    uint64_t bytes);
/* The NIC's driver has refused a request with that error number. Logs it and
 * returns the error. */
dicomm_result_t verbs_post_refused(const struct verbs_qp *qp, int error);
/* Post a request that completes when all earlier requests are complete and the
 * peer's NIC has answered. */
dicomm_result_t verbs_probe(struct verbs_qp *qp);

/* Returns the queue pair for the next message or read, or NULL if none
 * has room. */
static inline struct verbs_qp *verbs_pick_qp(struct verbs_channel *channel,
					     uint64_t bytes)
{
	struct verbs_qp *only = &channel->qp[0];

	if (__builtin_expect(channel->qps != 1, 0))
		return verbs_pick_of_many(channel, bytes);
	return __builtin_expect(verbs_has_room(only, 2), 1) ? only : NULL;
}

/* Set qp->unchecked_to: how far requests may follow without a check for room
 * and without a completion. */
static inline void verbs_look_ahead(struct verbs_qp *qp)
{
	uint32_t depth = qp->channel->depth;
	int32_t room = (int32_t)(qp->done + depth - 1 - qp->posted);
	int32_t silent = (int32_t)(qp->signaled + depth / 4 - 1 - qp->posted);
	int32_t least = room < silent ? room : silent;

	qp->unchecked_to = qp->posted + (least > 0 ? (uint32_t)least : 0);
}

/* Returns the flag for a completion if `must`, or if a quarter of the queue
 * was posted without one. The completion also shows that earlier requests
 * are complete. */
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
