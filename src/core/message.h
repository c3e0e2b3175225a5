/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages in an inbox: has one come, where is it, it is done with. */
#ifndef DICOMM_CORE_MESSAGE_H
#define DICOMM_CORE_MESSAGE_H

#include "src/core/comm.h"

/* Only the thread of the data path writes it; to who asks it says that those
 * messages are not looked at any more. */
static inline uint64_t message_done(const struct lane *lane)
{
	return atomic_load_explicit(&lane->in_done, memory_order_acquire);
}

static inline void message_set_done(struct lane *lane, uint64_t seq)
{
	atomic_store_explicit(&lane->in_done, seq, memory_order_release);
}

static inline struct tp_line *message_arrived(const struct lane *lane,
					      uint64_t seq)
{
	struct tp_line *line;

	line = tp_line(&lane->in, seq & lane->in.slot_mask);
	return atomic_load_explicit(&line->seq, memory_order_acquire) == seq
		       ? line
		       : NULL;
}

static inline const uint8_t *message_payload(const struct lane *lane,
					     uint64_t seq,
					     const struct tp_line *line)
{
	if (line->len <= TP_LINE_ROOM)
		return line->room;
	return lane->in.data +
	       (seq & lane->in.slot_mask) * lane->in.data_stride;
}

/* Message seq is done with. They may be done with out of order, up to 64
 * ahead; see message_in_reach(). */
static inline void message_consumed(struct peer *peer, enum tp_class c,
				    uint64_t seq)
{
	struct lane *lane = &peer->lane[c];
	uint64_t done = message_done(lane);
	bool held;

	lane->in_mask |= UINT64_C(1) << (seq - done - 1);
	while (lane->in_mask & 1) {
		lane->in_mask >>= 1;
		done++;
	}
	message_set_done(lane, done);
	if (!lane->in.lines)
		return;
	held = done && done == lane->in_held;
	peer->transport->release(peer->tp, c, done - held);
}

/* Has the peer room for message seq of an operation, and is it that one's
 * turn? */
static inline bool message_may_leave(const struct peer *peer,
				     const struct lane *lane, uint64_t seq,
				     bool crowded)
{
	uint64_t released =
		atomic_load_explicit(lane->out.released, memory_order_acquire);

	return seq <= released + peer->limits.slots &&
	       (!crowded || released >= lane->out_settles);
}

static inline bool message_in_reach(const struct lane *lane, uint64_t seq)
{
	return seq - message_done(lane) <= 64;
}

#endif
