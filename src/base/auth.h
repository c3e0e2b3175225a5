/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cryptography of connections, with libsodium: keys made from texts, proofs
 * that both ends of a connection know a key, and the keys of a connection.
 */
#ifndef DICOMM_BASE_AUTH_H
#define DICOMM_BASE_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

#define AUTH_KEY 32
#define AUTH_NONCE 32
#define AUTH_PROOF 32
#define AUTH_PUBLIC 32

/* An X25519 key pair, of one connection or one listener. */
struct auth_pair {
	uint8_t public[AUTH_PUBLIC];
	uint8_t secret[AUTH_KEY];
};

/* Must be called before any other function here. Any thread may call it, any
 * number of times. */
dicomm_result_t auth_init(void);
void auth_random(uint8_t *out, size_t len);

/* Hashes a text to a key; the result is the same on all machines. Different
 * purposes give different keys. */
void auth_key_from_text(const char *purpose, const char *text,
			uint8_t key[AUTH_KEY]);
/* Derives a key from a secret that people chose and from a place (host:port).
 * With Argon2id, each guess of the secret costs AUTH_STRETCH_BYTES of memory
 * and tens of milliseconds, here and for anybody who recorded a handshake. A
 * secret that auth_is_random() cannot be guessed, so it is only hashed.
 * Returns DICOMM_ERR_NO_MEMORY if there is no memory. */
#define AUTH_STRETCH_BYTES (16 << 20)
#define AUTH_STRETCH_PASSES 3
dicomm_result_t auth_key_from_secret(const char *place, const char *secret,
				     uint8_t key[AUTH_KEY]);
/* Returns true if the secret looks as if a program had made it of 32 random
 * bytes: 64 hexadecimal digits, or base64 of 44 characters with its "=", and in
 * either case of many different characters. */
bool auth_is_random(const char *secret);
/* Derives the key of one communicator from the key of its id. */
void auth_key_derive(const uint8_t key[AUTH_KEY],
		     const uint8_t nonce[AUTH_NONCE], uint8_t out[AUTH_KEY]);

/* Makes a proof that this process knows the key and a statement of len bytes.
 * Different purposes give different proofs, so that a proof of one end or for
 * one use is not valid for another. */
void auth_prove(const uint8_t key[AUTH_KEY], const char *purpose,
		const void *statement, size_t len, uint8_t proof[AUTH_PROOF]);
/* Returns true if the proof is valid. Takes the same time in both cases. */
bool auth_check(const uint8_t key[AUTH_KEY], const char *purpose,
		const void *statement, size_t len,
		const uint8_t proof[AUTH_PROOF]);

void auth_make_pair(struct auth_pair *pair);
/* Computes the two keys of a connection by X25519, from this end's key pair,
 * the other end's public key and the key of the id. Returns false if the other
 * end's public key is invalid. */
bool auth_agree(const uint8_t key[AUTH_KEY], const struct auth_pair *pair,
		const uint8_t other[AUTH_PUBLIC], const void *statement,
		size_t len, uint8_t to_client[AUTH_KEY],
		uint8_t to_listener[AUTH_KEY]);

/* Overwrites a secret with zeros. */
void auth_forget(void *secret, size_t len);

#endif
