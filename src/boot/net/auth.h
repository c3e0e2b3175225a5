/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The proof that both ends of a connection know the key of an id. Each end
 * sends a nonce, and a keyed hash of both nonces and of its own role. The key
 * does not travel, and a proof can be neither replayed nor reflected.
 */
#ifndef DICOMM_BOOT_AUTH_H
#define DICOMM_BOOT_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

#define AUTH_KEY 32
#define AUTH_NONCE 32
#define AUTH_PROOF 32

enum auth_role { AUTH_LISTENER, AUTH_CLIENT };

/* Call it before anything else here. Any thread, any number of times. */
dicomm_result_t auth_init(void);
void auth_random(uint8_t *out, size_t len);

/* Hash a text to a key, the same on all machines. purpose keeps keys of
 * different uses apart. */
void auth_key_from_text(const char *purpose, const char *text,
			uint8_t key[AUTH_KEY]);
/* Derive the key of one communicator from the key of its id. */
void auth_key_derive(const uint8_t key[AUTH_KEY],
		     const uint8_t nonce[AUTH_NONCE], uint8_t out[AUTH_KEY]);

void auth_prove(const uint8_t key[AUTH_KEY], enum auth_role role,
		const uint8_t listener[AUTH_NONCE],
		const uint8_t client[AUTH_NONCE], uint8_t proof[AUTH_PROOF]);
/* Check a proof, in constant time. */
bool auth_check(const uint8_t key[AUTH_KEY], enum auth_role role,
		const uint8_t listener[AUTH_NONCE],
		const uint8_t client[AUTH_NONCE],
		const uint8_t proof[AUTH_PROOF]);
/* Overwrite a secret with zeros. */
void auth_forget(void *secret, size_t len);

#endif
