/* SPDX-License-Identifier: BSD-3-Clause */
/* Credits: what a receiver is done with. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_CREDITS_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_CREDITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/channel/channel.h"

struct tp_device;
struct tp_peer;

/* Could the sender wait for credits, and nobody tell it of them? */
static inline bool verbs_credits_needed(const struct verbs_channel *channel)
{
	return channel->urgent || channel->last_read > channel->granted;
}

/* To be told when there is time. */
void verbs_credits_defer(struct verbs_channel *channel);
void verbs_credits_cancel(struct verbs_channel *channel);
void verbs_credits_send_all(struct tp_device *dev);
/* A poll has found nothing: there is time. */
void verbs_credits_idle(struct tp_device *dev);

/* Credits of a channel to send on are looked for, from its making to its end.
 */
void verbs_credits_track(struct verbs_channel *channel);
void verbs_credits_untrack(struct verbs_channel *channel);
/* What has been written into the sender's memory: of one channel; of all. True:
 * there was something new. */
bool verbs_credits_scan(struct verbs_channel *channel);
/* Of one, as far as it has come in the order in which it was told. */
void verbs_credits_follow(struct verbs_channel *channel);
bool verbs_credits_scan_all(struct tp_device *dev);

/* Later ones may have overtaken those that are expected, or come by another
 * queue pair: after so many looks in vain, all words are looked at. */
#define VERBS_CREDIT_CHECKS 16

/* Is there something to take, or might there be? */
static inline bool verbs_credits_check(struct verbs_channel *channel)
{
	return atomic_load_explicit(channel->next_word, memory_order_relaxed) >
		       channel->known ||
	       !--channel->credit_checks;
}

/* As in struct transport. */
dicomm_result_t verbs_release(struct tp_peer *peer, enum tp_class c,
			      uint64_t seq);

#endif
