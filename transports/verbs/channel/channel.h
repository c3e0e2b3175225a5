/* SPDX-License-Identifier: BSD-3-Clause */
/* A channel: one direction of one class of messages between two ranks, over one
 * or several queue pairs. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_CHANNEL_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_CHANNEL_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/nic/events.h"

#define VERBS_READS 64 /* reads of a channel under way; see transport.h */
#define VERBS_CHANNEL_BITS 20
/* Bytes of a line before its room. */
#define VERBS_LINE_HEAD offsetof(struct tp_line, room)
/* Bytes of a line that the NIC does not write: the message number. */
#define VERBS_LINE_SEQ offsetof(struct tp_line, signature)

/* Most reads of a queue pair in flight. Further ones wait in its send queue. */
#define VERBS_READS_AT_ONCE 16

static inline uint8_t verbs_reads(int limit)
{
	return (uint8_t)(limit < VERBS_READS_AT_ONCE ? limit
						     : VERBS_READS_AT_ONCE);
}

struct rdma_cm_id;
struct tp_device;
struct verbs_conn;
struct verbs_channel;
struct verbs_rail;

/*
 * The states of a channel. Before its first one there is none: connect_out()
 * makes it on the side that sends, and returns AGAIN; on the side that receives
 * the connection thread makes it when a request comes, and connect_in() returns
 * AGAIN until it is ready. connection/conn.h has the states of the TCP
 * connection by which the two sides come about.
 */
enum verbs_channel_state {
	/* It has just been made. Nobody else sees it. */
	CHANNEL_IDLE,
	/* Entered by connect_out(); on the side that receives only where
	 * librdmacm connects the queue pairs, when the reply has been sent.
	 * connect_out() returns AGAIN: only its caller knows how long to wait.
	 * Left for CHANNEL_READY when the reply has come, or librdmacm has
	 * connected all queue pairs; for CHANNEL_FAILED at any error, and where
	 * librdmacm has not ended within 10 s. */
	CHANNEL_CONNECTING,
	/* Entered by the side that receives when it has sent the reply, by the
	 * side that sends when it has got that; see above for librdmacm.
	 * connect_out() and connect_in() return SUCCESS. put() returns SUCCESS,
	 * or AGAIN: without a credit, without room on any queue pair that is
	 * good, without a bounce buffer. When no queue pair is good any more,
	 * or put() has found that the peer has closed, `why` is set, and put()
	 * and read() return it, with its text; the state stays. Left when the
	 * peer is closed here. */
	CHANNEL_READY,
	/* Entered at an error before CHANNEL_READY: connect_out() and
	 * connect_in() return it, with its text. Also entered when this rank
	 * closes the channel while librdmacm is still about it. */
	CHANNEL_FAILED
};

/* The states of a queue pair; see message/failover.c. */
enum verbs_qp_state {
	/* Requests go by it. */
	QP_GOOD,
	/* A request has failed, or the NIC or the peer reports a failure, and
	 * the channel has other queue pairs: put() and read() use these. */
	QP_FAILED,
	/* It was set to the error state; what it had received still comes out
	 * of the completion queue. */
	QP_DRAINING,
	/* It is reset, nothing arrives by it, and a notice has told the peer
	 * which messages have arrived. When both sides have sent their notice,
	 * it is `fenced`: missing messages go over other queue pairs. */
	QP_STOPPED
};

struct verbs_qp {
	struct verbs_channel *channel;
	enum verbs_qp_state state;
	uint64_t drain_start_ms; /* when draining began */
	/* Both sides have stopped it, and what to send again is known. */
	bool fenced;
	/* Content of the peer's notice. The connection thread writes it. */
	_Atomic bool noticed;
	uint64_t received_to, received_mask;
	struct verbs_rail *rail;
	uint32_t remote_rail; /* index of the peer's rail */
	/* GID of this port; index of the peer's GID that it reaches */
	struct verbs_gid gid;
	uint32_t to_gid;
	struct ibv_qp *ibv;
	uint32_t qpn;          /* its number; 0: it is not created */
	struct rdma_cm_id *cm; /* NULL: librdmacm is not used */
	struct sockaddr_in cm_to;
	unsigned cm_tries;
	bool rdma_cm_done; /* librdmacm has connected this queue pair */
	uint32_t psn;
	/* number of requests; done: number known to be complete */
	uint32_t posted, done;
	/* signaled: number of requests up to the last one with a completion.
	 * unchecked_to: until `posted` reaches this, requests need neither a
	 * completion nor a check for room. */
	uint32_t signaled, unchecked_to;
	uint32_t remote_key;
	/* Time that its traffic so far needs, and time per KiB, in picoseconds;
	 * see verbs_pick_qp(). */
	uint64_t load_ps, ps_per_kib;
	struct verbs_qp_events events;
	uint32_t seen_done; /* for watchdog.c: `done` at its last look */
	/* for watchdog.c: how long `done` has not changed */
	uint32_t stuck_ms;
	/* for watchdog.c, iWARP: how long it has had nothing to do */
	uint32_t idle_ms;
};

/* Reference to a large message: its address, and its key for each rail of
 * the owner. */
struct verbs_reference {
	uint64_t addr;
	uint32_t key[VERBS_RAILS];
};

/* Keys of registered memory for each rail of this rank. */
struct verbs_keys {
	uint32_t local[VERBS_RAILS], remote[VERBS_RAILS];
	bool flushed; /* data that read() puts there needs a flush */
};

struct verbs_read {
	uint32_t pending;       /* bytes to read; 0: no read is under way */
	dicomm_result_t status; /* as read_status() returns it */
	/* How often it was posted. Distinguishes flushes of earlier reads from
	 * current ones. */
	uint32_t number;
	/* Queue pair that it was posted on. NULL: it is not posted; if pending,
	 * it has to be posted again. */
	const struct verbs_qp *by;
	struct verbs_reference from;
	struct verbs_keys keys;
	void *to;
};

/* Credits of a channel: a cache line in the sender's memory, which the
 * receiver writes. */
#define VERBS_CREDIT_WORDS 8
struct verbs_credit_words {
	_Atomic uint64_t word[VERBS_CREDIT_WORDS];
} __attribute__((aligned(64)));

/* Beginning of a message as it is sent: the line from its signature on. */
struct verbs_head {
	uint32_t signature, kind;
	uint64_t len;
};

/* Most bytes that are sent inline: a line without its message number. */
#define VERBS_INLINE (TP_LINE_BYTES - 8)

/* Entry of the replay buffer: a message that may have to be sent again when a
 * queue pair fails. */
struct verbs_replay_entry {
	uint64_t seq;
	/* what: number of its bounce buffer, plus 1; 0: the message is
	 * in `body`. */
	uint32_t bytes, what;
	uint32_t count; /* its number among the requests of the queue pair */
	const struct verbs_qp *by;
	struct verbs_head head;
	uint8_t body[VERBS_INLINE - sizeof(struct verbs_head)];
};

/* Prepared request for the usual message: it fits inline, needs one request,
 * and the channel has one queue pair. What is the same for all such messages is
 * filled in once. */
struct verbs_fast_put {
	/* longest body in bytes; 0: no message can be sent like this */
	uint64_t max_bytes;
	struct ibv_send_wr wr;
	struct ibv_sge sge[2]; /* head and body */
	struct verbs_head head;
	struct ibv_send_wr *bad_wr; /* written by ibv_post_send(), not read */
};

/* The connection thread creates a channel, with verbs_lock() held. From
 * CHANNEL_READY on, the channel belongs to the thread that uses the device.
 * Members that both use are atomic. */
struct verbs_channel {
	struct tp_device *dev;
	uint32_t id; /* peer's rank * TP_CLASSES + class */
	/* The parts of it that are the same in the identifier of each request,
	 * and in the immediate of each message. */
	uint64_t request;
	uint32_t imm;
	int rank;                 /* of the peer */
	bool in;                  /* this rank receives */
	_Atomic int state;        /* enum verbs_channel_state */
	_Atomic bool peer_closed; /* the peer has closed the channel */
	dicomm_result_t why;      /* why it failed; 0: it has not */
	bool reported;            /* verbs_broken() has seen the failure once */
	char text[512];           /* why it failed, in words */
	uint32_t depth;     /* requests in the send queue of each queue pair */
	uint64_t slot_mask; /* slots - 1 */
	uint64_t stride;    /* bytes from one slot of the inbox to the next */
	/* At the peer: its inbox if this rank sends, else its credit words. */
	uint64_t remote_addr;
	struct verbs_conn *conn;
	uint8_t challenge[VERBS_NONCE];
	char remote[64]; /* "HOST NICS", for log messages */

	/* Used if this rank sends. */
	struct verbs_credit_words *words;
	_Atomic uint64_t released; /* found in the credit words */
	/* value of `released` that the sending thread knows */
	uint64_t known;
	/* The credit word that the receiver writes next. */
	const _Atomic uint64_t *next_word;
	/* How often the sender still looks only at that word, before it looks
	 * at all words. */
	uint32_t credit_checks;
	/* next in the ring that dev->credit_cursor points into */
	struct verbs_channel *next_out;
	/* Number of the last message that may be sent without looking for
	 * credits. 0: the channel has failed, or the device was aborted. */
	_Atomic uint64_t limit;
	/* Address of the lines at the peer, behind their message number. */
	uint64_t lines;
	uint32_t max_inline;
	/* A message of more bytes than this is announced by a request of its
	 * own, behind its write. Over iWARP (-1) all messages are, by a
	 * SEND. */
	int64_t notify_above;
	struct ibv_send_wr wr, notify;
	struct ibv_sge sge[2], notify_sge;
	struct verbs_fast_put fast;
	/* [slot]: the replay buffer. NULL: the channel has one queue pair, or
	 * is over iWARP. */
	struct verbs_replay_entry *replay;
	/* Bit i: entry i of the replay buffer has to be sent again. */
	uint64_t resend;

	/* Used if this rank receives. */
	uint8_t *slots;
	struct ibv_mr *slots_mr[VERBS_RAILS];
	size_t slots_bytes;
	uint64_t last_arrived; /* greatest message number that has arrived */
	/* Last message that was released, and last one for which a credit was
	 * sent, by that queue pair. */
	uint64_t consumed, granted;
	const struct verbs_qp *granted_by;
	/* Number of credits sent over that queue pair, and the numbers of
	 * their requests. */
	uint32_t grants, granted_at[VERBS_CREDIT_WORDS];
	/* Number of the last message that was read. Its sender waits for
	 * a credit. */
	uint64_t last_read;
	uint32_t reads_active; /* reads that are not complete */
	bool urgent; /* the sender may wait for a credit for another reason */
	struct verbs_channel *credits_due, **credits_due_link;
	struct verbs_read reads[VERBS_READS];

	struct verbs_channel *next_closing; /* see close_channel() in verbs.c */
	/* Number of queue pairs that this side has stopped, or is stopping, and
	 * that are not fenced. */
	uint32_t unfenced;
	uint32_t qps;
	struct verbs_qp qp[];
};

static inline bool verbs_has_room(const struct verbs_qp *qp, uint32_t n)
{
	return qp->posted - qp->done + n <= qp->channel->depth;
}

/* Returns true if requests were posted after the last one with a completion. */
static inline bool verbs_has_unsignaled(const struct verbs_qp *qp)
{
	return qp->posted != qp->signaled;
}

/* Mark the channel as failed. Nothing is sent from now on. */
static inline void verbs_channel_fail(struct verbs_channel *channel,
				      dicomm_result_t why)
{
	channel->why = why;
	atomic_store(&channel->limit, 0);
}

/* Allow messages up to number `limit`. Returns false if the device was
 * aborted. */
static inline bool verbs_channel_allow(struct verbs_channel *channel,
				       uint64_t limit)
{
	/* Store the limit before the check: an abort sets `aborted`, then
	 * clears all limits. */
	atomic_store(&channel->limit, limit);
	if (!atomic_load(&channel->dev->aborted))
		return true;
	atomic_store(&channel->limit, 0);
	return false;
}

/* Returns the bits that the identifiers of all requests of a channel have
 * in common. */
static inline uint64_t verbs_request_base(const struct verbs_channel *channel)
{
	return (uint64_t)channel->id << 32 |
	       (uint64_t)channel->in << (32 + VERBS_CHANNEL_BITS);
}

/* Returns a queue pair that works, or NULL. */
struct verbs_qp *verbs_good_qp(struct verbs_channel *channel);
/* Returns true if message seq has arrived in its slot. */
bool verbs_has_arrived(const struct verbs_channel *channel, uint64_t seq);
/* Returns how many entries of the completion queue one queue pair of the
 * channel may use. */
uint32_t verbs_channel_completions(const struct verbs_channel *channel);
/* Returns success, or why the channel failed; its text becomes the last
 * error. */
dicomm_result_t verbs_channel_status(struct verbs_channel *channel);
uint64_t verbs_channel_memory(const struct verbs_channel *channel);

#endif
