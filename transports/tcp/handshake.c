/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/tcp/handshake.h"

#include <stdlib.h>
#include <string.h>

bool tcp_handshake_begin(struct tcp_conn *c)
{
	c->handshake = calloc(1, sizeof(*c->handshake));
	if (!c->handshake)
		return false;
	c->dev->pending++;
	return true;
}

void tcp_handshake_end(struct tcp_conn *c)
{
	strangers_remove(&c->dev->strangers, &c->stranger);
	if (!c->handshake)
		return;
	c->dev->pending--;
	sodium_memzero(c->handshake, sizeof(*c->handshake));
	free(c->handshake);
	c->handshake = NULL;
}

void tcp_handshake_make_pair(struct tcp_conn *c, uint8_t public[AUTH_PUBLIC])
{
	if (c->dev->protection != TCP_ENCRYPTED)
		return;
	auth_make_pair(&c->handshake->pair);
	memcpy(public, c->handshake->pair.public, AUTH_PUBLIC);
}

void tcp_handshake_prove_hello(const struct tcp_hello *h,
			       const uint8_t key[TCP_KEY],
			       uint8_t proof[TCP_PROOF])
{
	crypto_auth(proof, (const uint8_t *)h,
		    offsetof(struct tcp_hello, proof), key);
}

void tcp_handshake_prove_answer(const struct tcp_handshake *g,
				const uint8_t key[TCP_KEY],
				uint8_t proof[TCP_PROOF])
{
	uint8_t all[sizeof(g->hello) + offsetof(struct tcp_answer, proof)];

	memcpy(all, &g->hello, sizeof(g->hello));
	memcpy(all + sizeof(g->hello), &g->answer,
	       offsetof(struct tcp_answer, proof));
	crypto_auth(proof, all, sizeof(all), key);
}

void tcp_handshake_prove_confirm(const struct tcp_handshake *g,
				 const uint8_t key[TCP_KEY],
				 uint8_t proof[TCP_PROOF])
{
	struct {
		uint32_t type, zero;
		struct tcp_hello hello;
		struct tcp_answer answer;
	} all;

	memset(&all, 0, sizeof(all));
	all.type = TCP_CONFIRM;
	all.hello = g->hello;
	all.answer = g->answer;
	crypto_auth(proof, (const uint8_t *)&all, sizeof(all), key);
}

/*
 * The key of the connection depends on the nonces of both sides. The key of an
 * encrypted one depends also on key pairs that both sides delete at once: so a
 * recording cannot be read later, even with the key of the communicator.
 */
bool tcp_handshake_secret(const struct tcp_conn *c,
			  uint8_t secret[TCP_SEAL_KEY])
{
	const struct tcp_handshake *g = c->handshake;
	const uint8_t *key = c->dev->base.config.key;
	uint8_t all[sizeof(g->hello) + sizeof(g->answer)], other[AUTH_KEY];
	bool good = true;

	_Static_assert(TCP_SEAL_KEY == AUTH_KEY && TCP_KEY == AUTH_KEY,
		       "sizes");
	memcpy(all, &g->hello, sizeof(g->hello));
	memcpy(all + sizeof(g->hello), &g->answer, sizeof(g->answer));
	if (c->dev->protection == TCP_ENCRYPTED)
		good = auth_agree(key, &g->pair,
				  c->link->initiator ? g->answer.public
						     : g->hello.public,
				  all, sizeof(all), secret, other);
	else
		auth_prove(key, "dicomm signed wires", all, sizeof(all),
			   secret);
	/* tcp_seal_open() makes the keys of both directions of one. */
	sodium_memzero(other, sizeof(other));
	return good;
}
