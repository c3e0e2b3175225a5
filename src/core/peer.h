/* SPDX-License-Identifier: BSD-3-Clause */
/* The paths to other ranks: wires, and the lanes of messages that go by them.
 */
#ifndef DICOMM_CORE_PEER_H
#define DICOMM_CORE_PEER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/transport.h"

struct dicomm_comm;
struct neighbour;
struct operation;

/* Transports at most; no more than peer.wires has bits. */
#define COMM_TRANSPORTS 4

/* Messages of one class to and from one peer. Operations number theirs from
 * the base up, and move the base when they end. */
struct channel {
	uint64_t out_base, in_base;
	uint64_t out_last; /* the last that was put: not all numbers are used */
	struct tp_outbox out; /* out.released: NULL until connected */
	struct tp_inbox in;   /* in.lines: NULL until connected */
	/* All messages up to here are done with; on_query() looks, too. */
	_Atomic uint64_t in_done;
	uint64_t in_mask; /* bit i: message in_done + 1 + i is, too */
	/* The last one of a crowded operation, which its end releases, and of
	 * the crowded ones that this rank has ended; see engine.c. */
	uint64_t in_withheld, out_settles;
};

struct peer {
	int rank;
	/* Bit i: by wire i both ranks reach each other. They take the first;
	 * one alone must not choose, for the other would wait elsewhere. */
	uint8_t transports;
	const struct transport *transport; /* NULL until opened */
	struct tp_device *device;
	struct tp_peer *tp;
	struct tp_limits limits;
	/* What it sends passes through host memory on the way from its device
	 * to this rank's. */
	bool staged;
	/* Both reach each other's memory: messages may be notes of where the
	 * bytes are; see memory_ref.h. */
	bool has_peer_access;
	struct neighbour *neighbour; /* NULL: this side does not */
	/* The wire reaches the memory of the devices of both: all data goes by
	 * reference. */
	bool by_reference;
	struct channel channel[TP_CLASSES];
	/* point to point: calls so far, in call order; last ones queued */
	uint64_t sends, recvs;
	struct operation *last_send, *last_recv;
};

/* A way out of this process, one for each transport in use. */
struct comm_transport {
	const struct transport *transport;
	/* Set once, after the transport: whoever raises a fault stops it. */
	_Atomic(struct tp_device *) device;
};

/* One buffer on all wires. */
struct mem_handles {
	struct tp_mem *on[COMM_TRANSPORTS];
	unsigned transports; /* bit i: held on wire i */
};

#endif
