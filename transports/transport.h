/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A wire. It moves messages into the inbox of a peer, and knows neither
 * collectives nor the engine.
 *
 * An inbox is a ring of `slots` slots for one ordered pair of ranks and one
 * class of traffic. Message number q (from 1, counting up) goes to slot
 * q % slots: a put writes the slot's line (and, when it does not fit there, its
 * data area) and then, once any reader would see all of that, sets line->seq to
 * q. So each counter has one writer and only grows: a replay or a coalesced
 * arrival is harmless. Whoever reads polls line->seq in its own memory; how q
 * travels is the transport's affair.
 *
 * Credits: a put of q needs q <= *released + slots. The receiver moves
 * `released` with release(); the sender must not put beyond it.
 *
 * Large messages need not pass through the slot: the sender may offer a
 * reference to its source (offer), put that as the message, and keep the source
 * unchanged until the message is released; the receiver maps or reads it. So
 * user buffers are written by their own rank only, and once that rank has
 * stopped, nobody writes them.
 *
 * Threads: one at a time for all operations of a device and its peers, except
 * abort(). A transport never calls the engine. DICOMM_AGAIN means that nothing
 * happened: poll(), then retry. Every operation is set.
 */
#ifndef DICOMM_TRANSPORTS_TRANSPORT_H
#define DICOMM_TRANSPORTS_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

enum tp_class { TP_COLLECTIVE, TP_POINT_TO_POINT, TP_CLASSES };

enum tp_kind {
	TP_DATA, /* len bytes: in the line if they fit, else in the data area */
	TP_REF   /* a struct tp_ref in the line; len bytes wait there */
};

#define TP_LINE_BYTES 128
#define TP_LINE_ROOM (TP_LINE_BYTES - 24)

/* Head of a slot, with room for small messages: head and the first 40 bytes
 * share the first cache line. */
struct tp_line {
	_Atomic uint64_t seq;
	uint32_t signature; /* of the operation, to tell unlike calls */
	uint32_t kind;
	uint64_t len;
	uint8_t room[TP_LINE_ROOM];
} __attribute__((aligned(TP_LINE_BYTES)));

/* Where to pull from; opaque to all but the transport. */
struct tp_ref {
	uint8_t bytes[TP_LINE_ROOM];
};

/* Receiver's side of a connected pair. */
struct tp_inbox {
	struct tp_line *lines;
	const uint8_t *data; /* slot s at data + s * slot_bytes */
};

/* Sender's side. */
struct tp_outbox {
	_Atomic uint64_t *released; /* messages that the peer is done with */
};

/* Bytes that travel through the bootstrap. */
struct tp_blob {
	uint32_t len;
	uint8_t data[252];
};

struct tp_config {
	int rank, ranks;
	uint32_t slots;      /* a power of two */
	uint32_t slot_bytes; /* a multiple of 4096 */
};

struct tp_device; /* one rank's endpoint on this wire */
struct tp_peer;   /* one remote rank, or this one */

/* What the path to a peer costs. */
struct tp_cost {
	uint64_t latency_ps;       /* one message of a few bytes */
	uint64_t bytes_per_s;      /* large messages through the slots */
	uint64_t pull_bytes_per_s; /* by reference; 0 if never */
};

struct transport {
	const char *name; /* "shm"; a value of DICOMM_TRANSPORTS */

	/* Is there a device to use? The reason if not, else what was found. */
	bool (*usable)(char *why, size_t len);

	dicomm_result_t (*open)(const struct tp_config *config,
				struct tp_device **dev);
	/* Bytes that every peer needs to reach this device. */
	void (*address)(const struct tp_device *dev, struct tp_blob *address);
	/* Closes what is left open; frees everything. */
	void (*close)(struct tp_device *dev);

	/* Can the device reach the owner of that address? Local and quiet; if
	 * not, why. */
	bool (*reaches)(struct tp_device *dev, const struct tp_blob *address,
			char *why, size_t len);
	dicomm_result_t (*peer_open)(struct tp_device *dev, int peer,
				     const struct tp_blob *address,
				     struct tp_peer **out);
	/* Make the direction usable, at the first message. AGAIN until the
	 * other side has done its part; then *out is filled in and valid until
	 * peer_close(). */
	dicomm_result_t (*connect_out)(struct tp_peer *peer, enum tp_class c,
				       struct tp_outbox *out);
	dicomm_result_t (*connect_in)(struct tp_peer *peer, enum tp_class c,
				      struct tp_inbox *in);
	/* What the path costs; connect_out or connect_in came before. */
	void (*cost)(struct tp_peer *peer, struct tp_cost *cost);
	/* After it, nothing that this side put or mapped is accessed. */
	void (*peer_close)(struct tp_peer *peer);

	/*
	 * Deliver message seq. TP_DATA: body is len <= slot_bytes bytes, copied
	 * before the call returns or sent later (then DICOMM_IN_PROGRESS, and
	 * the body must stay until *outbox.released reaches seq). TP_REF: body
	 * is a struct tp_ref from offer(). AGAIN: too many in flight.
	 */
	dicomm_result_t (*put)(struct tp_peer *peer, enum tp_class c,
			       uint64_t seq, uint32_t signature,
			       enum tp_kind kind, const void *body,
			       uint64_t len);
	/* Tell the sender that all messages up to seq are done with. */
	dicomm_result_t (*release)(struct tp_peer *peer, enum tp_class c,
				   uint64_t seq);

	/* Can the peer pull [addr, addr + len), and does that pay? Then *ref
	 * says how. No system call. */
	bool (*offer)(struct tp_peer *peer, const void *addr, uint64_t len,
		      struct tp_ref *ref);
	/* A received reference as memory of this process, for loads only, until
	 * the next release(). ERR_UNSUPPORTED: read() it. May map memory when
	 * it is new. */
	dicomm_result_t (*map)(struct tp_peer *peer, const struct tp_ref *ref,
			       uint64_t len, const void **ptr);
	dicomm_result_t (*read)(struct tp_peer *peer, const struct tp_ref *ref,
				uint64_t offset, void *dst, uint64_t len);

	/* Make progress; true if anything moved. Never blocks. */
	bool (*poll)(struct tp_device *dev);
	/* After it, nothing more that the peer sent can land; *seq is the
	 * last message that did. */
	dicomm_result_t (*fence)(struct tp_peer *peer, enum tp_class c,
				 uint64_t *seq);
	/* Stop: nothing that is in flight may land any more, puts fail with
	 * DICOMM_ERR_ABORTED, and once it has returned nobody loads from what
	 * was offered and may be gone now. Any thread, any number of times. */
	void (*abort)(struct tp_device *dev);
	/* Bytes of memory that the device holds. */
	uint64_t (*memory)(const struct tp_device *dev);
};

/* The transports of this build, fastest first; NULL ends the list. */
extern const struct transport *const transports[];
const struct transport *transport_find(const char *name);

#endif
