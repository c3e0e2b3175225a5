/* SPDX-License-Identifier: BSD-3-Clause */
/* Credits: the receiver sends the number of the last message that it has
 * released. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_CREDITS_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_CREDITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/channel/channel.h"

struct tp_device;
struct tp_peer;

/* Returns true if the sender may be waiting for a credit that was not sent
 * yet. */
static inline bool verbs_credits_needed(const struct verbs_channel *channel)
{
	return channel->urgent || channel->last_read > channel->granted;
}

/* Add a channel to the device's list of those whose credits are sent later, or
 * remove it. */
void verbs_credits_defer(struct verbs_channel *channel);
void verbs_credits_cancel(struct verbs_channel *channel);
void verbs_credits_send_all(struct tp_device *dev);
/* A poll has found nothing: send the credits that are due. */
void verbs_credits_idle(struct tp_device *dev);

/* Look for credits of a sending channel, from its creation to its close. */
void verbs_credits_track(struct verbs_channel *channel);
void verbs_credits_untrack(struct verbs_channel *channel);
/* Look at all credit words of a channel (verbs_credits_scan_all(): of all
 * channels). Returns true if there was a new credit. */
bool verbs_credits_scan(struct verbs_channel *channel);
/* Look at the words in the order in which the receiver writes them. */
void verbs_credits_follow(struct verbs_channel *channel);
bool verbs_credits_scan_all(struct tp_device *dev);

/* A later credit may overtake the next one, or arrive by another queue pair. So
 * after this many looks at the next word, the sender looks at all words. */
#define VERBS_CREDIT_CHECKS 16

/* Returns true if there is a new credit, or if it is time to look at all
 * words. */
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
