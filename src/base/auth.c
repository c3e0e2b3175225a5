/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys and proofs: BLAKE2b, HMAC-SHA-512-256, X25519, Argon2id. */
#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "src/base/log.h"
#include "src/base/auth.h"

static_assert(AUTH_KEY == crypto_auth_KEYBYTES, "size of a key");
static_assert(AUTH_PROOF == crypto_auth_BYTES, "size of a proof");
static_assert(AUTH_PUBLIC == crypto_scalarmult_BYTES, "size of a public key");
static_assert(AUTH_KEY == crypto_scalarmult_SCALARBYTES, "of a secret key");

/* Characters of a secret that a program made of 32 random bytes, as hexadecimal
 * digits or in base64, and how many different ones it has at least. Of a
 * million random ones hardly any has fewer; it is stretched for nothing. What
 * people write has no such form, or repeats few characters. */
#define HEX_LENGTH 64
#define HEX_DIFFERENT 10
#define BASE64_LENGTH 44
#define BASE64_DIFFERENT 20

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

	/* Includes the NUL, so that ("ab", "c") and ("a", "bc") give different
	 * keys. */
	crypto_generichash_init(&state, NULL, 0, AUTH_KEY);
	crypto_generichash_update(&state, (const uint8_t *)purpose,
				  strlen(purpose) + 1);
	crypto_generichash_update(&state, (const uint8_t *)text, strlen(text));
	crypto_generichash_final(&state, key, AUTH_KEY);
	sodium_memzero(&state, sizeof(state));
}

static int count_different(const char *text)
{
	bool seen[256] = {false};
	int n = 0;

	for (; *text; text++) {
		n += !seen[(unsigned char)*text];
		seen[(unsigned char)*text] = true;
	}
	return n;
}

static bool is_hex(const char *secret)
{
	return strlen(secret) == HEX_LENGTH &&
	       strspn(secret, "0123456789abcdefABCDEF") == HEX_LENGTH &&
	       count_different(secret) >= HEX_DIFFERENT;
}

static bool has_one_of(const char *text, const char *characters)
{
	return text[strcspn(text, characters)] != '\0';
}

/* With its "=", and as the encoding of 32 bytes: words are not. */
static bool is_base64(const char *secret)
{
	uint8_t bytes[AUTH_KEY];
	size_t len = strlen(secret), n = 0;
	bool right =
		len == BASE64_LENGTH &&
		(!sodium_base642bin(bytes, sizeof(bytes), secret, len, NULL, &n,
				    NULL, sodium_base64_VARIANT_ORIGINAL) ||
		 !sodium_base642bin(bytes, sizeof(bytes), secret, len, NULL, &n,
				    NULL, sodium_base64_VARIANT_URLSAFE));

	sodium_memzero(bytes, sizeof(bytes));
	return right && n == AUTH_KEY && has_one_of(secret, "0123456789") &&
	       has_one_of(secret, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") &&
	       has_one_of(secret, "abcdefghijklmnopqrstuvwxyz") &&
	       count_different(secret) >= BASE64_DIFFERENT;
}

bool auth_is_random(const char *secret)
{
	return is_hex(secret) || is_base64(secret);
}

dicomm_result_t auth_key_from_secret(const char *place, const char *secret,
				     uint8_t key[AUTH_KEY])
{
	uint8_t salt[AUTH_KEY], stretched[AUTH_KEY];
	char text[2 * AUTH_KEY + 1];

	auth_key_from_text("dicomm place", place, salt);
	/* Without a secret there is nothing to guess. */
	if (!*secret) {
		memcpy(key, salt, AUTH_KEY);
		return DICOMM_SUCCESS;
	}
	if (auth_is_random(secret)) {
		auth_prove(salt, "dicomm secret", secret, strlen(secret), key);
		return DICOMM_SUCCESS;
	}
	static_assert(AUTH_KEY >= crypto_pwhash_SALTBYTES, "a salt is a key");
	if (crypto_pwhash(stretched, sizeof(stretched), secret, strlen(secret),
			  salt, AUTH_STRETCH_PASSES, AUTH_STRETCH_BYTES,
			  crypto_pwhash_ALG_ARGON2ID13))
		return FAIL(
			DICOMM_ERR_NO_MEMORY,
			"DICOMM_COMM_KEY: no memory to stretch it, which "
			"takes %d MiB for a moment; a key of %d hexadecimal "
			"digits needs none",
			AUTH_STRETCH_BYTES >> 20, HEX_LENGTH);
	sodium_bin2hex(text, sizeof(text), stretched, sizeof(stretched));
	auth_prove(salt, "dicomm secret", text, sizeof(text) - 1, key);
	sodium_memzero(stretched, sizeof(stretched));
	sodium_memzero(text, sizeof(text));
	return DICOMM_SUCCESS;
}

void auth_key_derive(const uint8_t key[AUTH_KEY],
		     const uint8_t nonce[AUTH_NONCE], uint8_t out[AUTH_KEY])
{
	auth_prove(key, "dicomm hub", nonce, AUTH_NONCE, out);
}

void auth_prove(const uint8_t key[AUTH_KEY], const char *purpose,
		const void *statement, size_t len, uint8_t proof[AUTH_PROOF])
{
	crypto_auth_hmacsha512256_state state;

	/* Includes the NUL of the purpose, so that it cannot run into the
	 * statement. */
	crypto_auth_hmacsha512256_init(&state, key, AUTH_KEY);
	crypto_auth_hmacsha512256_update(&state, (const uint8_t *)purpose,
					 strlen(purpose) + 1);
	crypto_auth_hmacsha512256_update(&state, statement, len);
	crypto_auth_hmacsha512256_final(&state, proof);
	sodium_memzero(&state, sizeof(state));
}

bool auth_check(const uint8_t key[AUTH_KEY], const char *purpose,
		const void *statement, size_t len,
		const uint8_t proof[AUTH_PROOF])
{
	uint8_t right[AUTH_PROOF];
	bool same;

	auth_prove(key, purpose, statement, len, right);
	same = !sodium_memcmp(right, proof, sizeof(right));
	sodium_memzero(right, sizeof(right));
	return same;
}

void auth_make_pair(struct auth_pair *pair)
{
	randombytes_buf(pair->secret, sizeof(pair->secret));
	crypto_scalarmult_base(pair->public, pair->secret);
}

bool auth_agree(const uint8_t key[AUTH_KEY], const struct auth_pair *pair,
		const uint8_t other[AUTH_PUBLIC], const void *statement,
		size_t len, uint8_t to_client[AUTH_KEY],
		uint8_t to_listener[AUTH_KEY])
{
	uint8_t shared[AUTH_KEY], mixed[AUTH_KEY];

	if (crypto_scalarmult(shared, pair->secret, other))
		return false;
	/* The keys depend on both secrets: nobody can read who learns only
	 * one. */
	auth_prove(key, "dicomm shared", shared, sizeof(shared), mixed);
	auth_prove(mixed, "dicomm to client", statement, len, to_client);
	auth_prove(mixed, "dicomm to listener", statement, len, to_listener);
	sodium_memzero(shared, sizeof(shared));
	sodium_memzero(mixed, sizeof(mixed));
	return true;
}

void auth_forget(void *secret, size_t len)
{
	sodium_memzero(secret, len);
}
