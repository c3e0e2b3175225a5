/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The common part of tcp and ucx, which send frames and copy messages into an
 * inbox at the receiver. Here are the channels, with inbox, credits and reads,
 * and the operations of struct transport that need nothing else. The transport
 * itself makes connections, and sends and receives the frames.
 *
 * Such a transport defines struct tp_device with a struct framed as its first
 * member, begins its addresses with a struct framed_address and what it keeps
 * for each rank with a struct framed_link, and fills in struct framed_ops.
 *
 * The thread that holds the lock owns the device: the thread that uses it, the
 * progress thread, or a thread that aborts. All functions here need the lock,
 * unless they are operations of struct transport.
 */
#ifndef DICOMM_TRANSPORTS_FRAMED_FRAMED_H
#define DICOMM_TRANSPORTS_FRAMED_FRAMED_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/terms.h"
#include "transports/transport.h"

#define FRAMED_READS                                            \
	64 /* reads of a channel at a time; as transport.h says \
	    */
/* How long a close waits for its peers, and an abort for the lock. */
#define FRAMED_DRAIN_NS UINT64_C(2000000000)

/* ---- channels ---- */

struct framed;
struct framed_in;

struct framed_read {
	struct framed_in *in; /* the channel of the read */
	uint8_t *dst;
	/* type of the memory at dst, as the transport numbers types */
	int memory_type;
	/* Bytes: of the whole read; of which no piece has begun to arrive; that
	 * are not there yet. */
	uint64_t len, unclaimed, missing;
	uint32_t number;    /* differs from that of earlier reads of the slot */
	_Atomic int status; /* dicomm_result_t; IN_PROGRESS: not complete */
};

/* Receiver's side. */
struct framed_in {
	struct framed *framed;
	uint32_t rank; /* of the sender */
	uint8_t channel_class;
	uint8_t *slots; /* lines, followed by the data of all slots */
	uint8_t *data;
	uint64_t *begun;   /* [slot]: last message that began to arrive */
	uint64_t consumed; /* last message that this rank has released */
	uint64_t granted;  /* last message for which a credit was sent */
	bool urgent;       /* the sender may be waiting for a credit */
	struct framed_in *credits_due, **credits_due_link;
	struct framed_read reads[FRAMED_READS];
	/* Pieces that the network is writing, with pointers to `reads`. If the
	 * channel closes meanwhile, the last piece frees it. */
	unsigned receiving;
	bool closed;
};

/* Sender's side. */
struct framed_out {
	_Atomic uint64_t released;
	uint64_t limit; /* last message that known credits allow */
};

struct framed_message {
	uint8_t channel_class;
	uint16_t kind; /* enum tp_kind */
	uint32_t signature;
	uint64_t seq, len;
	const void *body;
	uint64_t bytes; /* length of the body: len, or that of a reference */
};

/* ---- links ---- */

/* First member of what the transport keeps for each rank. */
struct framed_link {
	struct tp_device *dev;
	uint32_t rank;
	_Atomic int status;       /* dicomm_result_t; the cause is below */
	_Atomic bool peer_closed; /* the peer has closed, or aborted */
	bool reported;            /* the status was returned to the user, */
	bool noticed;             /* and broken() has seen it once */
	char cause[160];
};

/* The first bytes of an address. */
struct framed_address {
	uint32_t magic, version;
	/* keyed hash of all bytes, with 0 here, under the config's key */
	uint8_t proof[16];
	/* of the device; a peer has to send it when it connects */
	uint64_t token;
	uint64_t network; /* hash of machine and network namespace */
	struct terms terms;
};

/* ---- the device ---- */

/* What the transport does; the lock is held, unless noted. */
struct framed_ops {
	const char *name;
	uint32_t magic, version; /* magic and version of its addresses */
	/* size of its references, which begin with an address */
	size_t ref_bytes;
	size_t link_bytes; /* size of the struct that it keeps for a rank */
	/* Connect to the peer, and announce that this rank will use a channel
	 * to it. */
	dicomm_result_t (*open_channel)(struct tp_peer *peer, enum tp_class c);
	/* As put() of struct transport, over a link that is not broken. */
	dicomm_result_t (*send_message)(struct tp_peer *peer,
					const struct framed_message *m);
	/* Send in->consumed. AGAIN: there is no room now. Another error: the
	 * peer needs no credits, or cannot get any. */
	dicomm_result_t (*send_credit)(struct framed_in *in);
	/* The link is sound. Request [offset, offset + len) of a reference,
	 * with the number of the read. AGAIN: nothing happened. */
	dicomm_result_t (*send_read)(struct framed_in *in, uint64_t seq,
				     struct framed_read *read, uint32_t number,
				     const struct tp_ref *ref, uint64_t offset);
	/* Close the links [first, end), when their peers have acknowledged
	 * that, or after FRAMED_DRAIN_NS. */
	void (*close_links)(struct tp_device *dev, uint32_t first,
			    uint32_t end);
	/* Closes what is left of a broken link. May be NULL. */
	void (*drop)(struct framed_link *link);
	/* Finds links that have broken. May be NULL. */
	void (*watch)(struct tp_device *dev);
};

/* First member of the device of a rank. */
struct framed {
	atomic_flag busy; /* the lock */
	_Atomic bool aborted;
	const struct framed_ops *ops;
	struct tp_config config;
	uint64_t network, token; /* as in its address */
	bool congests;           /* as in struct tp_limits */
	/* some link has frames that could not be sent for lack of room */
	bool deferred;
	uint8_t seal_key[16];
	struct framed_link *links;       /* [rank], each of ops->link_bytes */
	struct framed_in *_Atomic *in;   /* [rank * TP_CLASSES + class] */
	struct framed_out *_Atomic *out; /* [rank * TP_CLASSES + class] */
	struct framed_in *credits_due; /* channels whose sender needs credits */
	bool credits_blocked; /* a credit could not be sent for lack of room */
	unsigned idle;        /* polls in a row that found nothing */
	uint32_t reads;       /* number of reads so far */
	struct tp_peer *peers;
};

/* First member of what the transport keeps for a peer. */
struct tp_peer {
	struct tp_device *dev;
	int rank;
	struct framed_in *in[TP_CLASSES];
	struct framed_out *out[TP_CLASSES];
	struct tp_peer *next;
};

static inline struct framed *framed_of(struct tp_device *dev)
{
	return (struct framed *)(void *)dev;
}

static inline struct tp_device *framed_device(struct framed *f)
{
	return (struct tp_device *)(void *)f;
}

static inline bool framed_try_lock(struct framed *f)
{
	return !atomic_flag_test_and_set_explicit(&f->busy,
						  memory_order_acquire);
}

static inline void framed_lock(struct framed *f)
{
	while (!framed_try_lock(f))
		sched_yield();
}

static inline void framed_unlock(struct framed *f)
{
	atomic_flag_clear_explicit(&f->busy, memory_order_release);
}

static inline bool framed_is_aborted(const struct framed *f)
{
	return atomic_load_explicit(&f->aborted, memory_order_relaxed);
}

static inline struct framed_in *framed_in_of(const struct framed *f,
					     uint32_t rank, uint32_t c)
{
	return atomic_load_explicit(&f->in[rank * TP_CLASSES + c],
				    memory_order_acquire);
}

static inline struct framed_out *framed_out_of(const struct framed *f,
					       uint32_t rank, uint32_t c)
{
	return atomic_load_explicit(&f->out[rank * TP_CLASSES + c],
				    memory_order_acquire);
}

static inline struct framed_link *framed_link_of(const struct framed *f,
						 uint32_t rank)
{
	return (struct framed_link *)(void *)((char *)f->links +
					      rank * f->ops->link_bytes);
}

/* A rank sends messages to itself without the network. */
static inline bool framed_is_self(const struct tp_peer *peer)
{
	return peer->rank == framed_of(peer->dev)->config.rank;
}

/* ---- framed.c: opened and closed; operations of struct transport ---- */

/* Fill in a device of zeroes: tables, and a key for seals. */
dicomm_result_t framed_open(struct framed *f, const struct framed_ops *ops,
			    const struct tp_config *config);
/* Free all channels, peers and tables. Without the lock. */
void framed_close(struct framed *f);
/* A peer of that size, which begins with a struct tp_peer; NULL: no memory.
 * Without the lock. */
struct tp_peer *framed_peer_make(struct framed *f, int rank, size_t bytes);
/* Free the channels from and to a rank. */
void framed_free_channels(struct framed *f, uint32_t rank);
/* Take the lock to abort. False: another thread has held it for
 * FRAMED_DRAIN_NS. */
bool framed_lock_to_abort(struct framed *f);
/* Bytes of tables and channels. Without the lock. */
uint64_t framed_memory(const struct framed *f);

void framed_limits(const struct tp_peer *peer, struct tp_limits *limits);
dicomm_result_t framed_connect_out(struct tp_peer *peer, enum tp_class c,
				   struct tp_outbox *outbox);
dicomm_result_t framed_connect_in(struct tp_peer *peer, enum tp_class c,
				  struct tp_inbox *inbox);
dicomm_result_t framed_put(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			   uint32_t signature, enum tp_kind kind,
			   const void *body, uint64_t len);
dicomm_result_t framed_release(struct tp_peer *peer, enum tp_class c,
			       uint64_t seq);
bool framed_flush(struct tp_device *dev);
void framed_peer_close(struct tp_peer *peer);

/* ---- address.c: the first bytes of all addresses; without the lock ---- */

/* Fill in the head of an address of `bytes` bytes, and make a blob of it. The
 * rest has to be there: the proof covers it. */
void framed_address_make(const struct framed *f, struct framed_address *a,
			 size_t bytes, struct tp_blob *blob);
/* Take an address of at most `bytes` bytes out of a blob. False: it is not a
 * valid address; the reason is in `why`. The caller checks its length. */
bool framed_address_parse(const struct framed *f, const struct tp_blob *blob,
			  struct framed_address *a, size_t bytes, char *why,
			  size_t len);
/* Hash of machine and network namespace. */
uint64_t framed_address_network(void);
/* Writes to `why` that an address is damaged or forged, and returns false. */
bool framed_address_damaged(const struct framed *f, char *why, size_t len);

/* ---- link.c: is a rank there? ---- */

/* Mark the link as broken, with this cause, unless it is broken already. */
void framed_link_fail(struct framed_link *link, dicomm_result_t status,
		      const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Returns SUCCESS, or the error of a broken link; then its text becomes the
 * last error. */
dicomm_result_t framed_link_status(struct framed_link *link);
/* Returns true if messages can be sent to that rank. Otherwise the reason is in
 * `why`. Without the lock. */
bool framed_link_is_open(const struct framed *f, uint32_t rank, char *why,
			 size_t len);

/* Operation of struct transport */
dicomm_result_t framed_link_broken(struct tp_device *dev, int *peer);

/* ---- inbox.c ---- */

/* Make the receiver's side of a channel; NULL: no memory. */
struct framed_in *framed_inbox_make(struct framed *f, uint32_t rank,
				    uint32_t c);
/* Free an inbox that is no longer in f->in. If pieces are still being received,
 * the last of them frees it. */
void framed_inbox_free(struct framed_in *in);
/* Returns true if a message of this number may arrive now: each number once, in
 * any order, into a slot that was released. */
bool framed_inbox_expects(struct framed_in *in, uint64_t seq);
/* Returns the place of its bytes: in the line, or in the slot's data. */
uint8_t *framed_inbox_place(const struct framed_in *in, uint64_t seq,
			    uint64_t bytes);
/* All bytes have arrived: make the message visible to the reader. */
void framed_inbox_deliver(struct framed_in *in, uint64_t seq,
			  uint32_t signature, uint32_t kind, uint64_t len);

/* ---- credits.c ---- */

/* Store a credit that has arrived. False: it is for messages that were never
 * sent. */
bool framed_credits_receive(struct framed *f, uint32_t rank, uint32_t c,
			    uint64_t released);
/* Send the credits now; if there is no room, in a later poll. */
void framed_credits_send(struct framed_in *in);
void framed_credits_send_all(struct framed *f);
/* Send the credits when polls find nothing else to do. */
void framed_credits_defer(struct framed_in *in);
/* Send no further credits of this inbox. */
void framed_credits_cancel(struct framed_in *in);
/* A message has carried in->consumed. */
void framed_credits_sent(struct framed_in *in);
/* To be called after each progress. moved: the progress did something. */
void framed_credits_progress(struct framed *f, bool moved);

/* ---- read.c: references, and reads of the memory they refer to ---- */

/* Returns the seal of a reference, over the bytes before it. By the seal, the
 * owner of the memory verifies that it has offered the reference. Without the
 * lock. */
uint64_t framed_read_seal(const struct framed *f, const void *ref, size_t len);
/* Returns the read to which a piece of data belongs; NULL: ignore the piece. */
struct framed_read *framed_read_find(struct framed *f, uint32_t rank,
				     uint32_t c, uint64_t seq, uint32_t number);
/* Returns the place of a piece that begins to arrive. NULL: it was not
 * requested. */
uint8_t *framed_read_claim(struct framed_read *read, uint64_t offset,
			   uint64_t len);
/* To be called when a piece has arrived. */
void framed_read_advance(struct framed_read *read, uint64_t len);
void framed_read_fail(struct framed_read *read);

/* Operations of struct transport */
dicomm_result_t framed_read_map(struct tp_peer *peer, const struct tp_ref *ref,
				uint64_t len, const void **ptr);
dicomm_result_t framed_read_begin(struct tp_peer *peer, enum tp_class c,
				  uint64_t seq, const struct tp_ref *ref,
				  uint64_t offset, void *dst, uint64_t len);
dicomm_result_t framed_read_status(struct tp_peer *peer, enum tp_class c,
				   uint64_t seq);

#endif
