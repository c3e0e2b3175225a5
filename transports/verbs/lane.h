/* SPDX-License-Identifier: BSD-3-Clause */
/* Lanes, each one direction of one class between two ranks; their strands. */
#ifndef DICOMM_TRANSPORTS_VERBS_LANE_H
#define DICOMM_TRANSPORTS_VERBS_LANE_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/address.h"
#include "transports/verbs/nic.h"

#define VERBS_READS 64 /* as the contract says */
#define VERBS_LANE_BITS 20
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
struct verbs_lane;
struct verbs_rail;

enum verbs_state { LANE_IDLE, LANE_CONNECTING, LANE_READY, LANE_FAILED };

/*
 * A strand that fails while its lane has others is LOST, then ENDING: what it
 * has brought until then still comes out of its NIC; then STOPPED: from then on
 * nothing that it carries lands here, and the other side is told so by a
 * notice, together with what has come. Once it has sent its own notice, what
 * has not come goes over another strand; see loss.c.
 */
enum verbs_strand_state {
	STRAND_GOOD,
	STRAND_LOST,
	STRAND_ENDING,
	STRAND_STOPPED
};

struct verbs_strand {
	struct verbs_lane *lane;
	enum verbs_strand_state state;
	uint64_t ending_ms; /* since when */
	bool fenced;        /* by both sides; what is sent again is known */
	/* the notice of the other side, by the thread that connects: */
	_Atomic bool noticed;
	uint64_t come_to, come_mask;
	struct verbs_rail *rail;
	uint32_t to_rail;     /* of the other rank */
	struct verbs_gid gid; /* its port's, and which of the other's */
	uint32_t to_gid;
	struct ibv_qp *qp;
	uint32_t qpn;          /* its number; 0: there is none */
	struct rdma_cm_id *cm; /* or NULL */
	struct sockaddr_in cm_to;
	unsigned cm_tries;
	bool joined; /* cm.c has connected it */
	uint32_t psn;
	uint32_t posted, done; /* work requests; done: as far as known */
	/* As far as a signal has been asked for; and as far as a request needs
	 * none, nor a look at the room. */
	uint32_t signaled, easy;
	uint32_t remote_key;
	uint64_t load_ps, ps_per_kib; /* what it has carried, and would cost */
	const char *_Atomic event;    /* what the NIC said of its queue pair */
	bool last; /* and that it brings no more messages; with the lock */
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
	uint32_t number;               /* how often it was posted */
	const struct verbs_strand *by; /* NULL: to be posted again */
	struct verbs_reference from;
	struct verbs_keys keys;
	void *to;
};

/* For credits of a lane: a cache line. */
#define VERBS_WORDS 8
struct verbs_words {
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
struct verbs_kept {
	uint64_t seq;
	uint32_t bytes, what; /* buffer of the pool + 1; 0: it is here */
	uint32_t count;       /* its number among the strand's requests */
	const struct verbs_strand *by;
	struct verbs_head head;
	uint8_t body[VERBS_INLINE - sizeof(struct verbs_head)];
};

/* The common message goes inline, whole, by one request over the only strand.
 * What is the same in all of them is filled in once. */
struct verbs_brief {
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
struct verbs_lane {
	struct tp_device *dev;
	uint32_t id; /* rank * TP_CLASSES + class */
	/* That, as it is in each request and in what goes with a message. */
	uint64_t request;
	uint32_t imm;
	int rank;
	bool in;
	_Atomic int state;   /* enum verbs_state */
	_Atomic bool left;   /* the other side has closed it */
	dicomm_result_t why; /* of LANE_FAILED; or it is broken */
	bool reported;       /* that it is; see verbs_broken() */
	char text[512];      /* in words */
	uint32_t depth;      /* of each queue */
	uint64_t slot_mask;  /* slots - 1 */
	uint64_t stride;
	uint64_t remote_addr;
	struct verbs_conn *conn;
	uint8_t challenge[VERBS_NONCE];
	char remote[64]; /* "host nic gid", for messages */

	/* sender's */
	struct verbs_words *words;
	_Atomic uint64_t released;        /* as far as looked */
	uint64_t known;                   /* the same, for who looks */
	const _Atomic uint64_t *expected; /* the word that comes next */
	uint32_t looks;                   /* left, at that one alone */
	struct verbs_lane *next_out;      /* in the ring of dev->looked_at */
	/* The last message that may go without another look: as far as known
	 * credits allow; 0 where `why` is set, and from an abort on. */
	_Atomic uint64_t limit;
	uint64_t lines; /* over there, from what is written of them */
	uint32_t max_inline;
	/* What tells of a message behind its write, where that does not do so
	 * itself: of more than so many bytes. Over iWARP always, by a SEND. */
	int64_t note_above;
	struct ibv_send_wr wr, note;
	struct ibv_sge sge[2], note_sge;
	struct verbs_brief brief;
	struct verbs_kept *kept; /* [slot]; of several strands */
	uint64_t again;          /* slots of it: to be sent once more */

	/* receiver's */
	uint8_t *slots;
	struct ibv_mr *slots_mr[VERBS_RAILS];
	size_t slots_bytes;
	uint64_t last; /* arrived */
	uint64_t freed, told;
	const struct verbs_strand *told_by;
	uint32_t tells, told_at[VERBS_WORDS]; /* by it; its requests */
	uint64_t referred; /* last that was read: its sender waits for `told` */
	uint32_t reading;  /* reads that have not ended */
	bool urgent;       /* it may wait for another reason */
	struct verbs_lane *untold, **untold_link;
	struct verbs_read reads[VERBS_READS];

	struct verbs_lane *next_late; /* see verbs_close() */
	uint32_t unfenced; /* strands that end, or that only this side has */
	uint32_t strands;
	struct verbs_strand strand[];
};

static inline bool verbs_has_room(const struct verbs_strand *s, uint32_t n)
{
	return s->posted - s->done + n <= s->lane->depth;
}

/* Is there a request of whose end nobody will tell? */
static inline bool verbs_is_silent(const struct verbs_strand *s)
{
	return s->posted != s->signaled;
}

/* It carries nothing any more. */
static inline void verbs_lane_end(struct verbs_lane *lane, dicomm_result_t why)
{
	lane->why = why;
	atomic_store(&lane->limit, 0);
}

struct verbs_lane *verbs_lane_new(struct tp_device *dev, int rank, uint32_t c,
				  bool in, uint32_t strands);
/* Queue pairs in INIT, over the rails that the card's ends name; their numbers
 * in the card. */
dicomm_result_t verbs_lane_open(struct verbs_lane *lane,
				struct verbs_card *card);
/* Inbox, for a receiver. */
dicomm_result_t verbs_lane_inbox(struct verbs_lane *lane,
				 struct verbs_card *card);
/* Messages up to that one may go. False: none, for an abort came before. */
bool verbs_lane_allow(struct verbs_lane *lane, uint64_t limit);
/* What the other side has said of its own; then connect the queue pairs, unless
 * cm.c does. One that cannot be is lost, unless it is the last. */
dicomm_result_t verbs_lane_meet(struct verbs_lane *lane,
				const struct verbs_card *remote);
dicomm_result_t verbs_lane_connect(struct verbs_lane *lane,
				   const struct verbs_card *remote);
/* Nothing in flight lands any more. */
void verbs_lane_stop(struct verbs_lane *lane);
void verbs_lane_close(struct verbs_lane *lane);
/* Each strand carries as much as both its ports can. Where all are alike, each
 * pair of ranks begins with another. */
void verbs_lane_share(struct verbs_lane *lane, const struct verbs_card *remote);

/* Is message seq in its slot, or was it? */
bool verbs_has_come(const struct verbs_lane *lane, uint64_t seq);
uint64_t verbs_lane_memory(const struct verbs_lane *lane);

#endif
