/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes that ranks exchange outside of channels: a rank's address, by the
 * bootstrap, and the messages by which a channel is made, over TCP. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_ADDRESS_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/verbs/nic/gid.h"

#define VERBS_NONCE 16
#define VERBS_KEY 32
#define VERBS_TEXT 80
#define VERBS_QPS 8 /* most queue pairs of a channel */

/* The address of a rank, in a tp_blob. */
struct verbs_address {
	uint32_t magic, version;
	uint64_t check; /* hash of all bytes, with 0 here */
	uint8_t nonce[VERBS_NONCE];
	uint32_t rank, ranks;
	uint32_t slots, eager_bytes;
	uint32_t fabric, rails;
	char listen[VERBS_TEXT]; /* where it accepts TCP connections */
	char host[40], nic[24];  /* for log messages */
};

/* One end of a queue pair. It has no padding, since the proof of a message
 * covers all bytes. */
struct verbs_qp_address {
	/* A request has all GIDs of the port, best first. A reply has the two
	 * that are to be used: gid[0] of the replying side, gid[1] of the
	 * requesting side. If librdmacm connects, gid[0] of a reply is the IPv4
	 * address at which the NIC listens, and lid is the port number. */
	uint8_t gid[VERBS_GIDS][16];
	uint32_t gids;
	uint32_t lid, global; /* global: a GID is needed to reach it */
	uint32_t qpn, psn, mtu;
	uint32_t reads; /* most reads that it serves at a time */
	/* Key for what the peer writes: the inbox, or the credit words. */
	uint32_t rkey;
	uint32_t rail, remote_rail;
	uint64_t bytes_per_s; /* rate of the port */
};

/* A message on a channel's TCP connection: a request for a channel, its reply,
 * or a notice that a queue pair was stopped. It has no padding, since the proof
 * covers all bytes. */
struct verbs_connect_msg {
	uint32_t magic, version;
	uint32_t type, status;
	uint8_t to[VERBS_NONCE], from[VERBS_NONCE];
	/* random; a reply repeats that of its request */
	uint8_t challenge[VERBS_NONCE];
	uint32_t from_rank, to_rank, ranks, channel_class;
	uint32_t qps;
	uint32_t notice_qp; /* notice: index of the queue pair */
	struct verbs_qp_address qp[VERBS_QPS];
	/* In a notice: all messages up to received_to have arrived, and message
	 * received_to + 1 + i for each bit i of the mask. */
	uint64_t received_to, received_mask;
	/* Address of what the peer writes: the inbox, from the replying side;
	 * the credit words, from the requesting side. */
	uint64_t addr;
	uint32_t stride, slots;
	char why[224];
	uint8_t proof[32];
};

enum { VERBS_REQUEST = 1, VERBS_REPLY, VERBS_NOTICE };

struct tp_blob;
/* Fill in magic, version and check, and copy the address into the blob. */
void verbs_address_pack(struct verbs_address *a, struct tp_blob *blob);
bool verbs_address_parse(const struct tp_blob *blob, struct verbs_address *a,
			 char *why, size_t len);
/* Fill in magic, version and proof. */
void verbs_msg_seal(struct verbs_connect_msg *msg,
		    const uint8_t key[VERBS_KEY]);
bool verbs_msg_is_genuine(const struct verbs_connect_msg *msg,
			  const uint8_t key[VERBS_KEY]);

#endif
