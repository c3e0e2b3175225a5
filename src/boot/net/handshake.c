/* SPDX-License-Identifier: BSD-3-Clause */
/* The proofs and keys of a handshake. */
#include "src/boot/net/handshake.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(struct handshake) == 2 * (AUTH_NONCE + AUTH_PUBLIC),
	      "bytes only: it is hashed as it is");

static const char *const purposes[] = {
	[HANDSHAKE_LISTENER] = "dicomm proof of listener",
	[HANDSHAKE_CLIENT] = "dicomm proof of client",
	[HANDSHAKE_ASKER] = "dicomm proof of asker",
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

/* What the proof of an answer covers. It consists of bytes only, without
 * padding. */
struct statement {
	uint8_t nonce[AUTH_NONCE];
	uint8_t rank[4], state[4];
};

static struct statement make_statement(const uint8_t nonce[AUTH_NONCE],
				       uint32_t rank, uint32_t state)
{
	struct statement s;

	memcpy(s.nonce, nonce, AUTH_NONCE);
	for (int i = 0; i < 4; i++) {
		s.rank[i] = (uint8_t)(rank >> 8 * i);
		s.state[i] = (uint8_t)(state >> 8 * i);
	}
	return s;
}

bool handshake_answer(const struct handshake_alive *a, struct frame_reader *in,
		      struct frame_writer *out)
{
	uint8_t nonce[AUTH_NONCE], proof[AUTH_PROOF];
	struct statement s;

	frame_get_bytes(in, nonce, sizeof(nonce));
	if (!frame_done(in))
		return false;
	s = make_statement(nonce, a->rank, a->state);
	auth_prove(a->key, "dicomm alive", &s, sizeof(s), proof);
	frame_begin(out, FRAME_ALIVE);
	frame_put_u32(out, a->state);
	frame_put_bytes(out, proof, sizeof(proof));
	return true;
}

bool handshake_is_alive(const uint8_t key[AUTH_KEY], uint32_t rank,
			const uint8_t nonce[AUTH_NONCE],
			struct frame_reader *in, uint32_t *state)
{
	uint8_t proof[AUTH_PROOF];
	struct statement s;

	*state = frame_get_u32(in);
	frame_get_bytes(in, proof, sizeof(proof));
	s = make_statement(nonce, rank, *state);
	return frame_done(in) &&
	       auth_check(key, "dicomm alive", &s, sizeof(s), proof);
}
