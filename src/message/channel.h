/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two sides of a channel: how they are connected at its first message,
 * which messages may be put, whether one has arrived, where its bytes are, and
 * how it is marked as consumed. The thread of the data path calls these
 * functions.
 */
#ifndef DICOMM_MESSAGE_CHANNEL_H
#define DICOMM_MESSAGE_CHANNEL_H

#include "src/base/log.h"
#include "src/core/comm.h"

/* Connects the sending side of a channel. Returns DICOMM_AGAIN if the peer has
 * not done its part yet: poll, then call again. Returns DICOMM_ERR_ABORTED or
 * DICOMM_ERR_REMOTE if the peer never will. */
dicomm_result_t channel_connect_out(struct peer *peer, enum tp_class c);
/* Connects the receiving side. Returns DICOMM_AGAIN until the peer has begun to
 * send. */
dicomm_result_t channel_connect_in(struct dicomm_comm *comm, struct peer *peer,
				   enum tp_class c);
/* Sends all pending credits, polling for at most `ms` milliseconds. A transport
 * that has no room now usually has room one round trip later. If not, it is
 * probably broken, and a rank that has finished does not wait longer. */
void channel_flush_all(struct dicomm_comm *comm, int ms);

/* Only the thread of the data path writes in_done. A thread that loads it knows
 * that messages up to that number are not read any more. */
static inline uint64_t message_done(const struct channel *channel)
{
	return atomic_load_explicit(&channel->in_done, memory_order_acquire);
}

static inline void message_set_done(struct channel *channel, uint64_t seq)
{
	atomic_store_explicit(&channel->in_done, seq, memory_order_release);
}

static inline struct tp_line *message_arrived(const struct channel *channel,
					      uint64_t seq)
{
	struct tp_line *line;

	line = tp_line(&channel->in, seq & channel->in.slot_mask);
	return atomic_load_explicit(&line->seq, memory_order_acquire) == seq
		       ? line
		       : NULL;
}

/* Looks for message seq; connects the channel before the first one. AGAIN: it
 * has not arrived. */
static inline dicomm_result_t message_look(struct dicomm_comm *comm,
					   struct peer *peer, enum tp_class c,
					   uint64_t seq, struct tp_line **line)
{
	struct channel *channel = &peer->channel[c];

	if (__builtin_expect(!channel->in.lines, 0))
		TRY(channel_connect_in(comm, peer, c));
	*line = message_arrived(channel, seq);
	return *line ? DICOMM_SUCCESS : DICOMM_AGAIN;
}

/* Returns the bytes of a message, or NULL; see tp_payload(). */
static inline const uint8_t *message_payload(const struct channel *channel,
					     uint64_t seq,
					     const struct tp_line *line)
{
	return tp_payload(&channel->in, seq, line);
}

/* Logs the error of a message that has neither bytes nor a reference, and
 * returns its status. */
dicomm_result_t message_malformed(int rank, const struct tp_line *line);

/* Passes on to the peer which messages are consumed. Until then, a sender in
 * this process that aborts waits, since this rank may be reading its memory. */
void message_release(const struct peer *peer, enum tp_class c);

/* Marks all messages up to seq as consumed. */
static inline void message_consumed_all(struct peer *peer, enum tp_class c,
					uint64_t seq)
{
	message_set_done(&peer->channel[c], seq);
	if (peer->channel[c].in.lines)
		peer->transport->release(peer->tp, c, seq);
}

/* Marks message seq as consumed. Messages may be consumed out of order, up to
 * 64 ahead; see message_in_reach(). */
static inline void message_consumed(struct peer *peer, enum tp_class c,
				    uint64_t seq)
{
	struct channel *channel = &peer->channel[c];
	uint64_t done = message_done(channel);
	bool withheld;

	channel->in_mask |= UINT64_C(1) << (seq - done - 1);
	while (channel->in_mask & 1) {
		channel->in_mask >>= 1;
		done++;
	}
	message_set_done(channel, done);
	if (!channel->in.lines)
		return;
	withheld = done && done == channel->in_withheld;
	peer->transport->release(peer->tp, c, done - withheld);
}

/* Returns true if the peer has released all messages up to seq, so that what
 * was sent in them may change. */
static inline bool message_released(const struct channel *channel, uint64_t seq)
{
	return atomic_load_explicit(channel->out.released,
				    memory_order_acquire) >= seq;
}

/* Returns true if message seq of an operation may be sent. The peer must have a
 * free slot. After an incast operation, the peer must have ended that
 * operation, too. */
static inline bool message_may_leave(const struct peer *peer,
				     const struct channel *channel,
				     uint64_t seq, bool incast)
{
	uint64_t released = atomic_load_explicit(channel->out.released,
						 memory_order_acquire);

	return seq <= released + peer->limits.slots &&
	       (!incast || released >= channel->out_settles);
}

static inline bool message_in_reach(const struct channel *channel, uint64_t seq)
{
	return seq - message_done(channel) <= 64;
}

#endif
