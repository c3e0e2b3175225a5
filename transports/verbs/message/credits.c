/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Credits: the receiver tells the sender which messages it has released.
 *
 * It writes the message number into memory of the sender, by an RDMA WRITE. If
 * a network sends packets by several paths, an older write may arrive after a
 * newer one. So the receiver writes into the next of a few words, as in a ring,
 * and the greatest word counts. It writes a word again only when a completion
 * has shown that the last write into it has arrived. Over iWARP a completion
 * shows less, but there TCP keeps the order.
 *
 * This costs one request for each credit, and a completion for half of the
 * ring. Credits as messages would need receives at the sender, and there would
 * never be enough: messages without bytes are not sent at all, so a receiver
 * may be any number of credits ahead of a sender that is busy elsewhere.
 */
#include "transports/verbs/message/credits.h"

#include <string.h>

#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/message/post.h"

/* After this many consecutive polls that found nothing, send also credits that
 * no sender is known to wait for. */
#define IDLE_POLLS 1024

/* ---- the receiver: grants credits ---- */

void verbs_credits_defer(struct verbs_channel *channel)
{
	struct verbs_channel **head = &channel->dev->credits_due;

	if (channel->credits_due_link)
		return;
	channel->credits_due = *head;
	if (*head)
		(*head)->credits_due_link = &channel->credits_due;
	channel->credits_due_link = head;
	*head = channel;
	verbs_poll_all(channel->dev);
}

void verbs_credits_cancel(struct verbs_channel *channel)
{
	if (!channel->credits_due_link)
		return;
	*channel->credits_due_link = channel->credits_due;
	if (channel->credits_due)
		channel->credits_due->credits_due_link =
			channel->credits_due_link;
	channel->credits_due_link = NULL;
}

/* Returns true if the last write into the next word has arrived. */
static bool is_free(const struct verbs_channel *channel,
		    const struct verbs_qp *qp)
{
	uint32_t count =
		channel->granted_at[channel->grants % VERBS_CREDIT_WORDS];

	return channel->granted_by != qp ||
	       channel->grants < VERBS_CREDIT_WORDS ||
	       (int32_t)(qp->done - count) > 0;
}

/* Returns the queue pair for credits: always the same one, unless it fails.
 * Returns NULL if none can be sent now. While a failed queue pair is not
 * fenced, credits on it may still arrive, so no others are sent. */
static struct verbs_qp *qp_for_credits(struct verbs_channel *channel)
{
	struct verbs_qp *qp =
		channel->qps == 1 ? &channel->qp[0] : verbs_good_qp(channel);

	if (!qp || channel->unfenced || !verbs_has_room(qp, 1) ||
	    !is_free(channel, qp))
		return NULL;
	return qp;
}

/* Count this credit among those of the queue pair. Returns its index. */
static uint32_t count_grant(struct verbs_channel *channel,
			    const struct verbs_qp *qp)
{
	if (channel->granted_by != qp)
		channel->grants = 0;
	channel->granted_by = qp;
	channel->granted_at[channel->grants % VERBS_CREDIT_WORDS] = qp->posted;
	return channel->grants++;
}

/* Write the credits to the sender. If that is not possible now, do it later. */
static dicomm_result_t send_credits(struct verbs_channel *channel)
{
	struct verbs_qp *qp = qp_for_credits(channel);
	uint64_t word = channel->consumed;
	struct ibv_sge sge = {.addr = (uintptr_t)&word, .length = sizeof(word)};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_INLINE,
	};
	uint32_t n;

	/* A peer that has closed the channel needs no credits. */
	if (channel->why ||
	    atomic_load_explicit(&channel->peer_closed, memory_order_relaxed)) {
		verbs_credits_cancel(channel);
		return DICOMM_SUCCESS;
	}
	if (!qp) {
		channel->urgent = true;
		verbs_credits_defer(channel);
		return DICOMM_SUCCESS;
	}
	verbs_credits_cancel(channel);
	wr.wr_id = verbs_request_id(channel, qp->posted, 0, sizeof(word));
	n = count_grant(channel, qp);
	wr.send_flags |= verbs_signal_now(
		qp, 1, (n + 1) % (VERBS_CREDIT_WORDS / 2) == 0);
	wr.wr.rdma.remote_addr =
		channel->remote_addr + n % VERBS_CREDIT_WORDS * sizeof(word);
	wr.wr.rdma.rkey = qp->remote_key;
	channel->granted = channel->consumed;
	channel->urgent = false;
	/* All loads from the slots come before the write. Drivers only
	 * order stores. */
	atomic_thread_fence(memory_order_release);
	return verbs_post(qp, &wr, 1);
}

/* Returns true if a credit can wait until a read is complete. A large operation
 * may consist of many messages, which this rank reads one after the other.
 * While it reads, and the sender has credits for all messages that it has put,
 * the sender does not wait. */
static bool is_still_reading(const struct verbs_channel *channel)
{
	return channel->reads_active &&
	       channel->last_arrived <= channel->granted;
}

dicomm_result_t verbs_release(struct tp_peer *peer, enum tp_class c,
			      uint64_t seq)
{
	struct verbs_channel *channel = peer->in[c];

	if (!channel ||
	    atomic_load_explicit(&peer->dev->aborted, memory_order_relaxed))
		return DICOMM_SUCCESS;
	channel->consumed = seq;
	if (seq - channel->granted >= peer->dev->config.slots / 2 &&
	    (!is_still_reading(channel) ||
	     seq - channel->granted >= VERBS_READS))
		return send_credits(channel);
	if (seq != channel->granted)
		verbs_credits_defer(channel);
	return DICOMM_SUCCESS;
}

void verbs_credits_send_all(struct tp_device *dev)
{
	struct verbs_channel *next;

	for (struct verbs_channel *l = dev->credits_due; l; l = next) {
		next = l->credits_due;
		send_credits(l);
	}
}

/* There is nothing else to do: send credits that senders may wait for. */
void verbs_credits_idle(struct tp_device *dev)
{
	bool all = ++dev->idle >= IDLE_POLLS;
	struct verbs_channel *next;

	for (struct verbs_channel *l = dev->credits_due; l; l = next) {
		bool due = l->urgent || ((all || verbs_credits_needed(l)) &&
					 !is_still_reading(l));

		next = l->credits_due;
		if (due)
			send_credits(l);
	}
	if (all)
		dev->idle = 0;
}

/* ---- the sender: finds credits ---- */

void verbs_credits_track(struct verbs_channel *channel)
{
	struct tp_device *dev = channel->dev;
	struct verbs_channel *at = dev->credit_cursor;

	memset((void *)channel->words, 0, sizeof(*channel->words));
	channel->next_word = channel->words->word;
	channel->credit_checks = VERBS_CREDIT_CHECKS;
	channel->next_out = at ? at->next_out : channel;
	if (at)
		at->next_out = channel;
	else
		dev->credit_cursor = channel;
}

void verbs_credits_untrack(struct verbs_channel *channel)
{
	struct tp_device *dev = channel->dev;
	struct verbs_channel *before = channel;

	while (before->next_out != channel)
		before = before->next_out;
	before->next_out = channel->next_out;
	if (dev->credit_cursor == channel)
		dev->credit_cursor = before == channel ? NULL : before;
	verbs_poll_all(dev);
}

static void set_released(struct verbs_channel *channel, uint64_t seq)
{
	channel->known = seq;
	atomic_store_explicit(&channel->released, seq, memory_order_release);
}

static const _Atomic uint64_t *
word_after(const struct verbs_credit_words *words, const _Atomic uint64_t *word)
{
	return &words->word[(size_t)(word - words->word + 1) %
			    VERBS_CREDIT_WORDS];
}

void verbs_credits_follow(struct verbs_channel *channel)
{
	for (int i = 0; i < VERBS_CREDIT_WORDS; i++) {
		uint64_t word = atomic_load_explicit(channel->next_word,
						     memory_order_acquire);

		if (word <= channel->known)
			break;
		set_released(channel, word);
		channel->next_word =
			word_after(channel->words, channel->next_word);
	}
}

/* The next word to be written is the one after the newest; after the failure of
 * a queue pair, it is the first. */
bool verbs_credits_scan(struct verbs_channel *channel)
{
	const struct verbs_credit_words *words = channel->words;
	uint64_t known = channel->known, most = known;

	channel->credit_checks = VERBS_CREDIT_CHECKS;
	for (int i = 0; i < VERBS_CREDIT_WORDS; i++) {
		uint64_t word = atomic_load_explicit(&words->word[i],
						     memory_order_acquire);

		if (word <= most)
			continue;
		most = word;
		channel->next_word = word_after(words, &words->word[i]);
	}
	if (most > known)
		set_released(channel, most);
	return most > known;
}

bool verbs_credits_scan_all(struct tp_device *dev)
{
	struct verbs_channel *last = dev->credit_cursor, *l = last;
	bool moved = false;

	while (l) {
		l = l->next_out;
		moved |= verbs_credits_scan(l);
		if (l == last)
			break;
	}
	return moved;
}
