/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What completes: messages that have come, and requests that have ended; and
 * polls, which look for both and for what else there is to do.
 */
#include "transports/verbs/poll.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/verbs/credits.h"
#include "transports/verbs/lane.h"
#include "transports/verbs/loss.h"
#include "transports/verbs/mirror.h"
#include "transports/verbs/nic.h"
#include "transports/verbs/rail.h"
#include "transports/verbs/traffic.h"
#include "transports/verbs/verbs.h"

/* Polls that find something, to one that looks for what else there is, too. */
#define BUSY_POLLS_PER_LOOK 16
/* Looks for credits, where nothing moves, to one that leaves nothing out. */
#define LOOKS_PER_ALL 16
#define LANES_PER_LOOK 16
/* Of a request's number, as much as its identifier has room for. */
#define COUNT_MASK (UINT32_MAX >> (VERBS_COUNT_SHIFT - 32))

/* What a request was, from its completion. */
struct request {
	uint32_t count; /* of its strand: all up to it are done; lower bits */
	uint32_t bytes;
	uint32_t lane;
	bool in;
	uint16_t what; /* sender: pool buffer + 1; receiver: read + 1 */
};

static struct request request_of(uint64_t id)
{
	return (struct request){
		.count = (uint32_t)(id >> VERBS_COUNT_SHIFT),
		.bytes = (uint32_t)id & ((1u << VERBS_WHAT_SHIFT) - 1),
		.lane = (uint32_t)(id >> 32) & ((1u << VERBS_LANE_BITS) - 1),
		.what = (uint16_t)((uint32_t)id >> VERBS_WHAT_SHIFT),
		.in = id >> (32 + VERBS_LANE_BITS) & 1,
	};
}

static inline bool is_strand(const struct verbs_strand *s,
			     const struct verbs_rail *rail, uint32_t qpn)
{
	return s->qpn == qpn && s->rail == rail;
}

static __attribute__((noinline)) struct verbs_strand *
strand_of_many(struct verbs_lane *lane, const struct verbs_rail *rail,
	       uint32_t qpn)
{
	for (uint32_t i = 1; i < lane->strands; i++)
		if (is_strand(&lane->strand[i], rail, qpn))
			return &lane->strand[i];
	return NULL;
}

/* That queue pair, of that NIC, as one of the lane's; NULL if it is none. */
static inline struct verbs_strand *
strand_of(struct verbs_lane *lane, const struct verbs_rail *rail, uint32_t qpn)
{
	if (__builtin_expect(!lane, 0))
		return NULL;
	if (__builtin_expect(!is_strand(&lane->strand[0], rail, qpn), 0))
		return strand_of_many(lane, rail, qpn);
	return &lane->strand[0];
}

/* The number near `last` whose lower half is `low`: messages come in any order
 * within the credits. */
static uint64_t extend(uint64_t last, uint32_t low)
{
	return last + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)last);
}

static __attribute__((noinline)) void on_stranger(const struct verbs_rail *rail,
						  const struct ibv_wc *wc)
{
	log_warn("verbs %s: a message on queue pair %#x that is none of mine",
		 rail->nic->name, wc->qp_num);
}

/* In two steps: both at once take constants that have to be kept. */
static inline bool is_message(const struct ibv_wc *wc)
{
	return __builtin_expect(wc->status == IBV_WC_SUCCESS, 1) &&
	       __builtin_expect(wc->opcode & IBV_WC_RECV, IBV_WC_RECV);
}

static inline struct verbs_lane *lane_in(const struct tp_device *dev,
					 uint32_t id)
{
	return __builtin_expect(id < dev->lanes, 1)
		       ? atomic_load_explicit(&dev->in[id],
					      memory_order_acquire)
		       : NULL;
}

/* It lies in a slot, all of it; `note` came with it. */
static inline void on_arrival(struct verbs_lane *lane, uint32_t note)
{
	struct tp_line *line =
		(struct tp_line *)(lane->slots +
				   (note & lane->slot_mask) * lane->stride);
	uint64_t seq =
		extend(lane->last, (line->kind & ~0xffu) | (note & 0xff));

	line->kind &= 0xff;
	if (seq > lane->last)
		lane->last = seq;
	atomic_store_explicit(&line->seq, seq, memory_order_release);
}

static void on_message(struct tp_device *dev, struct verbs_rail *rail,
		       const struct ibv_wc *wc)
{
	uint32_t note = ntohl(verbs_rail_note(rail, wc));
	struct verbs_lane *lane = lane_in(dev, note >> 8);
	struct verbs_strand *s = strand_of(lane, rail, wc->qp_num);

	/* Of one that is stopped, the other side was told that it has not come,
	 * and sends it again. */
	if (!s)
		on_stranger(rail, wc);
	else if (s->state != STRAND_STOPPED)
		on_arrival(lane, note);
}

static void on_failure(struct verbs_strand *s, const struct ibv_wc *wc,
		       const struct request *r)
{
	struct verbs_lane *lane = s->lane;

	if (r->in && r->what) {
		struct verbs_read *read = &lane->reads[r->what - 1];

		verbs_strand_broken(s, wc, "read", read->pending);
		verbs_read_end(lane->dev, read);
		if (lane->why) {
			read->pending = 0;
			read->status = lane->why;
			lane->reading--;
		}
		return;
	}
	verbs_strand_broken(s, wc, r->in ? "write of credits" : "write",
			    r->bytes);
	if (r->what && lane->why)
		verbs_pool_give(&lane->dev->pool, r->what - 1u);
}

static void finish_read(struct verbs_lane *lane, struct verbs_read *read,
			dicomm_result_t status)
{
	read->pending = 0;
	read->status = status;
	lane->reading--;
	verbs_read_end(lane->dev, read);
}

/* All bytes are on their way to where they go. */
static void on_read(struct verbs_lane *lane, uint32_t slot)
{
	struct verbs_read *read = &lane->reads[slot];
	struct verbs_strand *s;
	char what[80];
	int error;

	if (!read->keys.flushed) {
		finish_read(lane, read, DICOMM_SUCCESS);
		return;
	}
	error = verbs_mirror_flush(lane, slot);
	if (!error)
		return;
	/* Another strand reads it again, if there is one. */
	s = &lane->strand[read->by - lane->strand];
	verbs_mirror_failed(lane->dev, s->rail);
	snprintf(what, sizeof(what), "post a flush: %s", strerror(error));
	verbs_strand_give_up(s, DICOMM_ERR_SYSTEM, what, "the NIC failed");
	if (lane->why)
		finish_read(lane, read, lane->why);
}

/* A flush that fails leaves its read to another strand, if there is one. */
static void on_flush(struct tp_device *dev, struct verbs_rail *rail,
		     const struct ibv_wc *wc)
{
	struct verbs_lane *lane;
	struct verbs_read *read = verbs_mirror_read(dev, wc, &lane);

	rail->flushes--;
	if (wc->status != IBV_WC_SUCCESS)
		verbs_mirror_failed(dev, rail);
	if (!read)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		verbs_strand_broken(&lane->strand[read->by - lane->strand], wc,
				    "flush", 1);
		if (!lane->why)
			return;
	}
	finish_read(lane, read, lane->why);
}

/* It is no message. */
static __attribute__((noinline)) void on_request(struct tp_device *dev,
						 struct verbs_rail *rail,
						 const struct ibv_wc *wc)
{
	struct verbs_lane *lane;
	struct verbs_strand *s;
	struct request r;

	if (verbs_is_flush(rail, wc)) {
		on_flush(dev, rail, wc);
		return;
	}
	/* A flushed receive says nothing about a lane. */
	r = request_of(wc->wr_id);
	lane = r.lane < dev->lanes
		       ? atomic_load_explicit(r.in ? &dev->in[r.lane]
						   : &dev->out[r.lane],
					      memory_order_acquire)
		       : NULL;
	s = strand_of(lane, rail, wc->qp_num);
	if (!s || s->state == STRAND_STOPPED)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		on_failure(s, wc, &r);
		return;
	}
	s->done = s->posted - ((s->posted - r.count - 1) & COUNT_MASK);
	if (!r.what)
		return;
	if (r.in)
		on_read(lane, r.what - 1u);
	else
		verbs_pool_give(&dev->pool, r.what - 1u);
}

/* After an abort: reads that end are counted, nothing else. */
static void on_aborted(struct tp_device *dev, struct verbs_rail *rail,
		       const struct ibv_wc *wc)
{
	struct request r = request_of(wc->wr_id);
	struct verbs_read *read;
	struct verbs_strand *s;

	if (verbs_is_flush(rail, wc)) {
		read = verbs_mirror_read(dev, wc, NULL);
		if (read)
			verbs_read_end(dev, read);
		return;
	}
	if (!r.in || !r.what || is_message(wc))
		return;
	s = strand_of(lane_in(dev, r.lane), rail, wc->qp_num);
	if (!s)
		return;
	read = &s->lane->reads[r.what - 1];
	if (read->by == s)
		verbs_read_end(dev, read);
}

/* The receive of the last message, and those of others before it; of no use is
 * one of a queue pair that is. */
static __attribute__((noinline)) void receive_again(struct tp_device *dev,
						    struct verbs_rail *rail,
						    const struct ibv_wc *wc)
{
	struct verbs_strand *s;
	uint32_t id;

	if (rail->srq) {
		verbs_rail_post_batch(rail, NULL);
		return;
	}
	rail->batch_room = 1;
	id = ntohl(verbs_rail_note(rail, wc)) >> 8;
	s = strand_of(lane_in(dev, id), rail, wc->qp_num);
	if (s && s->state != STRAND_STOPPED)
		verbs_rail_post_batch(rail, s->qp);
}

static void on_completions(struct tp_device *dev, struct verbs_rail *rail,
			   const struct ibv_wc *wc, int n)
{
	for (; n > 0; wc++, n--)
		if (is_message(wc)) {
			on_message(dev, rail, wc);
			if (verbs_rail_received(rail))
				receive_again(dev, rail, wc);
		} else {
			on_request(dev, rail, wc);
		}
}

bool verbs_complete_aborted(struct tp_device *dev)
{
	struct ibv_wc wc[VERBS_COMPLETIONS];
	bool moved = false;

	for (uint32_t k = 0; k < dev->rails; k++) {
		struct verbs_rail *rail = &dev->rail[k];
		int n = ibv_poll_cq(rail->cq, VERBS_COMPLETIONS, wc);

		for (int i = 0; i < n; i++)
			on_aborted(dev, rail, &wc[i]);
		moved |= n > 0;
	}
	return moved;
}

/* The same, where the first queue has brought n. */
static __attribute__((noinline)) bool end_aborted(struct tp_device *dev, int n)
{
	for (int i = 0; i < n; i++)
		on_aborted(dev, &dev->rail[0], &dev->wc[i]);
	return verbs_complete_aborted(dev) || n > 0;
}

static __attribute__((noinline)) bool complete_others(struct tp_device *dev)
{
	bool moved = false;

	for (uint32_t k = 1; k < dev->rails; k++) {
		struct verbs_rail *rail = &dev->rail[k];
		int n = ibv_poll_cq(rail->cq, VERBS_COMPLETIONS, dev->wc);

		on_completions(dev, rail, dev->wc, n);
		moved |= n > 0;
	}
	return moved;
}

/* From that one on, whatever they are. */
static __attribute__((noinline)) bool
complete_rest(struct tp_device *dev, const struct ibv_wc *wc, int n)
{
	on_completions(dev, &dev->rail[0], wc, n);
	complete_others(dev);
	return true;
}

/* The message of the first one has been taken. */
static __attribute__((noinline)) bool
complete_received(struct tp_device *dev, const struct ibv_wc *wc, int n)
{
	receive_again(dev, &dev->rail[0], wc);
	return complete_rest(dev, wc + 1, n - 1);
}

/* Of a message with nothing rare about it, by the first strand, the lane. */
static inline struct verbs_lane *plain_lane(const struct tp_device *dev,
					    const struct verbs_rail *rail,
					    const struct ibv_wc *wc)
{
	struct verbs_lane *lane;

	if (!is_message(wc) || __builtin_expect(rail->notes != NULL, 0))
		return NULL;
	lane = lane_in(dev, ntohl(wc->imm_data) >> 8);
	return lane && is_strand(&lane->strand[0], rail, wc->qp_num) &&
			       lane->strand[0].state != STRAND_STOPPED
		       ? lane
		       : NULL;
}

/* The first queue has brought n. Where something is rare, another function
 * ends it, so that this one has no registers to keep. */
static inline __attribute__((always_inline)) bool
complete_more(struct tp_device *dev, int n)
{
	struct verbs_rail *rail = &dev->rail[0];
	const struct ibv_wc *wc = dev->wc;

	for (int left = n; left > 0; wc++, left--) {
		struct verbs_lane *lane = plain_lane(dev, rail, wc);

		if (__builtin_expect(!lane, 0))
			return complete_rest(dev, wc, left);
		on_arrival(lane, ntohl(wc->imm_data));
		if (verbs_rail_received(rail))
			return complete_received(dev, wc, left);
	}
	if (__builtin_expect(dev->rails != 1, 0))
		return complete_others(dev) || n > 0;
	return n > 0;
}

static inline bool is_aborted(const struct tp_device *dev)
{
	return __builtin_expect(
		atomic_load_explicit(&dev->aborted, memory_order_relaxed), 0);
}

static inline int poll_first(struct tp_device *dev)
{
	return ibv_poll_cq(dev->rail[0].cq, VERBS_COMPLETIONS, dev->wc);
}

bool verbs_complete(struct tp_device *dev)
{
	int n = poll_first(dev);

	return is_aborted(dev) ? end_aborted(dev, n) : complete_more(dev, n);
}

/* Of lanes by turns: all that may have something, or up to one. Nobody says
 * which of them is waited for: also one whose peer has taken all that was sent
 * may have to do so for numbers that were never sent. */
static inline __attribute__((always_inline)) void
look_for_credits(struct tp_device *dev, bool one)
{
	struct verbs_lane *first = dev->looked_at, *l = first;

	for (int left = LANES_PER_LOOK; left; left--) {
		l = l->next_out;
		if (__builtin_expect(verbs_credits_look(l), 0)) {
			dev->looked_at = l;
			verbs_credits_take(l);
			if (one)
				return;
		}
		if (l == first)
			return;
	}
	dev->looked_at = l;
}

/* After many polls in a row that have found something. */
static __attribute__((noinline)) void look_around(struct tp_device *dev)
{
	dev->busy = BUSY_POLLS_PER_LOOK - 1;
	if (atomic_load_explicit(&dev->repair, memory_order_relaxed))
		verbs_loss_repair(dev);
	if (dev->looked_at)
		look_for_credits(dev, false);
}

/* A poll that has found nothing does what else there is. */
static __attribute__((noinline)) void idle(struct tp_device *dev)
{
	if (atomic_load_explicit(&dev->repair, memory_order_relaxed))
		verbs_loss_repair(dev);
	if (dev->looked_at)
		look_for_credits(dev, true);
	if (dev->untold)
		verbs_untold_idle(dev);
	if (dev->rails > 1 || !dev->looked_at || dev->untold ||
	    atomic_load_explicit(&dev->repair, memory_order_relaxed))
		return;
	dev->plain = VERBS_POLLS_PER_LOOK - 1;
	dev->looks = LOOKS_PER_ALL - 1;
}

static __attribute__((noinline)) bool poll_all(struct tp_device *dev, int n)
{
	verbs_poll_all(dev);
	if (is_aborted(dev)) {
		end_aborted(dev, n);
		return false;
	}
	if (!complete_more(dev, n)) {
		idle(dev);
		return false;
	}
	dev->idle = 0;
	if (__builtin_expect(--dev->busy < 0, 0))
		look_around(dev);
	return true;
}

/* A poll that found nothing in the first queue, and has more to look at. */
static __attribute__((noinline)) bool poll_more(struct tp_device *dev)
{
	if (--dev->looks < 0)
		return poll_all(dev, 0);
	dev->plain = VERBS_POLLS_PER_LOOK - 1;
	look_for_credits(dev, true);
	return false;
}

/* Most often there is nothing, and somebody waits. */
bool verbs_poll(struct tp_device *dev)
{
	int n = poll_first(dev);

	if (__builtin_expect(n, 0))
		return poll_all(dev, n);
	if (__builtin_expect(--dev->plain < 0, 0))
		return poll_more(dev);
	return false;
}
