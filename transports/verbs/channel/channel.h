/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels, each one direction of one class between two ranks; their queue
 * pairs. */
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

#define VERBS_READS 64 /* as the contract says */
#define VERBS_CHANNEL_BITS 20
/* Of a line, before what it has room for. */
#define VERBS_LINE_HEAD offsetof(struct tp_line, room)
/* Of a line, before what is written there. */
#define VERBS_LINE_SEQ offsetof(struct tp_line, signature)

/* Reads of a queue pair under way at a time; more wait in its queue. */
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

/*
 * A queue pair that fails while its channel has others is LOST, then ENDING:
 * what it has brought until then still comes out of its NIC; then STOPPED: from
 * then on nothing that it carries lands here, and the other side is told so by
 * a notice, together with what has come. Once it has sent its own notice, what
 * has not come goes over another queue pair; see loss.c.
 */
enum verbs_qp_state { QP_GOOD, QP_FAILED, QP_DRAINING, QP_STOPPED };

struct verbs_qp {
	struct verbs_channel *channel;
	enum verbs_qp_state state;
	uint64_t ending_ms; /* since when */
	bool fenced;        /* by both sides; what is sent again is known */
	/* the notice of the other side, by the thread that connects: */
	_Atomic bool noticed;
	uint64_t received_to, received_mask;
	struct verbs_rail *rail;
	uint32_t remote_rail; /* of the other rank */
	struct verbs_gid gid; /* its port's, and which of the other's */
	uint32_t to_gid;
	struct ibv_qp *ibv;
	uint32_t qpn;          /* its number; 0: there is none */
	struct rdma_cm_id *cm; /* or NULL */
	struct sockaddr_in cm_to;
	unsigned cm_tries;
	bool rdma_cm_done; /* cm.c has connected it */
	uint32_t psn;
	uint32_t posted, done; /* work requests; done: as far as known */
	/* As far as a signal has been asked for; and as far as a request needs
	 * none, nor a look at the room. */
	uint32_t signaled, unchecked_to;
	uint32_t remote_key;
	uint64_t load_ps, ps_per_kib; /* what it has carried, and would cost */
	struct verbs_qp_events events;
	uint32_t seen_done; /* watch.c: done, at the last look, */
	uint32_t stuck_ms;  /* and since when it is that; iWARP: since when */
	uint32_t idle_ms;   /* it has nothing to do */
};

/* Where large messages lie; the key is that of the rail which is read by. */
struct verbs_reference {
	uint64_t addr;
	uint32_t key[VERBS_RAILS];
};

/* Of memory that is held, for each rail. */
struct verbs_keys {
	uint32_t local[VERBS_RAILS], remote[VERBS_RAILS];
	bool flushed; /* what read() has put there */
};

struct verbs_read {
	uint32_t pending;
	dicomm_result_t status;
	uint32_t number;           /* how often it was posted */
	const struct verbs_qp *by; /* NULL: to be posted again */
	struct verbs_reference from;
	struct verbs_keys keys;
	void *to;
};

/* For credits of a channel: a cache line. */
#define VERBS_WORDS 8
struct verbs_credit_words {
	_Atomic uint64_t word[VERBS_WORDS];
} __attribute__((aligned(64)));

/* What a message is on the wire: a line from its signature on. */
struct verbs_head {
	uint32_t signature, kind;
	uint64_t len;
};

/* Most that goes inline: what a line holds. */
#define VERBS_INLINE (TP_LINE_BYTES - 8)

/* A message that may have to be sent again. */
struct verbs_replay_entry {
	uint64_t seq;
	uint32_t bytes, what; /* buffer of the pool + 1; 0: it is here */
	uint32_t count;       /* its number among the queue pair's requests */
	const struct verbs_qp *by;
	struct verbs_head head;
	uint8_t body[VERBS_INLINE - sizeof(struct verbs_head)];
};

/* The common message goes inline, whole, by one request over the only queue
 * pair. What is the same in all of them is filled in once. */
struct verbs_fast_put {
	uint64_t most; /* bytes; 0: none goes so */
	struct ibv_send_wr wr;
	struct ibv_sge sge[2]; /* head, and what the user gave */
	struct verbs_head head;
	struct ibv_send_wr *refused; /* of no use: there is only one */
};

/*
 * Made by the thread that connects, with the lock held; from LANE_READY on of
 * the thread that uses the device. What both use is atomic.
 */
struct verbs_channel {
	struct tp_device *dev;
	uint32_t id; /* rank * TP_CLASSES + class */
	/* That, as it is in each request and in what goes with a message. */
	uint64_t request;
	uint32_t imm;
	int rank;
	bool in;
	_Atomic int state;        /* enum verbs_state */
	_Atomic bool peer_closed; /* the other side has closed it */
	dicomm_result_t why;      /* of LANE_FAILED; or it is broken */
	bool reported;            /* that it is; see verbs_broken() */
	char text[512];           /* in words */
	uint32_t depth;           /* of each queue */
	uint64_t slot_mask;       /* slots - 1 */
	uint64_t stride;
	uint64_t remote_addr;
	struct verbs_conn *conn;
	uint8_t challenge[VERBS_NONCE];
	char remote[64]; /* "host nic gid", for messages */

	/* sender's */
	struct verbs_credit_words *words;
	_Atomic uint64_t released;         /* as far as looked */
	uint64_t known;                    /* the same, for who looks */
	const _Atomic uint64_t *next_word; /* the word that comes next */
	uint32_t credit_checks;            /* left, at that one alone */
	struct verbs_channel *next_out;    /* in the ring of dev->looked_at */
	/* The last message that may go without another look: as far as known
	 * credits allow; 0 where `why` is set, and from an abort on. */
	_Atomic uint64_t limit;
	uint64_t lines; /* over there, from what is written of them */
	uint32_t max_inline;
	/* What tells of a message behind its write, where that does not do so
	 * itself: of more than so many bytes. Over iWARP always, by a SEND. */
	int64_t notify_above;
	struct ibv_send_wr wr, notify;
	struct ibv_sge sge[2], notify_sge;
	struct verbs_fast_put fast;
	struct verbs_replay_entry *replay; /* [slot]; of several queue pairs */
	uint64_t resend; /* slots of it: to be sent once more */

	/* receiver's */
	uint8_t *slots;
	struct ibv_mr *slots_mr[VERBS_RAILS];
	size_t slots_bytes;
	uint64_t last; /* arrived */
	uint64_t consumed, granted;
	const struct verbs_qp *granted_by;
	uint32_t grants, granted_at[VERBS_WORDS]; /* by it; its requests */
	uint64_t
		last_read; /* last that was read: its sender waits for `told` */
	uint32_t reads_active; /* reads that have not ended */
	bool urgent;           /* it may wait for another reason */
	struct verbs_channel *credits_due, **credits_due_link;
	struct verbs_read reads[VERBS_READS];

	struct verbs_channel *next_closing; /* see verbs_close() */
	uint32_t
		unfenced; /* queue pairs that end, or that only this side has */
	uint32_t qps;
	struct verbs_qp qp[];
};

static inline bool verbs_has_room(const struct verbs_qp *qp, uint32_t n)
{
	return qp->posted - qp->done + n <= qp->channel->depth;
}

/* Is there a request of whose end nobody will tell? */
static inline bool verbs_has_unsignaled(const struct verbs_qp *qp)
{
	return qp->posted != qp->signaled;
}

/* It carries nothing any more. */
static inline void verbs_channel_fail(struct verbs_channel *channel,
				      dicomm_result_t why)
{
	channel->why = why;
	atomic_store(&channel->limit, 0);
}

/* Messages up to that one may go. False: none, for an abort came before. */
static inline bool verbs_channel_allow(struct verbs_channel *channel,
				       uint64_t limit)
{
	/* Before the look whether an abort has set it. */
	atomic_store(&channel->limit, limit);
	if (!atomic_load(&channel->dev->aborted))
		return true;
	atomic_store(&channel->limit, 0);
	return false;
}

/* What the identifiers of all requests of a channel share. */
static inline uint64_t verbs_request_base(const struct verbs_channel *channel)
{
	return (uint64_t)channel->id << 32 |
	       (uint64_t)channel->in << (32 + VERBS_CHANNEL_BITS);
}

/* One that is good; NULL: none is. */
struct verbs_qp *verbs_good_qp(struct verbs_channel *channel);
/* Is message seq in its slot, or was it? */
bool verbs_has_arrived(const struct verbs_channel *channel, uint64_t seq);
/* Entries of the completion queue that one of its queue pairs may need. */
uint32_t verbs_channel_completions(const struct verbs_channel *channel);
/* Its state as a status, with its words as the last error. */
dicomm_result_t verbs_channel_status(struct verbs_channel *channel);
uint64_t verbs_channel_memory(const struct verbs_channel *channel);

#endif
