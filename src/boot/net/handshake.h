/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handshake of a connection.
 *
 *   listener -> client   CHALLENGE  nonce, public key
 *   client -> listener   PROOF      nonce, public key, proof
 *   listener -> client   WELCOME    proof
 *
 * A proof is a keyed hash of both nonces, both public keys and the role of its
 * sender. Its key is the key of the id. So the key does not travel, a proof can
 * be neither replayed nor reflected, and nobody in between can insert a public
 * key of his own. The public keys are new for each connection. So somebody who
 * recorded a connection and learns the key of the id later cannot read it. All
 * frames after the handshake are sealed.
 */
#ifndef DICOMM_BOOT_HANDSHAKE_H
#define DICOMM_BOOT_HANDSHAKE_H

#include "src/base/auth.h"
#include "src/boot/net/seal.h"

#define HANDSHAKE_MAGIC 0x01006d6d6f636964ull /* "dicomm", 0, 1 */
#define HANDSHAKE_PROTOCOL 6u
#define HANDSHAKE_LIMIT 256 /* bytes of a frame from an unproved sender */

/* An asker does what a client does, with FRAME_ASKER in the place of
 * FRAME_PROOF: it does not join, but asks. */
enum handshake_role { HANDSHAKE_LISTENER, HANDSHAKE_CLIENT, HANDSHAKE_ASKER };

/* What the proofs cover, byte for byte. */
struct handshake {
	uint8_t listener_nonce[AUTH_NONCE], listener_public[AUTH_PUBLIC];
	uint8_t client_nonce[AUTH_NONCE], client_public[AUTH_PUBLIC];
};

/* Makes the proof of the end that has this role. */
void handshake_prove(const struct handshake *h, const uint8_t key[AUTH_KEY],
		     enum handshake_role role, uint8_t proof[AUTH_PROOF]);
bool handshake_check(const struct handshake *h, const uint8_t key[AUTH_KEY],
		     enum handshake_role role, const uint8_t proof[AUTH_PROOF]);
/* Computes the keys of the connection for the end that has this role and this
 * key pair. Returns false if the other end's public key is invalid. */
bool handshake_keys(const struct handshake *h, const uint8_t key[AUTH_KEY],
		    enum handshake_role role, const struct auth_pair *pair,
		    struct seal_keys *keys);

/*
 * A probe asks whether the rank that listened at an address is alive.
 *
 *   prober -> rank   PROBE   nonce
 *   rank -> prober   ALIVE   state, proof
 *
 * The proof covers nonce, rank and state under a key that only the ranks of the
 * communicator know. So a stranger that took the port of a dead rank, or that
 * forwards probes to another rank, is not believed.
 */
struct handshake_alive {
	uint8_t key[AUTH_KEY];
	uint32_t rank;  /* of this process */
	uint32_t state; /* see recovery.h */
};

/* Answers a FRAME_PROBE. Returns false if the frame does not parse. */
bool handshake_answer(const struct handshake_alive *a, struct frame_reader *in,
		      struct frame_writer *out);
/* Reads a FRAME_ALIVE from that rank. Returns false if the answer is
 * invalid. */
bool handshake_is_alive(const uint8_t key[AUTH_KEY], uint32_t rank,
			const uint8_t nonce[AUTH_NONCE],
			struct frame_reader *in, uint32_t *state);

#endif
