/* SPDX-License-Identifier: BSD-3-Clause */
/* Credits: what a receiver is done with. */
#ifndef DICOMM_TRANSPORTS_VERBS_CREDITS_H
#define DICOMM_TRANSPORTS_VERBS_CREDITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/lane.h"

struct tp_device;
struct tp_peer;

/* Could the sender wait for credits, and nobody tell it of them? */
static inline bool verbs_must_tell(const struct verbs_lane *lane)
{
	return lane->urgent || lane->referred > lane->told;
}

/* To be told when there is time. */
void verbs_untold_add(struct verbs_lane *lane);
void verbs_untold_remove(struct verbs_lane *lane);
void verbs_untold_tell(struct tp_device *dev);
/* A poll has found nothing: there is time. */
void verbs_untold_idle(struct tp_device *dev);

/* Credits of a lane to send on are looked for, from its making to its end. */
void verbs_credits_begin(struct verbs_lane *lane);
void verbs_credits_end(struct verbs_lane *lane);
/* What has been written into the sender's memory: of one lane; of all. True:
 * there was something new. */
bool verbs_credits_take(struct verbs_lane *lane);
/* Of one, as far as it has come in the order in which it was told. */
void verbs_credits_follow(struct verbs_lane *lane);
bool verbs_credits_take_all(struct tp_device *dev);

/* Later ones may have overtaken those that are expected, or come by another
 * strand: after so many looks in vain, all words are looked at. */
#define VERBS_LOOKS 16

/* Is there something to take, or might there be? */
static inline bool verbs_credits_look(struct verbs_lane *lane)
{
	return atomic_load_explicit(lane->expected, memory_order_relaxed) >
		       lane->known ||
	       !--lane->looks;
}

/* As in struct transport. */
dicomm_result_t verbs_release(struct tp_peer *peer, enum tp_class c,
			      uint64_t seq);
bool verbs_flush(struct tp_device *dev);

#endif
