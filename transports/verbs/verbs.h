/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RDMA through libibverbs.
 *
 * A lane carries the messages of one class from one rank to another. The sender
 * writes line and data into the receiver's inbox (RDMA WRITE WITH IMMEDIATE;
 * the receiver's poll() then sets line->seq); large messages are read by the
 * receiver (RDMA READ) from where they lie. Credits are written into words of
 * the sender's memory.
 *
 * A rank has a rail for each port that it uses. A lane is made of strands,
 * reliable queue pairs between a rail here and one there, which nothing else
 * uses. Each message, and each read, goes whole over one strand, so that its
 * data has landed when that strand says that it has; the next may take another.
 * Credits all go over the same one, for what lands late by another would undo
 * them (credits.c).
 *
 * Lanes are made at the first message: the sender calls the receiver by TCP,
 * a thread of the library answers (connect.c), and the connection stays open so
 * that each side learns at once when the other has gone. Some queue pairs are
 * then connected by librdmacm (cm.c).
 */
#ifndef DICOMM_TRANSPORTS_VERBS_VERBS_H
#define DICOMM_TRANSPORTS_VERBS_VERBS_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/transport.h"

#define VERBS_NONCE 16
#define VERBS_KEY 32
#define VERBS_TEXT 80
#define VERBS_READS 64  /* as the contract says */
#define VERBS_RAILS 4   /* most of a rank */
#define VERBS_STRANDS 8 /* most of a lane */
#define VERBS_GIDS 8    /* most that a port is known by */
#define VERBS_LANE_BITS 20
/* Of a line, before what it has room for. */
#define VERBS_LINE_HEAD offsetof(struct tp_line, room)
/* Of a line, before what is written there. */
#define VERBS_LINE_SEQ offsetof(struct tp_line, signature)
/* That a poll takes of a queue. */
#define VERBS_COMPLETIONS 16

/* ---- nic.c: ports, shared by the communicators of a process ---- */

/* Reads of a queue pair under way at a time; more wait in its queue. */
#define VERBS_READS_AT_ONCE 16

static inline uint8_t verbs_reads(int limit)
{
	return (uint8_t)(limit < VERBS_READS_AT_ONCE ? limit
						     : VERBS_READS_AT_ONCE);
}

enum verbs_fabric { VERBS_INFINIBAND, VERBS_ROCE, VERBS_IWARP };

#define VERBS_PORTS_MAX 64

/* One port, as far as can be told without keeping it open. */
struct verbs_port {
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t number;
	bool active;
	enum verbs_fabric fabric;
	uint64_t bytes_per_s;
	char gid[INET6_ADDRSTRLEN];
	char pci[16];   /* "": of none */
	uint32_t steps; /* from who would use it */
	char unfit[64]; /* why it is of no use; "": it may be */
};

/* One that others may know a port by. */
struct verbs_gid {
	union ibv_gid gid;
	uint8_t index;  /* in the port's table */
	uint8_t prefix; /* bits of its subnet; 0: not known, or no subnet */
};

struct verbs_mr;

struct verbs_nic {
	struct verbs_nic *next;
	int refs;
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t port;
	enum verbs_fabric fabric;
	uint64_t bytes_per_s;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *filler; /* siw */
	bool grows;            /* a completion queue can */
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	struct verbs_gid gid[VERBS_GIDS]; /* best first */
	uint32_t gids;
	uint16_t pkey_index;
	struct sockaddr_in address; /* cm.c */
	uint32_t max_inline;        /* of a queue pair; 0: not known yet */
	/* registrations; memory.c */
	pthread_mutex_t lock;
	struct verbs_mr *mrs;
	uint64_t freed_seen;
	_Atomic uint64_t registrations; /* ever made */
	/* by the thread of connect.c; see watch.c */
	_Atomic uint64_t lost_ms;  /* since when it has no link; 0: it has */
	const char *_Atomic fatal; /* why it is of no use any more */
	_Atomic bool gone;         /* all of it, not just a queue */
};

const char *verbs_fabric_name(enum verbs_fabric fabric);
void verbs_gid_text(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN]);
/* Ports that can be used, in words; false and why, if there are none. */
bool verbs_nic_find(char *why, size_t len);
/* Open as many of them as a rank may use, one at least, fastest first; which of
 * more, is up to its place and, where that makes no difference, its turn. */
dicomm_result_t verbs_nics_get(unsigned turn, const struct tp_place *place,
			       struct verbs_nic *out[VERBS_RAILS],
			       unsigned *count);
void verbs_nic_put(struct verbs_nic *nic);

/* ---- choose.c: which ports a rank uses ---- */

/* Does DICOMM_IB_HCA let that port through? NCCL's grammar: names with an
 * optional ":PORT", prefixes unless "=" comes first, "^": all but these. */
bool verbs_choose_matches(const char *spec, const char *name, unsigned port);
/* Why no port of such a NIC, by its kernel driver's name, is of use; NULL: they
 * may be. */
const char *verbs_choose_objection(enum ibv_transport_type type,
				   const char *driver,
				   const struct ibv_device_attr *attr);
/* Can its completion queues be made longer while they are in use? */
bool verbs_choose_grows(enum verbs_fabric fabric, const char *driver);
/* Which of a port's partitions its queue pairs are in, or what DICOMM_IB_PKEY
 * says. */
uint16_t verbs_choose_pkey(const uint16_t *keys, unsigned n);
/* Of the entries of a NIC, each with the bits of its subnet, the GIDs of one
 * type that others can reach that port by, best first, or that which
 * DICOMM_IB_GID_INDEX names. Returns their number. */
uint32_t verbs_choose_gids(const struct ibv_gid_entry *e, const uint8_t *prefix,
			   ssize_t n, uint8_t port, enum verbs_fabric fabric,
			   struct verbs_gid out[VERBS_GIDS]);
/* Of mine and theirs, each best first, those that reach each other: of one
 * subnet, or of one kind at least. */
void verbs_choose_pair(const struct verbs_gid *mine, uint32_t n,
		       const uint8_t (*theirs)[16], uint32_t their_n,
		       uint32_t *my_gid, uint32_t *their_gid);
/* Keep those that may be used and have a link, described in `why`; why, if
 * there are none. Returns their number. */
int verbs_choose_usable(struct verbs_port *ports, int n, char *why, size_t len);
/* Those that one rank uses: of one fabric, the same for all ranks; none that a
 * nearer one equals; the fastest, of these in its turn. Ports are paired with
 * those at the same place in another rank's list, so that like ones meet: the
 * fastest first, then by name. Returns their number. */
unsigned verbs_choose_take(struct verbs_port *ports, unsigned n, unsigned turn);

/* ---- memory.c: registrations of a NIC ---- */

struct verbs_mr {
	struct verbs_mr *next;
	uintptr_t base;
	size_t len;
	bool written; /* the NIC may write it */
	int refs;
	uint64_t id; /* of an allocation that no other has; or 0 */
	/* Of a device; NULL: of the host. */
	const struct accel *accel;
	char how[128]; /* the NIC got that */
	struct ibv_mr *mr;
};

/* To be said behind errno: why the kernel may have had no memory for a NIC,
 * which locks its queues, too; or "". */
const char *verbs_memory_hint(void);
/* Any thread. What an allocator of ours gave stays registered until it is
 * freed; other memory for as long as somebody refers to it. */
dicomm_result_t verbs_mr_get(struct verbs_nic *nic, const void *addr,
			     size_t len, bool written, struct verbs_mr **out);
/* Of a device, for as long as somebody refers to it. ERR_UNSUPPORTED, and
 * nothing logged: the NIC cannot have it. `how` as in hold_device(). */
dicomm_result_t verbs_mr_get_device(struct verbs_nic *nic,
				    const struct tp_region *region,
				    struct verbs_mr **out, char *how,
				    size_t len);
void verbs_mr_put(struct verbs_nic *nic, struct verbs_mr *mr);
void verbs_mr_free_all(struct verbs_nic *nic);

/* ---- ladder.c: memory of devices ---- */

/* In the best way that works; NULL: in none. `how` becomes which, or why. */
struct ibv_mr *verbs_ladder_climb(const struct verbs_nic *nic,
				  const struct tp_region *region,
				  unsigned access, char *how, size_t len);
/* As in struct transport. */
bool verbs_takes(unsigned n, const struct tp_region *region,
		 const struct tp_place *place, struct tp_taker *out);

/* ---- address.c: what ranks tell each other ---- */

/* In a tp_blob. */
struct verbs_address {
	uint32_t magic, version;
	uint64_t check; /* of the bytes, with 0 here */
	uint8_t nonce[VERBS_NONCE];
	uint32_t rank, ranks;
	uint32_t slots, eager_bytes;
	uint32_t fabric, rails;
	char listen[VERBS_TEXT]; /* where to call it */
	char host[40], nic[24];  /* for messages */
};

/* One side of a strand. No padding. */
struct verbs_end {
	/* the queue pair, and what its port is known by; of one that cm.c
	 * connects: where its NIC listens, as an IPv4 address and, in lid, the
	 * port */
	uint8_t gid[VERBS_GIDS][16];
	uint32_t gids;
	/* of an answer: those that the strand goes between, its own and of the
	 * call */
	uint16_t by_gid, to_gid;
	uint16_t lid, global; /* global: it is reached by its GID alone */
	uint32_t qpn, psn, mtu;
	uint32_t reads; /* that it serves at a time */
	uint32_t rkey;  /* of what the other side writes */
	uint32_t rail, to_rail;
	uint64_t bytes_per_s; /* of its port */
};

/* The call that makes a lane, and its answer. No padding. */
struct verbs_card {
	uint32_t magic, version;
	uint32_t type, status;
	uint8_t to[VERBS_NONCE], from[VERBS_NONCE];
	uint8_t challenge[VERBS_NONCE]; /* of the call */
	uint32_t from_rank, to_rank, ranks, lane_class;
	uint32_t strands;
	uint32_t strand; /* of a notice */
	struct verbs_end end[VERBS_STRANDS];
	/* of a notice: the messages that have come are all up to the first
	 * number, and those whose bits are set after it */
	uint64_t come_to, come_mask;
	/* what the other side writes: inbox of the one who answers, words for
	 * credits of the one who calls */
	uint64_t addr;
	uint32_t stride, slots;
	char why[96];
	uint8_t proof[32];
};

enum { VERBS_CALL = 1, VERBS_ANSWER, VERBS_NOTICE };

struct tp_device;
void verbs_address_make(const struct tp_device *dev, struct tp_blob *blob);
bool verbs_address_parse(const struct tp_blob *blob, struct verbs_address *a,
			 char *why, size_t len);
/* Fill in head and proof. */
void verbs_card_seal(struct verbs_card *card, const uint8_t key[VERBS_KEY]);
bool verbs_card_is_genuine(const struct verbs_card *card,
			   const uint8_t key[VERBS_KEY]);

/* ---- rail.c: what a rank has of a port ---- */

/* Receives that are posted in one go. */
#define VERBS_BATCH 32

struct verbs_lane;
struct verbs_rail {
	struct verbs_nic *nic;
	struct ibv_comp_channel *channel; /* of the queue's events */
	uint32_t unacknowledged;          /* events */
	struct ibv_cq *cq;
	struct ibv_srq *srq;          /* or NULL: each queue pair has its own */
	uint32_t shared, shared_most; /* receives there */
	int cqe;
	uint32_t cqe_reserved; /* what strands may put there at a time */
	uint32_t batch_room;   /* for receives to be posted again */
	struct ibv_recv_wr batch[VERBS_BATCH];
	struct ibv_sge batch_sge[VERBS_BATCH];
	uint32_t *notes; /* iWARP: bodies of the SENDs */
	struct ibv_mr *notes_mr;
	uint32_t notes_count, notes_most;
	struct ibv_mr *words_mr, *pool_mr; /* of the device's memory */
	struct verbs_lane *mirror;         /* of the NIC to itself; or NULL */
	uint32_t flushes;                  /* under way */
	/* connect.c */
	struct verbs_conn *events;
	struct rdma_cm_id *cm; /* listens, too; or NULL */
};

/* Of rail->nic, which goes with it. */
dicomm_result_t verbs_rail_open(struct tp_device *dev, struct verbs_rail *rail);
void verbs_rail_close(struct verbs_rail *rail);
/* Has its NIC gone, while another has not? It takes no memory any more, and
 * brings none. */
bool verbs_rail_has_gone(const struct tp_device *dev,
			 const struct verbs_rail *rail);
/* For messages: "mlx5_0:1,mlx5_1:1", as far as there is room. */
void verbs_rail_names(const struct tp_device *dev, char *text, size_t len);
/* Room in the completion queue for n more. */
dicomm_result_t verbs_rail_reserve(struct verbs_rail *rail, uint32_t n);
/* Receives for the messages of one more lane; of that queue pair, where none
 * are shared. */
dicomm_result_t verbs_rail_receives(struct verbs_rail *rail, struct ibv_qp *qp,
				    uint32_t n);
/* What has come with a message over iWARP, where receives are not alike: the
 * one that it took is the batch's next. */
uint32_t verbs_rail_take(struct verbs_rail *rail, uint64_t id);
void verbs_rail_post_batch(struct verbs_rail *rail, struct ibv_qp *qp);

/* What has come with a message; then it is received. */
static inline uint32_t verbs_rail_note(struct verbs_rail *rail,
				       const struct ibv_wc *wc)
{
	return __builtin_expect(rail->notes != NULL, 0)
		       ? verbs_rail_take(rail, wc->wr_id)
		       : wc->imm_data;
}

/* Its receive is posted again when there is a batch of them: true. */
static inline bool verbs_rail_received(struct verbs_rail *rail)
{
	return __builtin_expect(--rail->batch_room == 0, 0);
}

/* ---- lane.c: one direction of one class between two ranks ---- */

enum verbs_state { LANE_IDLE, LANE_CONNECTING, LANE_READY, LANE_FAILED };

struct verbs_conn;
struct verbs_lane;
struct rdma_cm_id;

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
	uint32_t gid, to_gid; /* of those of either port */
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
	uint32_t stuck_ms;  /* and since when it is that */
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

/* Could the sender wait for credits, and nobody tell it of them? */
static inline bool verbs_must_tell(const struct verbs_lane *lane)
{
	return lane->urgent || lane->referred > lane->told;
}

static inline bool verbs_has_room(const struct verbs_strand *s, uint32_t n)
{
	return s->posted - s->done + n <= s->lane->depth;
}

/* Is there a request of whose end nobody will tell? */
static inline bool verbs_is_silent(const struct verbs_strand *s)
{
	return s->posted != s->signaled;
}

/* May message seq go, as far as known? */
static inline bool verbs_is_allowed(const struct verbs_lane *lane, uint64_t seq)
{
	return seq <= atomic_load_explicit(&lane->limit, memory_order_relaxed);
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

/* ---- loss.c: queue pairs that are lost ---- */

/* One line about a completion that failed. Either the strand is lost, and its
 * lane goes on without it; or that sets lane->why and text. */
void verbs_strand_broken(struct verbs_strand *s, const struct ibv_wc *wc,
			 const char *operation, uint64_t bytes);
/* The same without a completion. */
void verbs_strand_give_up(struct verbs_strand *s, dicomm_result_t why,
			  const char *what, const char *hint);
/* One that is good; NULL: none is. */
struct verbs_strand *verbs_strand_good(struct verbs_lane *lane);
/* A notice, with the lock. */
void verbs_loss_noticed(struct verbs_lane *lane, const struct verbs_card *card);
/* Go on without the strands that are lost. */
void verbs_loss_repair(struct tp_device *dev);
/* Is there anything left of that to be done? */
bool verbs_loss_pending(const struct verbs_lane *lane);

/* ---- watch.c: what the NICs do not tell by a completion ---- */

/* Events of a NIC, when its async_fd is readable; with the lock. False: there
 * will be no more. */
bool verbs_watch_events(struct verbs_nic *nic);
/* As in struct transport; now and then while nothing moves. */
dicomm_result_t verbs_broken(struct tp_device *dev, int *peer);

/* ---- rest.c: sleeping until a NIC has something ---- */

/* Before its completion queue, and after it; the end is just before that is
 * destroyed, which waits until all events are acknowledged. */
dicomm_result_t verbs_rest_open(struct verbs_rail *rail);
void verbs_rest_end(struct verbs_rail *rail);
void verbs_rest_close(struct verbs_rail *rail);
/* As in struct transport. */
void verbs_rest(struct tp_device *dev, unsigned us);

/* ---- mirror.c: what a NIC has written to a device is there ---- */

/* Connect the NIC to itself, unless it is. */
dicomm_result_t verbs_mirror_open(struct tp_device *dev,
				  struct verbs_rail *rail);
void verbs_mirror_close(struct verbs_rail *rail);
/* Flush what a read has brought, by the NIC that did. */
dicomm_result_t verbs_mirror_flush(const struct verbs_lane *lane,
				   uint32_t slot);
/* Is it the completion of a flush? */
static inline bool verbs_is_flush(const struct verbs_rail *rail,
				  const struct ibv_wc *wc)
{
	return rail->mirror && rail->mirror->strand[0].qpn == wc->qp_num;
}
/* Then: of which read; NULL: of one that has gone, or is made again. */
struct verbs_read *verbs_mirror_read(struct tp_device *dev,
				     const struct ibv_wc *wc,
				     struct verbs_lane **lane);

/* ---- traffic.c: what goes over lanes, and comes ---- */

/* Polls that find nothing, to one that looks for credits: who waits for them is
 * many messages ahead, and put() looks itself. */
#define VERBS_POLLS_PER_LOOK 4

/* Messages too long to go inline are sent from here. */
struct verbs_pool {
	uint8_t *memory;
	uint32_t count, bytes; /* of one */
	uint16_t *spare;
	uint32_t nspare;
	const struct verbs_strand **user; /* [buffer]; NULL: spare */
};

/* At the first lane to send on. */
dicomm_result_t verbs_pool_open(struct tp_device *dev);
void verbs_pool_close(struct tp_device *dev);
void verbs_pool_give(struct verbs_pool *pool, uint32_t buffer);

/* The lane's state as a status, with its words as the last error. */
dicomm_result_t verbs_state_of(struct verbs_lane *lane);
/* The next `bytes`: which strand? One with room, if there is one. */
struct verbs_strand *verbs_pick(struct verbs_lane *lane, uint64_t bytes);
/* What the identifiers of all its requests share. */
uint64_t verbs_request_of(const struct verbs_lane *lane);
/* In an identifier, from below: bytes; what; the lane; and the request's number
 * among those of its strand, of which the lower bits do that there is room for,
 * since they are more than a queue is long. */
#define VERBS_WHAT_SHIFT 21
#define VERBS_COUNT_SHIFT 53
#define VERBS_COUNT_MASK (UINT32_MAX >> (VERBS_COUNT_SHIFT - 32))

/* Of the request that has so many before it; what and bytes are for whoever
 * looks at its completion. */
static inline uint64_t verbs_request_id(const struct verbs_lane *lane,
					uint32_t posted, uint32_t what,
					uint64_t bytes)
{
	return (uint64_t)posted << VERBS_COUNT_SHIFT | lane->request |
	       (uint64_t)what << VERBS_WHAT_SHIFT | bytes;
}

/* Every so many requests one is signalled, so that the send queue can be
 * emptied; half of it may wait for that. */
unsigned verbs_signal_now(struct verbs_strand *s, uint32_t n, bool must);
dicomm_result_t verbs_post(struct verbs_strand *s, struct ibv_send_wr *wr,
			   uint32_t n);
/* A request that completes when all before it have; moves no data. */
dicomm_result_t verbs_probe(struct verbs_strand *s);
/* Once more, over any strand; AGAIN: none has room. */
dicomm_result_t verbs_send_again(struct verbs_lane *lane,
				 struct verbs_kept *kept);
dicomm_result_t verbs_read_again(struct verbs_lane *lane,
				 struct verbs_read *read);
/* What has completed; to poll() without what else that does. True: something
 * has. */
bool verbs_complete(struct tp_device *dev);
/* The same after an abort, by any thread, with the lock: lanes stay. */
bool verbs_complete_aborted(struct tp_device *dev);

/* As in struct transport. */
dicomm_result_t verbs_put(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			  uint32_t signature, enum tp_kind kind,
			  const void *body, uint64_t len);
bool verbs_offer(struct tp_peer *peer, const void *addr, uint64_t len,
		 enum tp_want want, struct tp_ref *ref);
dicomm_result_t verbs_map(struct tp_peer *peer, const struct tp_ref *ref,
			  uint64_t len, const void **ptr);
dicomm_result_t verbs_read(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			   const struct tp_ref *ref, uint64_t offset, void *dst,
			   uint64_t len);
dicomm_result_t verbs_arrived(struct tp_peer *peer, enum tp_class c,
			      uint64_t seq);
bool verbs_poll(struct tp_device *dev);

/* ---- credits.c: what a receiver is done with ---- */

/* To be told when there is time. */
void verbs_untold_add(struct verbs_lane *lane);
void verbs_untold_remove(struct verbs_lane *lane);
void verbs_untold_tell(struct tp_device *dev);
/* A poll has found nothing: there is time. */
void verbs_untold_idle(struct tp_device *dev);

/* Credits of a lane to send on are looked for, from its making to its end. */
void verbs_credits_begin(struct verbs_lane *lane);
void verbs_credits_end(struct verbs_lane *lane);
/* What has been written into the sender's memory: of one lane; of all. True:
 * there was something new. */
bool verbs_credits_take(struct verbs_lane *lane);
/* Of one, as far as it has come in the order in which it was told. */
void verbs_credits_follow(struct verbs_lane *lane);
bool verbs_credits_take_all(struct tp_device *dev);

/* Later ones may have overtaken those that are expected, or come by another
 * strand: after so many looks in vain, all words are looked at. */
#define VERBS_LOOKS 16

/* Is there something to take, or might there be? */
static inline bool verbs_credits_look(struct verbs_lane *lane)
{
	return atomic_load_explicit(lane->expected, memory_order_relaxed) >
		       lane->known ||
	       !--lane->looks;
}

/* As in struct transport. */
dicomm_result_t verbs_release(struct tp_peer *peer, enum tp_class c,
			      uint64_t seq);
void verbs_flush(struct tp_device *dev);

/* ---- verbs.c ---- */

struct tp_hold {
	struct tp_hold *next;
	struct verbs_mr *mr[VERBS_RAILS]; /* NULL: the rail had gone */
	bool flushed;                     /* what read() has put there */
};

/* The keys of that memory; false if it is not held. They may be those of
 * another hold, which is dropped at any time; who asks has one of its own. */
bool verbs_held(struct tp_device *dev, const void *addr, uint64_t len,
		bool written, struct verbs_keys *keys);

struct tp_device {
	struct tp_config config;
	uint32_t eager_bytes, stride;
	_Atomic bool aborted;
	uint64_t looked_ms;                  /* when watch.c did */
	struct ibv_wc wc[VERBS_COMPLETIONS]; /* of poll() */
	/* Polls that may look at the first queue alone; and, before one that
	 * does everything, how often they may look for credits only. None
	 * where there is something rare to do; of what another thread has,
	 * they hear that late. */
	int plain, looks;
	_Atomic uint32_t reads; /* in flight */
	_Atomic bool repair;    /* there is work for loss.c */
	uint64_t max_read;      /* bytes of one */
	uint32_t rails;
	struct verbs_rail rail[VERBS_RAILS];
	unsigned idle; /* polls that found nothing */
	struct verbs_pool pool;
	struct verbs_lane *_Atomic *in, *_Atomic *out; /* [id] */
	uint32_t lanes;                                /* length of both */
	/* [id]: credits, written by receivers; and one that nobody reads. */
	struct verbs_words *words;
	/* The one whose credits were looked for last, of those to send on. */
	struct verbs_lane *looked_at;
	int busy; /* polls that find something, to one that looks around */
	struct verbs_lane *untold;
	struct tp_peer *peers;
	struct verbs_lane *late; /* closed, but for what the kernel holds up */
	atomic_flag holding;     /* guards holds, for a few instructions */
	struct tp_hold *holds;

	/* connect.c */
	struct tp_device *next;
	uint8_t nonce[VERBS_NONCE];
	char listen[VERBS_TEXT];
	struct verbs_conn *listener;
	bool served; /* by the thread that connects */
	char host[40];
};

/* The next poll leaves nothing out. */
static inline void verbs_poll_all(struct tp_device *dev)
{
	dev->plain = dev->looks = 0;
}

struct tp_peer {
	struct tp_device *dev;
	int rank;
	struct verbs_address address;
	struct verbs_lane *out[TP_CLASSES], *in[TP_CLASSES];
	struct tp_peer *next;
};

/* ---- connect.c: calls and answers ---- */

/* Guards the devices of the process and how lanes come and go. */
void verbs_lock(void);
void verbs_unlock(void);
/* Listen for calls; fills in nonce and listen. */
dicomm_result_t verbs_connect_open(struct tp_device *dev);
/* No call comes in any more. */
void verbs_connect_shut(struct tp_device *dev);
/* The last lane of a device is closed. */
void verbs_connect_close(struct tp_device *dev);
/* Begin to make a lane to a peer. */
dicomm_result_t verbs_connect_call(struct tp_device *dev,
				   const struct verbs_address *to,
				   enum tp_class c, struct verbs_lane **out);
/* With the lock: no news of it any more; the other side is told. */
void verbs_connect_forget(struct verbs_lane *lane);

/* With the lock: tell the other side that this one has stopped a strand, and
 * which messages have come; false: it has left. */
bool verbs_connect_notice(struct verbs_lane *lane, uint32_t strand,
			  uint64_t come_to, uint64_t come_mask);

/* News from cm.c, with the lock. The strand that waits to be connected, whose
 * lane from then on takes messages: */
struct verbs_strand *verbs_connect_awaited(const uint8_t challenge[VERBS_NONCE],
					   unsigned strand);
void verbs_connect_done(struct verbs_strand *s);
void verbs_connect_failed(struct verbs_strand *s, const char *what,
			  const char *why);

/* ---- cm.c: queue pairs by librdmacm; with the lock, but for the first two */

/* Does it connect those of such NICs? */
bool verbs_cm_is_used(enum verbs_fabric fabric);

/* An IPv4 address of that port, which it needs; false: there is none. */
bool verbs_cm_find_address(const char *name, uint8_t port,
			   struct sockaddr_in *out);
/* *fd is readable when there is something for verbs_cm_events(). */
dicomm_result_t verbs_cm_start(int *fd);
void verbs_cm_stop(void);
void verbs_cm_forget(void); /* in the child of a fork */
void verbs_cm_events(void);
dicomm_result_t verbs_cm_listen(struct verbs_rail *rail);
void verbs_cm_end(const struct verbs_rail *rail, struct verbs_end *end);
dicomm_result_t verbs_cm_call(struct verbs_strand *s,
			      const struct verbs_end *end);
void verbs_cm_close(struct rdma_cm_id *id);

#endif
