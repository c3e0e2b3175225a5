/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RDMA through libibverbs.
 *
 * A lane carries the messages of one class from one rank to another: one
 * reliable queue pair, which nothing else uses. The sender writes line and data
 * into the receiver's inbox (RDMA WRITE WITH IMMEDIATE; the receiver's poll()
 * then sets line->seq); large messages are read by the receiver (RDMA READ)
 * from where they lie. Credits are written into a word of the sender's memory.
 *
 * Lanes are made at the first message: the sender calls the receiver by TCP,
 * a thread of the library answers (connect.c), and the connection stays open so
 * that each side learns at once when the other has gone. Queue pairs of iWARP
 * are then connected by librdmacm (cm.c).
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
#define VERBS_READS 64 /* as the contract says */

/* ---- nic.c: ports, shared by the communicators of a process ---- */

enum verbs_fabric { VERBS_INFINIBAND, VERBS_ROCE, VERBS_IWARP };

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
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	union ibv_gid gid;
	uint8_t gid_index;
	struct sockaddr_in address; /* iWARP */
	uint32_t max_inline;        /* of a queue pair; 0: not known yet */
	/* registrations; memory.c */
	pthread_mutex_t lock;
	struct verbs_mr *mrs;
	uint64_t freed_seen;
	_Atomic uint64_t registrations; /* ever made */
	/* by the thread of connect.c; see watch.c */
	_Atomic uint64_t lost_ms;  /* since when it has no link; 0: it has */
	const char *_Atomic fatal; /* why it is of no use any more */
};

const char *verbs_fabric_name(enum verbs_fabric fabric);
void verbs_gid_text(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN]);
/* Does DICOMM_IB_HCA let that port through? NCCL's grammar: names with an
 * optional ":PORT", prefixes unless "=" comes first, "^": all but these. */
bool verbs_nic_matches(const char *spec, const char *name, unsigned port);
/* Ports that can be used, in words; false and why, if there are none. */
bool verbs_nic_find(char *why, size_t len);
/* Open one of them; which of several, is up to `turn`. */
dicomm_result_t verbs_nic_get(unsigned turn, struct verbs_nic **out);
void verbs_nic_put(struct verbs_nic *nic);

/* ---- memory.c: registrations of a NIC ---- */

struct verbs_mr {
	struct verbs_mr *next;
	uintptr_t base;
	size_t len;
	bool written; /* the NIC may write it */
	int refs;
	uint64_t id; /* of an allocation that outlives its users; or 0 */
	/* Of a device; NULL: of the host. */
	const struct accel *accel;
	char how[128]; /* the NIC got that */
	struct ibv_mr *mr;
};

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

/* ---- address.c: what ranks tell each other ---- */

/* In a tp_blob. */
struct verbs_address {
	uint32_t magic, version;
	uint64_t check; /* of the bytes, with 0 here */
	uint8_t nonce[VERBS_NONCE];
	uint32_t rank, ranks;
	uint32_t slots, eager_bytes;
	uint32_t fabric;
	char listen[VERBS_TEXT]; /* where to call it */
	char host[40], nic[24];  /* for messages */
};

/* The call that makes a lane, and its answer. No padding. */
struct verbs_card {
	uint32_t magic, version;
	uint32_t type, status;
	uint8_t to[VERBS_NONCE], from[VERBS_NONCE];
	uint8_t challenge[VERBS_NONCE]; /* of the call */
	uint32_t from_rank, to_rank, ranks, lane_class;
	/* the queue pair; of an iWARP NIC that answers: where it listens, as an
	 * IPv4 address and, in lid, the port */
	uint8_t gid[16];
	uint32_t qpn, psn, lid, mtu;
	uint32_t reads; /* that it serves at a time */
	/* what the other side writes: inbox of the one who answers, word for
	 * credits of the one who calls */
	uint32_t rkey;
	uint64_t addr;
	uint32_t stride, slots;
	char why[96];
	uint8_t proof[32];
};

enum { VERBS_CALL = 1, VERBS_ANSWER };

struct tp_device;
void verbs_address_make(const struct tp_device *dev, struct tp_blob *blob);
bool verbs_address_parse(const struct tp_blob *blob, struct verbs_address *a,
			 char *why, size_t len);
/* Fill in head and proof. */
void verbs_card_seal(struct verbs_card *card, const uint8_t key[VERBS_KEY]);
bool verbs_card_is_genuine(const struct verbs_card *card,
			   const uint8_t key[VERBS_KEY]);

/* ---- lane.c: one direction of one class between two ranks ---- */

enum verbs_state { LANE_IDLE, LANE_CONNECTING, LANE_READY, LANE_FAILED };

struct verbs_conn;
struct rdma_cm_id;

struct verbs_read {
	uint32_t pending;
	dicomm_result_t status;
	/* Is flushed before it has arrived: from there. */
	bool flushed;
	uint32_t flush_key;
	uint64_t flush_addr;
};

/*
 * Made by the thread that connects, with the lock held; from LANE_READY on of
 * the thread that uses the device. What both use is atomic.
 */
struct verbs_lane {
	struct tp_device *dev;
	uint32_t id; /* rank * TP_CLASSES + class */
	int rank;
	bool in;
	_Atomic int state;   /* enum verbs_state */
	_Atomic bool left;   /* the other side has closed it */
	dicomm_result_t why; /* of LANE_FAILED; or its queue pair is broken */
	bool noticed;        /* that it is; see verbs_broken() */
	const char *_Atomic event; /* what the NIC said of its queue pair */
	uint32_t seen_done;        /* watch.c: done, at the last look, */
	uint32_t stuck_ms;         /* and since when it is that */
	char text[512];            /* in words */
	struct ibv_qp *qp;
	struct rdma_cm_id *cm; /* iWARP */
	struct sockaddr_in cm_to;
	unsigned cm_tries;
	uint32_t psn;
	uint32_t depth, posted, done; /* work requests; done: as far as known */
	uint32_t unsignaled;
	uint32_t remote_key, stride;
	uint64_t remote_addr;
	struct verbs_conn *conn;
	uint8_t challenge[VERBS_NONCE];
	char remote[64]; /* "host nic gid", for messages */

	/* sender's */
	_Atomic uint64_t *released;
	uint64_t limit; /* last message that known credits allow */
	uint32_t max_inline;
	struct ibv_send_wr wr, note; /* note: iWARP, a SEND behind the write */
	struct ibv_sge sge[2], note_sge;

	/* receiver's */
	uint8_t *slots;
	struct ibv_mr *slots_mr;
	size_t slots_bytes;
	uint64_t last; /* arrived */
	uint64_t freed, told;
	bool urgent; /* the sender may wait for `told` */
	struct verbs_lane *untold, **untold_link;
	struct verbs_read reads[VERBS_READS];
};

/* Queue pair in INIT, its numbers in the card. */
dicomm_result_t verbs_lane_open(struct verbs_lane *lane,
				struct verbs_card *card);
/* Inbox, for a receiver. */
dicomm_result_t verbs_lane_inbox(struct verbs_lane *lane,
				 struct verbs_card *card);
dicomm_result_t verbs_lane_connect(struct verbs_lane *lane,
				   const struct verbs_card *remote);
/* Nothing in flight lands any more. */
void verbs_lane_stop(struct verbs_lane *lane);
void verbs_lane_close(struct verbs_lane *lane);
/* One line about a completion that failed; sets lane->why and text. */
void verbs_lane_broken(struct verbs_lane *lane, const struct ibv_wc *wc,
		       const char *operation, uint64_t bytes);
/* The same without a completion. */
void verbs_lane_give_up(struct verbs_lane *lane, dicomm_result_t why,
			const char *what, const char *hint);
uint64_t verbs_lane_memory(const struct verbs_lane *lane);

/* ---- watch.c: what the NICs do not tell by a completion ---- */

/* Events of a NIC, when its async_fd is readable; with the lock. */
void verbs_watch_events(struct verbs_nic *nic);
/* As in struct transport; now and then while nothing moves. */
dicomm_result_t verbs_broken(struct tp_device *dev, int *peer);

/* ---- mirror.c: what a NIC has written to a device is there ---- */

/* Connect the NIC to itself, unless it is. */
dicomm_result_t verbs_mirror_open(struct tp_device *dev);
void verbs_mirror_close(struct tp_device *dev);
/* Room for one more; then post it, once the read is complete. */
bool verbs_mirror_reserve(struct tp_device *dev);
dicomm_result_t verbs_mirror_flush(struct tp_device *dev,
				   const struct verbs_lane *lane,
				   uint32_t slot);
/* Of a completion: which read of which lane was flushed; NULL: one that has
 * gone. */
struct verbs_lane *verbs_mirror_lane(struct tp_device *dev,
				     const struct ibv_wc *wc, uint32_t *slot);

/* ---- verbs.c ---- */

struct tp_hold {
	struct tp_hold *next;
	struct verbs_mr *mr;
	bool flushed; /* what read() has put there */
};

/* Messages too long to go inline are sent from here. */
struct verbs_pool {
	uint8_t *memory;
	struct ibv_mr *mr;
	uint32_t count, bytes; /* of one */
	uint16_t *spare;
	uint32_t nspare;
};

/* Receives that are posted in one go. */
#define VERBS_BATCH 32

struct tp_device {
	struct tp_config config;
	struct verbs_nic *nic;
	uint32_t eager_bytes, stride;
	_Atomic bool aborted;
	uint64_t looked_ms;     /* when watch.c did */
	atomic_flag polling;    /* the completion queue is being looked at */
	_Atomic uint32_t reads; /* in flight */
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	int cqe;
	uint32_t cqe_reserved; /* what lanes may put there at a time */
	uint32_t received;     /* not posted again yet */
	struct ibv_recv_wr batch[VERBS_BATCH];
	struct ibv_sge batch_sge[VERBS_BATCH];
	uint32_t *notes; /* iWARP: bodies of the SENDs */
	struct ibv_mr *notes_mr;
	uint32_t notes_count;
	unsigned idle; /* polls that found nothing */
	struct verbs_pool pool;
	struct verbs_lane *_Atomic *in, *_Atomic *out; /* [id] */
	uint32_t lanes;                                /* length of both */
	/* [id]: credits, written by receivers; and one that nobody reads. */
	_Atomic uint64_t *words;
	struct ibv_mr *words_mr;
	struct verbs_lane *untold;
	struct verbs_lane *mirror; /* of the NIC to itself; or NULL */
	uint32_t flushes;          /* reserved */
	struct tp_peer *peers;
	atomic_flag holding; /* guards holds, for a few instructions */
	struct tp_hold *holds;

	/* connect.c */
	struct tp_device *next;
	uint8_t nonce[VERBS_NONCE];
	char listen[VERBS_TEXT];
	struct verbs_conn *listener, *events;
	struct rdma_cm_id *cm; /* iWARP: listens, too */
	char host[40];
};

struct tp_peer {
	struct tp_device *dev;
	int rank;
	struct verbs_address address;
	struct verbs_lane *out[TP_CLASSES], *in[TP_CLASSES];
	struct tp_peer *next;
};

/* Room in the completion queue for n more. */
dicomm_result_t verbs_reserve(struct tp_device *dev, uint32_t n);
/* A request that completes when all before it have; moves no data. */
dicomm_result_t verbs_probe(struct verbs_lane *lane);
/* Receives for the messages of one more lane. */
dicomm_result_t verbs_post_receives(struct tp_device *dev, uint32_t n);

/* ---- connect.c: calls and answers ---- */

/* Guards the devices of the process and how lanes come and go. */
void verbs_lock(void);
void verbs_unlock(void);
/* Listen for calls; fills in nonce and listen. */
dicomm_result_t verbs_connect_open(struct tp_device *dev);
/* No call comes in any more. */
void verbs_connect_shut(struct tp_device *dev);
/* The last lane of a device is closed. */
void verbs_connect_close(void);
/* Begin to make a lane to a peer. */
dicomm_result_t verbs_connect_call(struct tp_device *dev,
				   const struct verbs_address *to,
				   enum tp_class c, struct verbs_lane **out);
/* With the lock: no news of it any more; the other side is told. */
void verbs_connect_forget(struct verbs_lane *lane);

/* News from cm.c, with the lock. The lane that waits to be connected, which
 * from then on takes messages: */
struct verbs_lane *verbs_connect_awaited(const uint8_t challenge[VERBS_NONCE]);
void verbs_connect_done(struct verbs_lane *lane);
void verbs_connect_failed(struct verbs_lane *lane, const char *what,
			  const char *why);

/* ---- cm.c: queue pairs of iWARP; but for the first, with the lock ---- */

/* Fill in nic->address. */
dicomm_result_t verbs_cm_find_address(struct verbs_nic *nic);
/* *fd is readable when there is something for verbs_cm_events(). */
dicomm_result_t verbs_cm_start(int *fd);
void verbs_cm_stop(void);
void verbs_cm_forget(void); /* in the child of a fork */
void verbs_cm_events(void);
dicomm_result_t verbs_cm_listen(struct tp_device *dev);
void verbs_cm_card(const struct tp_device *dev, struct verbs_card *card);
dicomm_result_t verbs_cm_call(struct verbs_lane *lane,
			      const struct verbs_card *card);
void verbs_cm_close(struct rdma_cm_id *id);

#endif
