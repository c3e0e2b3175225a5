/* SPDX-License-Identifier: BSD-3-Clause */
/* Credits: the receiver tells the sender which messages it has released. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_CREDITS_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_CREDITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/channel/channel.h"

struct tp_device;
struct tp_peer;

/* May the sender wait for a credit that has not been sent? */
static inline bool verbs_credits_needed(const struct verbs_channel *channel)
{
	return channel->urgent || channel->last_read > channel->granted;
}

/* Send the credits of a channel later: a list of the device. */
void verbs_credits_defer(struct verbs_channel *channel);
void verbs_credits_cancel(struct verbs_channel *channel);
void verbs_credits_send_all(struct tp_device *dev);
/* A poll has found nothing: send what is due. */
void verbs_credits_idle(struct tp_device *dev);

/* Look for credits of a channel out, from its making to its end. */
void verbs_credits_track(struct verbs_channel *channel);
void verbs_credits_untrack(struct verbs_channel *channel);
/* Look at all credit words of a channel, or of all channels. True: there was a
 * new credit. */
bool verbs_credits_scan(struct verbs_channel *channel);
/* Look at the words in the order in which the receiver writes them. */
void verbs_credits_follow(struct verbs_channel *channel);
bool verbs_credits_scan_all(struct tp_device *dev);

/* A later credit may overtake the next one, or come by another queue pair. So
 * after so many looks at the next word, look at all words. */
#define VERBS_CREDIT_CHECKS 16

/* Is there a new credit, or is it time to look at all words? */
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
