/* SPDX-License-Identifier: BSD-3-Clause */
/* Proofs and keys of a handshake. */
#include "src/boot/net/handshake.h"

#include <assert.h>

static_assert(sizeof(struct handshake) == 2 * (AUTH_NONCE + AUTH_PUBLIC),
	      "bytes only: it is hashed as it is");

static const char *const purposes[] = {
	[HANDSHAKE_LISTENER] = "dicomm proof of listener",
	[HANDSHAKE_CLIENT] = "dicomm proof of client",
};

void handshake_prove(const struct handshake *h, const uint8_t key[AUTH_KEY],
		     enum handshake_role role, uint8_t proof[AUTH_PROOF])
{
	auth_prove(key, purposes[role], h, sizeof(*h), proof);
}

bool handshake_check(const struct handshake *h, const uint8_t key[AUTH_KEY],
		     enum handshake_role role, const uint8_t proof[AUTH_PROOF])
{
	return auth_check(key, purposes[role], h, sizeof(*h), proof);
}

bool handshake_keys(const struct handshake *h, const uint8_t key[AUTH_KEY],
		    enum handshake_role role, const struct auth_pair *pair,
		    struct seal_keys *keys)
{
	bool listens = role == HANDSHAKE_LISTENER;

	return auth_agree(key, pair,
			  listens ? h->client_public : h->listener_public, h,
			  sizeof(*h), listens ? keys->send : keys->receive,
			  listens ? keys->receive : keys->send);
}
