/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Credits: what a receiver is done with, and when its sender is told so.
 *
 * Where packets take several ways, an older write may land after a newer one.
 * So each goes to the next of a few words, in a ring, and the greatest of them
 * counts; and none is written again before a completion has told that what was
 * written there has landed. Over iWARP that tells less, but there TCP keeps
 * the order.
 *
 * It costs one request, and a completion for half of the ring. Messages with a
 * number would cost the sender receives, and of those there would never be
 * enough: a receiver of messages without bytes, which are not sent, may be any
 * number of credits ahead of a sender that is busy elsewhere.
 */
#include "transports/verbs/credits.h"

#include <string.h>

#include "transports/verbs/loss.h"
#include "transports/verbs/poll.h"
#include "transports/verbs/traffic.h"
#include "transports/verbs/verbs.h"

/* Polls in a row that find nothing, before credits are told that nobody need
 * wait for. */
#define IDLE_POLLS 1024

/* ---- to the sender ---- */

void verbs_untold_add(struct verbs_lane *lane)
{
	struct verbs_lane **head = &lane->dev->untold;

	if (lane->untold_link)
		return;
	lane->untold = *head;
	if (*head)
		(*head)->untold_link = &lane->untold;
	lane->untold_link = head;
	*head = lane;
	verbs_poll_all(lane->dev);
}

void verbs_untold_remove(struct verbs_lane *lane)
{
	if (!lane->untold_link)
		return;
	*lane->untold_link = lane->untold;
	if (lane->untold)
		lane->untold->untold_link = lane->untold_link;
	lane->untold_link = NULL;
}

/* Does nothing land any more in the word that comes next? */
static bool is_free(const struct verbs_lane *lane, const struct verbs_strand *s)
{
	uint32_t count = lane->told_at[lane->tells % VERBS_WORDS];

	return lane->told_by != s || lane->tells < VERBS_WORDS ||
	       (int32_t)(s->done - count) > 0;
}

/* The strand that credits go over: always the same, unless it is lost. NULL:
 * not now. What was told over one that is may still land over there. */
static struct verbs_strand *strand_to_tell(struct verbs_lane *lane)
{
	struct verbs_strand *s =
		lane->strands == 1 ? &lane->strand[0] : verbs_strand_good(lane);

	if (!s || lane->unfenced || !verbs_has_room(s, 1) || !is_free(lane, s))
		return NULL;
	return s;
}

/* The number of this one, of those by that strand. */
static uint32_t count_tell(struct verbs_lane *lane,
			   const struct verbs_strand *s)
{
	if (lane->told_by != s)
		lane->tells = 0;
	lane->told_by = s;
	lane->told_at[lane->tells % VERBS_WORDS] = s->posted;
	return lane->tells++;
}

/* Write the credits to the sender; if that cannot be, later. */
static dicomm_result_t tell(struct verbs_lane *lane)
{
	struct verbs_strand *s = strand_to_tell(lane);
	uint64_t word = lane->freed;
	struct ibv_sge sge = {.addr = (uintptr_t)&word, .length = sizeof(word)};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_INLINE,
	};
	uint32_t n;

	/* Who has left needs no credits. */
	if (lane->why ||
	    atomic_load_explicit(&lane->left, memory_order_relaxed)) {
		verbs_untold_remove(lane);
		return DICOMM_SUCCESS;
	}
	if (!s) {
		lane->urgent = true;
		verbs_untold_add(lane);
		return DICOMM_SUCCESS;
	}
	verbs_untold_remove(lane);
	wr.wr_id = verbs_request_id(lane, s->posted, 0, sizeof(word));
	n = count_tell(lane, s);
	wr.send_flags |=
		verbs_signal_now(s, 1, (n + 1) % (VERBS_WORDS / 2) == 0);
	wr.wr.rdma.remote_addr =
		lane->remote_addr + n % VERBS_WORDS * sizeof(word);
	wr.wr.rdma.rkey = s->remote_key;
	lane->told = lane->freed;
	lane->urgent = false;
	/* All loads from the slots are done; providers order stores only. */
	atomic_thread_fence(memory_order_release);
	return verbs_post(s, &wr, 1);
}

/* Is more being read of a message to which many numbers belong, while its
 * sender has been told of all that it has put? Then it does not lack credits,
 * the read ends by itself, and after it there will be more to tell of. */
static bool reads_on(const struct verbs_lane *lane)
{
	return lane->reading && lane->last <= lane->told;
}

dicomm_result_t verbs_release(struct tp_peer *peer, enum tp_class c,
			      uint64_t seq)
{
	struct verbs_lane *lane = peer->in[c];

	if (!lane ||
	    atomic_load_explicit(&peer->dev->aborted, memory_order_relaxed))
		return DICOMM_SUCCESS;
	lane->freed = seq;
	if (seq - lane->told >= peer->dev->config.slots / 2 &&
	    (!reads_on(lane) || seq - lane->told >= VERBS_READS))
		return tell(lane);
	if (seq != lane->told)
		verbs_untold_add(lane);
	return DICOMM_SUCCESS;
}

void verbs_untold_tell(struct tp_device *dev)
{
	struct verbs_lane *next;

	for (struct verbs_lane *l = dev->untold; l; l = next) {
		next = l->untold;
		tell(l);
	}
}

bool verbs_flush(struct tp_device *dev)
{
	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return true;
	verbs_untold_tell(dev);
	/* All words may have been on their way: have some landed? */
	if (dev->untold && verbs_complete(dev))
		verbs_untold_tell(dev);
	return !dev->untold;
}

/* Nobody told whom they wait for: now there is time. */
void verbs_untold_idle(struct tp_device *dev)
{
	bool all = ++dev->idle >= IDLE_POLLS;
	struct verbs_lane *next;

	for (struct verbs_lane *l = dev->untold; l; l = next) {
		bool due = l->urgent ||
			   ((all || verbs_must_tell(l)) && !reads_on(l));

		next = l->untold;
		if (due)
			tell(l);
	}
	if (all)
		dev->idle = 0;
}

/* ---- to this rank ---- */

void verbs_credits_begin(struct verbs_lane *lane)
{
	struct tp_device *dev = lane->dev;
	struct verbs_lane *at = dev->looked_at;

	lane->words = &dev->words[lane->id];
	memset((void *)lane->words, 0, sizeof(*lane->words));
	lane->expected = lane->words->word;
	lane->looks = VERBS_LOOKS;
	lane->next_out = at ? at->next_out : lane;
	if (at)
		at->next_out = lane;
	else
		dev->looked_at = lane;
}

void verbs_credits_end(struct verbs_lane *lane)
{
	struct tp_device *dev = lane->dev;
	struct verbs_lane *before = lane;

	while (before->next_out != lane)
		before = before->next_out;
	before->next_out = lane->next_out;
	if (dev->looked_at == lane)
		dev->looked_at = before == lane ? NULL : before;
	verbs_poll_all(dev);
}

static void set_released(struct verbs_lane *lane, uint64_t seq)
{
	lane->known = seq;
	atomic_store_explicit(&lane->released, seq, memory_order_release);
}

static const _Atomic uint64_t *word_after(const struct verbs_words *words,
					  const _Atomic uint64_t *word)
{
	return &words->word[(size_t)(word - words->word + 1) % VERBS_WORDS];
}

void verbs_credits_follow(struct verbs_lane *lane)
{
	for (int i = 0; i < VERBS_WORDS; i++) {
		uint64_t word = atomic_load_explicit(lane->expected,
						     memory_order_acquire);

		if (word <= lane->known)
			break;
		set_released(lane, word);
		lane->expected = word_after(lane->words, lane->expected);
	}
}

/* The one behind the newest is the next to be written; after the loss of a
 * strand, the first. */
bool verbs_credits_take(struct verbs_lane *lane)
{
	const struct verbs_words *words = lane->words;
	uint64_t known = lane->known, most = known;

	lane->looks = VERBS_LOOKS;
	for (int i = 0; i < VERBS_WORDS; i++) {
		uint64_t word = atomic_load_explicit(&words->word[i],
						     memory_order_acquire);

		if (word <= most)
			continue;
		most = word;
		lane->expected = word_after(words, &words->word[i]);
	}
	if (most > known)
		set_released(lane, most);
	return most > known;
}

bool verbs_credits_take_all(struct tp_device *dev)
{
	struct verbs_lane *last = dev->looked_at, *l = last;
	bool moved = false;

	while (l) {
		l = l->next_out;
		moved |= verbs_credits_take(l);
		if (l == last)
			break;
	}
	return moved;
}
