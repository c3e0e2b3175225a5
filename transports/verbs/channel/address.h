/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks tell each other: their address, and the messages that make a
 * channel. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_ADDRESS_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/verbs/nic/gid.h"

#define VERBS_NONCE 16
#define VERBS_KEY 32
#define VERBS_TEXT 80
#define VERBS_QPS 8 /* most of a channel */

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

/* One side of a queue pair. No padding. */
struct verbs_qp_address {
	/* the queue pair, and what its port is known by; of an answer, those
	 * that the queue pair goes between: its own, and that of the call. Of
	 * one that cm.c connects, its own is where its NIC listens: an IPv4
	 * address and, in lid, the port */
	uint8_t gid[VERBS_GIDS][16];
	uint32_t gids;
	uint32_t lid, global; /* global: it is reached by its GID alone */
	uint32_t qpn, psn, mtu;
	uint32_t reads; /* that it serves at a time */
	uint32_t rkey;  /* of what the other side writes */
	uint32_t rail, remote_rail;
	uint64_t bytes_per_s; /* of its port */
};

/* The call that makes a channel, and its answer. No padding. */
struct verbs_connect_msg {
	uint32_t magic, version;
	uint32_t type, status;
	uint8_t to[VERBS_NONCE], from[VERBS_NONCE];
	uint8_t challenge[VERBS_NONCE]; /* of the call */
	uint32_t from_rank, to_rank, ranks, channel_class;
	uint32_t qps;
	uint32_t notice_qp; /* of a notice: which queue pair */
	struct verbs_qp_address qp[VERBS_QPS];
	/* of a notice: the messages that have come are all up to the first
	 * number, and those whose bits are set after it */
	uint64_t received_to, received_mask;
	/* what the other side writes: inbox of the one who answers, words for
	 * credits of the one who calls */
	uint64_t addr;
	uint32_t stride, slots;
	char why[224];
	uint8_t proof[32];
};

enum { VERBS_REQUEST = 1, VERBS_REPLY, VERBS_NOTICE };

struct tp_blob;
/* Fill in magic, version and check, and put it into the blob. */
void verbs_address_pack(struct verbs_address *a, struct tp_blob *blob);
bool verbs_address_parse(const struct tp_blob *blob, struct verbs_address *a,
			 char *why, size_t len);
/* Fill in head and proof. */
void verbs_msg_seal(struct verbs_connect_msg *msg,
		    const uint8_t key[VERBS_KEY]);
bool verbs_msg_is_genuine(const struct verbs_connect_msg *msg,
			  const uint8_t key[VERBS_KEY]);

#endif
