/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handshake of a connection.
 *
 *   listener -> client   CHALLENGE  nonce, public key
 *   client -> listener   PROOF      nonce, public key, proof
 *   listener -> client   WELCOME    proof
 *
 * A proof is a keyed hash of both nonces, both public keys and the role of its
 * sender, under the key of the id. So the key does not travel, a proof can be
 * neither replayed nor reflected, and nobody in between can put in a public key
 * of its own. The public keys are fresh, so a recorded connection cannot be
 * read by whoever learns the key of the id later. All frames that follow are
 * sealed.
 */
#ifndef DICOMM_BOOT_HANDSHAKE_H
#define DICOMM_BOOT_HANDSHAKE_H

#include "src/boot/net/auth.h"
#include "src/boot/net/seal.h"

#define HANDSHAKE_MAGIC 0x01006d6d6f636964ull /* "dicomm", 0, 1 */
#define HANDSHAKE_PROTOCOL 3u
#define HANDSHAKE_LIMIT 256 /* bytes of a frame from an unknown sender */

enum handshake_role { HANDSHAKE_LISTENER, HANDSHAKE_CLIENT };

/* What the proofs cover, byte for byte. */
struct handshake {
	uint8_t listener_nonce[AUTH_NONCE], listener_public[AUTH_PUBLIC];
	uint8_t client_nonce[AUTH_NONCE], client_public[AUTH_PUBLIC];
};

/* The proof of the end that has this role. */
void handshake_prove(const struct handshake *h, const uint8_t key[AUTH_KEY],
		     enum handshake_role role, uint8_t proof[AUTH_PROOF]);
bool handshake_check(const struct handshake *h, const uint8_t key[AUTH_KEY],
		     enum handshake_role role, const uint8_t proof[AUTH_PROOF]);
/* The keys of the connection for the end that has this role and this pair.
 * False: the other end's public key is not a valid one. */
bool handshake_keys(const struct handshake *h, const uint8_t key[AUTH_KEY],
		    enum handshake_role role, const struct auth_pair *pair,
		    struct seal_keys *keys);

#endif
