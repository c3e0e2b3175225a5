/* SPDX-License-Identifier: BSD-3-Clause */
/* The keyed handshake, with libsodium's HMAC-SHA-512-256. */
#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "src/base/log.h"
#include "src/boot/net/auth.h"

static_assert(AUTH_KEY == crypto_auth_KEYBYTES, "size of a key");
static_assert(AUTH_PROOF == crypto_auth_BYTES, "size of a proof");

/* What is hashed; bytes only, so that it has no padding. */
struct statement {
	char purpose[16];
	uint8_t role[16];
	uint8_t listener[AUTH_NONCE];
	uint8_t client[AUTH_NONCE];
};

dicomm_result_t auth_init(void)
{
	if (sodium_init() < 0)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "libsodium: no source of random numbers");
	return DICOMM_SUCCESS;
}

void auth_random(uint8_t *out, size_t len)
{
	randombytes_buf(out, len);
}

void auth_key_from_text(const char *purpose, const char *text,
			uint8_t key[AUTH_KEY])
{
	crypto_generichash_state state;

	/* With its NUL: ("ab", "c") is not ("a", "bc"). */
	crypto_generichash_init(&state, NULL, 0, AUTH_KEY);
	crypto_generichash_update(&state, (const uint8_t *)purpose,
				  strlen(purpose) + 1);
	crypto_generichash_update(&state, (const uint8_t *)text, strlen(text));
	crypto_generichash_final(&state, key, AUTH_KEY);
	sodium_memzero(&state, sizeof(state));
}

void auth_key_derive(const uint8_t key[AUTH_KEY],
		     const uint8_t nonce[AUTH_NONCE], uint8_t out[AUTH_KEY])
{
	struct statement s = {.purpose = "dicomm hub"};

	memcpy(s.listener, nonce, AUTH_NONCE);
	crypto_auth(out, (const uint8_t *)&s, sizeof(s), key);
}

static struct statement statement(enum auth_role role,
				  const uint8_t listener[AUTH_NONCE],
				  const uint8_t client[AUTH_NONCE])
{
	struct statement s = {.purpose = "dicomm proof"};

	s.role[0] = (uint8_t)role;
	memcpy(s.listener, listener, AUTH_NONCE);
	memcpy(s.client, client, AUTH_NONCE);
	return s;
}

void auth_prove(const uint8_t key[AUTH_KEY], enum auth_role role,
		const uint8_t listener[AUTH_NONCE],
		const uint8_t client[AUTH_NONCE], uint8_t proof[AUTH_PROOF])
{
	struct statement s = statement(role, listener, client);

	crypto_auth(proof, (const uint8_t *)&s, sizeof(s), key);
}

bool auth_check(const uint8_t key[AUTH_KEY], enum auth_role role,
		const uint8_t listener[AUTH_NONCE],
		const uint8_t client[AUTH_NONCE],
		const uint8_t proof[AUTH_PROOF])
{
	struct statement s = statement(role, listener, client);

	return !crypto_auth_verify(proof, (const uint8_t *)&s, sizeof(s), key);
}

void auth_forget(void *secret, size_t len)
{
	sodium_memzero(secret, len);
}
