/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Proof that both ends of a connection know the secret of an id. Each sends a
 * nonce, and a keyed hash of both nonces and of its own role; the secret does
 * not travel, and a proof cannot be replayed or reflected.
 */
#ifndef DICOMM_BOOT_AUTH_H
#define DICOMM_BOOT_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

#define AUTH_KEY 32
#define AUTH_NONCE 32
#define AUTH_PROOF 32

enum auth_role { AUTH_LISTENER, AUTH_GUEST };

/* Once before anything else; any number of times, any thread. */
dicomm_result_t auth_init(void);
void auth_random(uint8_t *out, size_t len);

/* A key from a text and a key phrase, the same on all machines. */
void auth_key_from_text(const char *purpose, const char *text,
			uint8_t key[AUTH_KEY]);
/* The key of one communicator from that of its id. */
void auth_key_derive(const uint8_t key[AUTH_KEY],
		     const uint8_t nonce[AUTH_NONCE], uint8_t out[AUTH_KEY]);

void auth_prove(const uint8_t key[AUTH_KEY], enum auth_role role,
		const uint8_t listener[AUTH_NONCE],
		const uint8_t guest[AUTH_NONCE], uint8_t proof[AUTH_PROOF]);
/* In constant time. */
bool auth_check(const uint8_t key[AUTH_KEY], enum auth_role role,
		const uint8_t listener[AUTH_NONCE],
		const uint8_t guest[AUTH_NONCE],
		const uint8_t proof[AUTH_PROOF]);
void auth_forget(void *secret, size_t len);

#endif
