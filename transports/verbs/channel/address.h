/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks send to each other outside of channels: their address (through the
 * bootstrap), and the messages of a connection (over TCP). */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_ADDRESS_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/verbs/nic/gid.h"

#define VERBS_NONCE 16
#define VERBS_KEY 32
#define VERBS_TEXT 80
#define VERBS_QPS 8 /* queue pairs of a channel, at most */

/* The address of a rank, in a tp_blob. */
struct verbs_address {
	uint32_t magic, version;
	uint64_t check; /* hash of the bytes, with 0 here */
	uint8_t nonce[VERBS_NONCE];
	uint32_t rank, ranks;
	uint32_t slots, eager_bytes;
	uint32_t fabric, rails;
	char listen[VERBS_TEXT]; /* where it accepts TCP connections */
	char host[40], nic[24];  /* for messages */
};

/* One end of a queue pair. No padding, as a proof covers all bytes. */
struct verbs_qp_address {
	/* In a request, all GIDs of the port, best first. In a reply, the two
	 * that are to be used: gid[0] of the replying side, gid[1] of the
	 * requesting side. If librdmacm connects, gid[0] of a reply is the IPv4
	 * address at which the NIC listens, and lid is the port number. */
	uint8_t gid[VERBS_GIDS][16];
	uint32_t gids;
	uint32_t lid, global; /* global: a GID is needed to reach it */
	uint32_t qpn, psn, mtu;
	uint32_t reads; /* reads that it serves at a time */
	/* For what the peer writes: the inbox, or the credit words. */
	uint32_t rkey;
	uint32_t rail, remote_rail;
	uint64_t bytes_per_s; /* of the port */
};

/* A message of a connection: a request for a channel, its reply, or a notice
 * that a queue pair was stopped. No padding, as the proof covers all bytes. */
struct verbs_connect_msg {
	uint32_t magic, version;
	uint32_t type, status;
	uint8_t to[VERBS_NONCE], from[VERBS_NONCE];
	uint8_t challenge[VERBS_NONCE]; /* random, from the request */
	uint32_t from_rank, to_rank, ranks, channel_class;
	uint32_t qps;
	uint32_t notice_qp; /* notice: index of the queue pair */
	struct verbs_qp_address qp[VERBS_QPS];
	/* notice: the messages that have arrived are all up to received_to, and
	 * received_to + 1 + i for each bit i of the mask */
	uint64_t received_to, received_mask;
	/* what the peer writes: the inbox of the side that replies, the credit
	 * words of the side that requests */
	uint64_t addr;
	uint32_t stride, slots;
	char why[224];
	uint8_t proof[32];
};

enum { VERBS_REQUEST = 1, VERBS_REPLY, VERBS_NOTICE };

struct tp_blob;
/* Fill in magic, version and check, and copy it into the blob. */
void verbs_address_pack(struct verbs_address *a, struct tp_blob *blob);
bool verbs_address_parse(const struct tp_blob *blob, struct verbs_address *a,
			 char *why, size_t len);
/* Fill in magic, version and proof. */
void verbs_msg_seal(struct verbs_connect_msg *msg,
		    const uint8_t key[VERBS_KEY]);
bool verbs_msg_is_genuine(const struct verbs_connect_msg *msg,
			  const uint8_t key[VERBS_KEY]);

#endif
