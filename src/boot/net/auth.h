/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cryptography of the control plane, with libsodium: keys of texts, proofs
 * that both ends of a connection know the key of an id, and the keys of one
 * connection.
 */
#ifndef DICOMM_BOOT_AUTH_H
#define DICOMM_BOOT_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

#define AUTH_KEY 32
#define AUTH_NONCE 32
#define AUTH_PROOF 32
#define AUTH_PUBLIC 32

/* An X25519 key pair, for one connection or one listener. */
struct auth_pair {
	uint8_t public[AUTH_PUBLIC];
	uint8_t secret[AUTH_KEY];
};

/* Call it before anything else here. Any thread, any number of times. */
dicomm_result_t auth_init(void);
void auth_random(uint8_t *out, size_t len);

/* Hash a text to a key, the same on all machines. purpose keeps keys of
 * different uses apart. */
void auth_key_from_text(const char *purpose, const char *text,
			uint8_t key[AUTH_KEY]);
/* Derive a key from a secret that people chose, at a place (host:port).
 * Argon2id makes each guess of the secret cost AUTH_STRETCH_BYTES of memory and
 * tens of milliseconds, here and for whoever recorded a handshake. A secret of
 * 64 hexadecimal digits cannot be guessed and is hashed only. ERR_NO_MEMORY. */
#define AUTH_STRETCH_BYTES (16 << 20)
#define AUTH_STRETCH_PASSES 3
dicomm_result_t auth_key_from_secret(const char *place, const char *secret,
				     uint8_t key[AUTH_KEY]);
/* Derive the key of one communicator from the key of its id. */
void auth_key_derive(const uint8_t key[AUTH_KEY],
		     const uint8_t nonce[AUTH_NONCE], uint8_t out[AUTH_KEY]);

/* Prove knowledge of the key and of a statement, len bytes. purpose keeps
 * proofs of different uses, and of the two ends, apart. */
void auth_prove(const uint8_t key[AUTH_KEY], const char *purpose,
		const void *statement, size_t len, uint8_t proof[AUTH_PROOF]);
/* Check a proof, in constant time. */
bool auth_check(const uint8_t key[AUTH_KEY], const char *purpose,
		const void *statement, size_t len,
		const uint8_t proof[AUTH_PROOF]);

void auth_make_pair(struct auth_pair *pair);
/* Agree on the two keys of a connection, by X25519 with the public key of the
 * other end; the key of the id goes in, too. False: the other end's public key
 * is not a valid one. */
bool auth_agree(const uint8_t key[AUTH_KEY], const struct auth_pair *pair,
		const uint8_t other[AUTH_PUBLIC], const void *statement,
		size_t len, uint8_t to_client[AUTH_KEY],
		uint8_t to_listener[AUTH_KEY]);

/* Overwrite a secret with zeros. */
void auth_forget(void *secret, size_t len);

#endif
