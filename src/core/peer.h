/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers, and the channels that carry messages to and from them. */
#ifndef DICOMM_CORE_PEER_H
#define DICOMM_CORE_PEER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/transport.h"

struct bounce_buffer;
struct dicomm_comm;
struct neighbour;
struct operation;

/* Messages of one class to and from one peer. An operation numbers its messages
 * from the base up, and advances the base when it ends. */
struct channel {
	uint64_t out_base, in_base;
	/* The last message that was sent; some numbers are not used. */
	uint64_t out_last;
	/* The last message for which a credit is known. */
	uint64_t out_credit;
	struct tp_outbox out; /* out.released is NULL until connected */
	struct tp_inbox in;   /* in.lines is NULL until connected */
	/* All messages up to this one are consumed. on_query() of another
	 * thread reads it, too. */
	_Atomic uint64_t in_done;
	uint64_t in_mask; /* bit i: message in_done + 1 + i is consumed */
	/* in_withheld: the last message of an incast operation; its credit is
	 * sent when the operation ends. out_settles: this rank sends no message
	 * of the next operation before the peer has released this one; see
	 * planned.c. */
	uint64_t in_withheld, out_settles;
};

struct peer {
	int rank;
	const struct transport *transport; /* NULL until opened */
	struct tp_device *device;
	struct tp_peer *tp;
	struct tp_limits limits;
	/* Data from this peer's device passes through host memory on its way to
	 * this rank's device. */
	bool staged;
	/* Both ranks reach each other's memory, so messages may be memory
	 * references; see memory_ref.h. */
	bool has_peer_access;
	struct neighbour *neighbour; /* NULL: no access from this side */
	/* The transport reaches the device memory of both ranks, so all data
	 * goes by reference. */
	bool by_reference;
	struct channel channel[TP_CLASSES];
	/* Point to point: the number of calls so far, and the last queued
	 * operations. */
	uint64_t sends, recvs;
	struct operation *last_send, *last_recv;
};

/* Bytes that are being sent to a peer, in the next messages of the channel; see
 * src/message/send.h. */
struct message_send {
	struct peer *peer;
	enum tp_class class;
	uint32_t signature; /* signature of each of the messages */
	const uint8_t *from;
	uint64_t bytes;
	/* Fewer bytes than this are copied into slots, not sent as a
	 * reference. */
	uint64_t threshold;
	uint64_t moved; /* bytes that have been put */
	/* The bytes must not change before the peer has released this message;
	 * 0: all were copied. */
	uint64_t until;
};

/* State of the slices of one message; see src/message/slice.h. */
struct message_flow {
	/* The sender had the whole message ready, so one reference stands for
	 * all slices. */
	bool whole;
	struct tp_ref ref; /* used by the receiver */
	uint64_t bytes;    /* bytes that the reference covers */
	/* Bytes that were requested, and bytes that have arrived at their final
	 * place. Both may be ahead of the steps. */
	uint64_t read, arrived;
	/* Used by the receiver. Bit k % 64: slice k is posted, its read is in
	 * progress. */
	uint64_t posted;
};

/* Bytes that a peer sends, in messages of one signature; see
 * src/message/receive.h. */
struct message_receive {
	struct peer *peer;
	enum tp_class class;
	uint32_t signature;
	uint8_t *to;   /* place of the next bytes */
	uint64_t left; /* bytes that have not arrived yet */
	/* A reference to ref_bytes bytes, of which `left` are still to be
	 * read */
	struct tp_ref ref;
	uint64_t ref_bytes;
	uint64_t seq; /* the message with the reference; 0: none has arrived */
	uint64_t reading; /* bytes of a read under way */
	/* Where the bytes are that have arrived last: in memory of the sender,
	 * in a bounce buffer, or where they were to be read to */
	const void *src;
	bool mapped;
	struct bounce_buffer *bounce; /* or NULL */
};

/* Memory for the heads of messages to a peer, and the bytes that go with them,
 * until they are sent: mask + 1 places, one for each slot; see
 * src/message/headed.h. */
struct headed_places {
	uint8_t *at; /* NULL: not connected */
	uint32_t mask;
	uint32_t eager; /* most bytes that go with a head to that peer */
};

/* An open transport of this communicator. */
struct comm_transport {
	const struct transport *transport;
	/* Set once, after the transport. A thread that raises a fault reads it
	 * to stop the transport. */
	_Atomic(struct tp_device *) device;
};

/* Handles of one buffer on all transports. */
struct mem_handles {
	struct tp_mem *on[TP_TRANSPORTS];
	unsigned transports; /* bit i: registered with transport i */
};

#endif
