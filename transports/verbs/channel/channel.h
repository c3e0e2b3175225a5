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

#define VERBS_READS 64 /* read at a time, as transport.h says */
#define VERBS_CHANNEL_BITS 20
/* Bytes of a line before its room. */
#define VERBS_LINE_HEAD offsetof(struct tp_line, room)
/* Bytes of a line that are not written by the NIC: the number. */
#define VERBS_LINE_SEQ offsetof(struct tp_line, signature)

/* Reads of a queue pair in flight at a time; others wait in its queue. */
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

enum verbs_channel_state {
	CHANNEL_IDLE,
	CHANNEL_CONNECTING,
	CHANNEL_READY,
	CHANNEL_FAILED
};

/* The life of a queue pair whose channel has others. QP_FAILED: a request
 * failed, or the NIC or the peer says so. QP_DRAINING: it was set to the
 * error state; what it had received still comes out of the completion queue.
 * QP_STOPPED: it is reset, nothing arrives by it, and a notice has told the
 * peer which messages did. When both sides have sent their notice, it is
 * `fenced`: missing messages go over other queue pairs. See
 * message/failover.c. */
enum verbs_qp_state { QP_GOOD, QP_FAILED, QP_DRAINING, QP_STOPPED };

struct verbs_qp {
	struct verbs_channel *channel;
	enum verbs_qp_state state;
	uint64_t drain_start_ms; /* when draining began */
	/* Both sides have stopped it, and what to send again is known. */
	bool fenced;
	/* The peer's notice, written by the connection thread: */
	_Atomic bool noticed;
	uint64_t received_to, received_mask;
	struct verbs_rail *rail;
	uint32_t remote_rail; /* index of the rail of the peer */
	struct verbs_gid gid; /* of this port; and index of the peer's GID */
	uint32_t to_gid;
	struct ibv_qp *ibv;
	uint32_t qpn;          /* its number; 0: it is not created */
	struct rdma_cm_id *cm; /* NULL: librdmacm is not used */
	struct sockaddr_in cm_to;
	unsigned cm_tries;
	bool rdma_cm_done; /* librdmacm has connected it */
	uint32_t psn;
	uint32_t posted, done; /* requests; done: known to be complete */
	/* signaled: requests up to the last that asked for a completion.
	 * unchecked_to: until `posted` gets there, requests need neither a
	 * completion nor a check for room. */
	uint32_t signaled, unchecked_to;
	uint32_t remote_key;
	/* Time of what it has carried, and time per KiB; see
	 * verbs_pick_qp(). */
	uint64_t load_ps, ps_per_kib;
	struct verbs_qp_events events;
	uint32_t seen_done; /* watchdog.c: `done` at its last look, */
	uint32_t stuck_ms;  /* how long that has not changed; iWARP: how long */
	uint32_t idle_ms;   /* there has been nothing to do */
};

/* Memory of a large message; its key for each rail of its owner. */
struct verbs_reference {
	uint64_t addr;
	uint32_t key[VERBS_RAILS];
};

/* Keys of registered memory, for each rail of this rank. */
struct verbs_keys {
	uint32_t local[VERBS_RAILS], remote[VERBS_RAILS];
	bool flushed; /* data that read() puts there needs a flush */
};

struct verbs_read {
	uint32_t pending;
	dicomm_result_t status;
	/* How often it was posted; tells flushes of earlier reads. */
	uint32_t number;
	/* That it was posted on; NULL: post it again. */
	const struct verbs_qp *by;
	struct verbs_reference from;
	struct verbs_keys keys;
	void *to;
};

/* Credits of a channel: a cache line of the sender's memory, written by the
 * receiver. */
#define VERBS_CREDIT_WORDS 8
struct verbs_credit_words {
	_Atomic uint64_t word[VERBS_CREDIT_WORDS];
} __attribute__((aligned(64)));

/* A message as it is sent: the line from its signature on. */
struct verbs_head {
	uint32_t signature, kind;
	uint64_t len;
};

/* Bytes that are sent inline, at most: a line without its number. */
#define VERBS_INLINE (TP_LINE_BYTES - 8)

/* A message that may have to be sent again when a queue pair fails. */
struct verbs_replay_entry {
	uint64_t seq;
	/* what: number of its bounce buffer + 1; 0: the message is in
	 * `body`. */
	uint32_t bytes, what;
	uint32_t count; /* its number among the requests of the queue pair */
	const struct verbs_qp *by;
	struct verbs_head head;
	uint8_t body[VERBS_INLINE - sizeof(struct verbs_head)];
};

/* The usual message: it fits inline, needs one request, and there is only one
 * queue pair. What is the same for all such messages is filled in once. */
struct verbs_fast_put {
	uint64_t max_bytes; /* longest body; 0: no message can be sent so */
	struct ibv_send_wr wr;
	struct ibv_sge sge[2]; /* head and body */
	struct verbs_head head;
	struct ibv_send_wr *bad_wr; /* written by ibv_post_send(), not read */
};

/* The connection thread makes a channel, with verbs_lock() held. From
 * CHANNEL_READY on it belongs to the thread that uses the device; members that
 * both use are atomic. */
struct verbs_channel {
	struct tp_device *dev;
	uint32_t id; /* peer's rank * TP_CLASSES + class */
	/* The id as it is in the identifier of each request, and in the
	 * immediate of each message. */
	uint64_t request;
	uint32_t imm;
	int rank;
	bool in;
	_Atomic int state;        /* enum verbs_channel_state */
	_Atomic bool peer_closed; /* the peer has closed the channel */
	dicomm_result_t why;      /* why it failed; 0: it has not */
	bool reported;            /* broken() has seen that once */
	char text[512];           /* the same, in words */
	uint32_t depth;     /* requests in the send queue of each queue pair */
	uint64_t slot_mask; /* slots - 1 */
	uint64_t stride;
	uint64_t remote_addr;
	struct verbs_conn *conn;
	uint8_t challenge[VERBS_NONCE];
	char remote[64]; /* "HOST NICS", for messages */

	/* the sender's */
	struct verbs_credit_words *words;
	_Atomic uint64_t released; /* found in the credit words */
	uint64_t known;            /* the same, for this thread */
	/* The credit word that the receiver writes next. */
	const _Atomic uint64_t *next_word;
	/* Looks at it that are left until all words are looked at. */
	uint32_t credit_checks;
	struct verbs_channel *next_out; /* ring of dev->credit_cursor */
	/* The last message that may be sent without looking for credits. 0: the
	 * channel has failed, or the device was aborted. */
	_Atomic uint64_t limit;
	/* Address at the peer of the lines, without their number. */
	uint64_t lines;
	uint32_t max_inline;
	/* A message of more bytes than this is announced by a request of its
	 * own, behind its write. Over iWARP (-1) all are, by a SEND. */
	int64_t notify_above;
	struct ibv_send_wr wr, notify;
	struct ibv_sge sge[2], notify_sge;
	struct verbs_fast_put fast;
	/* [slot], the replay buffer; NULL: there is only one queue pair. */
	struct verbs_replay_entry *replay;
	/* Bit i: entry i of the replay buffer is to be sent again. */
	uint64_t resend;

	/* the receiver's */
	uint8_t *slots;
	struct ibv_mr *slots_mr[VERBS_RAILS];
	size_t slots_bytes;
	uint64_t last_arrived; /* greatest number that has arrived */
	uint64_t consumed, granted;
	const struct verbs_qp *granted_by;
	/* Credits by it, and the numbers of their requests. */
	uint32_t grants, granted_at[VERBS_CREDIT_WORDS];
	/* Last message that was read; its sender waits for a credit. */
	uint64_t last_read;
	uint32_t reads_active; /* reads that are not complete */
	bool urgent; /* the sender may wait for a credit for another reason */
	struct verbs_channel *credits_due, **credits_due_link;
	struct verbs_read reads[VERBS_READS];

	struct verbs_channel *next_closing; /* see close_channel() in verbs.c */
	/* Queue pairs that this side has stopped, or is stopping, and that are
	 * not fenced. */
	uint32_t unfenced;
	uint32_t qps;
	struct verbs_qp qp[];
};

static inline bool verbs_has_room(const struct verbs_qp *qp, uint32_t n)
{
	return qp->posted - qp->done + n <= qp->channel->depth;
}

/* Is there a request behind the last one that asked for a completion? */
static inline bool verbs_has_unsignaled(const struct verbs_qp *qp)
{
	return qp->posted != qp->signaled;
}

/* The channel has failed: nothing is sent any more. */
static inline void verbs_channel_fail(struct verbs_channel *channel,
				      dicomm_result_t why)
{
	channel->why = why;
	atomic_store(&channel->limit, 0);
}

/* Allow messages up to `limit`. False: the device was aborted. */
static inline bool verbs_channel_allow(struct verbs_channel *channel,
				       uint64_t limit)
{
	/* Set it first: an abort sets `aborted`, then clears all limits. */
	atomic_store(&channel->limit, limit);
	if (!atomic_load(&channel->dev->aborted))
		return true;
	atomic_store(&channel->limit, 0);
	return false;
}

/* What the identifiers of all requests of a channel have in common. */
static inline uint64_t verbs_request_base(const struct verbs_channel *channel)
{
	return (uint64_t)channel->id << 32 |
	       (uint64_t)channel->in << (32 + VERBS_CHANNEL_BITS);
}

/* A queue pair that works; NULL: none does. */
struct verbs_qp *verbs_good_qp(struct verbs_channel *channel);
/* Has message seq arrived in its slot? */
bool verbs_has_arrived(const struct verbs_channel *channel, uint64_t seq);
/* Entries of the completion queue that one queue pair of the channel may
 * use. */
uint32_t verbs_channel_completions(const struct verbs_channel *channel);
/* SUCCESS, or why it failed; the text becomes the last error. */
dicomm_result_t verbs_channel_status(struct verbs_channel *channel);
uint64_t verbs_channel_memory(const struct verbs_channel *channel);

#endif
