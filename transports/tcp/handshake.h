/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The words by which two ranks make a connection, and their proofs. join.c says
 * who sends which word when.
 */
#ifndef DICOMM_TRANSPORTS_TCP_HANDSHAKE_H
#define DICOMM_TRANSPORTS_TCP_HANDSHAKE_H

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/auth.h"
#include "transports/tcp/seal.h"
#include "transports/tcp/tcp.h"

#define TCP_HELLO 0x34544344u /* "DCT4" */
#define TCP_ANSWER 0x35544344u
#define TCP_CONFIRM 0x36544344u

struct tcp_hello {
	uint32_t type;
	uint32_t from_rank, to_rank, ranks;
	uint32_t slots, slot_bytes;
	uint32_t index, count; /* of the connections of the link */
	uint64_t token;        /* of the acceptor */
	uint32_t protection, zero;
	uint8_t nonce[TCP_NONCE];
	uint8_t public[AUTH_PUBLIC]; /* where that is used */
	uint8_t proof[TCP_PROOF];    /* of all before */
};

enum tcp_verdict { TCP_WELCOME, TCP_CROSSED, TCP_REFUSED };

struct tcp_answer {
	uint32_t type, verdict;
	char why[56];
	uint8_t nonce[TCP_NONCE];
	uint8_t public[AUTH_PUBLIC];
	uint8_t proof[TCP_PROOF]; /* of the hello, and all before */
};

struct tcp_confirm {
	uint8_t proof[TCP_PROOF];
};

_Static_assert(sizeof(struct tcp_hello) == 48 + 3 * 32 &&
		       sizeof(struct tcp_answer) == 64 + 3 * 32,
	       "no padding");
_Static_assert(crypto_auth_BYTES == TCP_PROOF &&
		       crypto_auth_KEYBYTES == TCP_KEY,
	       "sizes");

struct tcp_handshake {
	struct tcp_hello hello;
	struct tcp_answer answer;
	struct tcp_confirm confirm;
	struct auth_pair pair; /* of this connection alone */
	size_t have;           /* of the word that is coming */
};

/* NULL in c->handshake from the end on. False: no memory. */
bool tcp_handshake_begin(struct tcp_conn *c);
/* The connection is open, or dropped: forget its secrets, and that it was a
 * stranger's. */
void tcp_handshake_end(struct tcp_conn *c);

/* Where the connection is to be encrypted, make a pair of keys for it alone. */
void tcp_handshake_make_pair(struct tcp_conn *c, uint8_t public[AUTH_PUBLIC]);
/* The proofs of the three words, by the key of the communicator. */
void tcp_handshake_prove_hello(const struct tcp_hello *h,
			       const uint8_t key[TCP_KEY],
			       uint8_t proof[TCP_PROOF]);
void tcp_handshake_prove_answer(const struct tcp_handshake *g,
				const uint8_t key[TCP_KEY],
				uint8_t proof[TCP_PROOF]);
void tcp_handshake_prove_confirm(const struct tcp_handshake *g,
				 const uint8_t key[TCP_KEY],
				 uint8_t proof[TCP_PROOF]);
/* The secret of a connection that is signed or encrypted. False: the peer's
 * public key is not a valid one. */
bool tcp_handshake_secret(const struct tcp_conn *c,
			  uint8_t secret[TCP_SEAL_KEY]);

#endif
