/* SPDX-License-Identifier: BSD-3-Clause */
/* Packs and checks the address of a rank, and seals and checks the messages
 * that make a channel. */
#include "transports/verbs/channel/address.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "src/base/hash.h"
#include "transports/transport.h"
#include "transports/verbs/nic/gid.h"

#define MAGIC 0x42524556u /* "VERB" */
#define VERSION 6

_Static_assert(sizeof(struct verbs_address) <= 252, "must fit a blob");
_Static_assert(sizeof(struct verbs_qp_address) == 176 &&
		       sizeof(struct verbs_connect_msg) ==
			       376 + VERBS_QPS * 176,
	       "has no padding");
_Static_assert(crypto_auth_BYTES == 32 && crypto_auth_KEYBYTES == VERBS_KEY,
	       "sizes of key and proof");

static uint64_t check_of(const struct verbs_address *a)
{
	struct verbs_address copy = *a;

	copy.check = 0;
	return hash_bytes(HASH_START, &copy, sizeof(copy));
}

void verbs_address_pack(struct verbs_address *a, struct tp_blob *blob)
{
	a->magic = MAGIC;
	a->version = VERSION;
	a->check = check_of(a);
	memset(blob, 0, sizeof(*blob));
	blob->len = sizeof(*a);
	memcpy(blob->data, a, sizeof(*a));
}

bool verbs_address_parse(const struct tp_blob *blob, struct verbs_address *a,
			 char *why, size_t len)
{
	if (blob->len != sizeof(*a)) {
		snprintf(why, len,
			 "its verbs address has %" PRIu32 " bytes, not %zu",
			 blob->len, sizeof(*a));
		return false;
	}
	memcpy(a, blob->data, sizeof(*a));
	if (a->magic != MAGIC) {
		snprintf(why, len, "its address is not one of verbs");
		return false;
	}
	if (a->version != VERSION) {
		snprintf(why, len,
			 "its verbs address has version %" PRIu32 ", not %d",
			 a->version, VERSION);
		return false;
	}
	if (a->check != check_of(a) || a->rank >= a->ranks ||
	    a->fabric > VERBS_IWARP || !a->rails || a->rails > VERBS_RAILS ||
	    a->listen[sizeof(a->listen) - 1] || a->host[sizeof(a->host) - 1] ||
	    a->nic[sizeof(a->nic) - 1]) {
		snprintf(why, len, "its verbs address is damaged");
		return false;
	}
	return true;
}

void verbs_msg_seal(struct verbs_connect_msg *msg, const uint8_t key[VERBS_KEY])
{
	msg->magic = MAGIC;
	msg->version = VERSION;
	crypto_auth(msg->proof, (const uint8_t *)msg,
		    offsetof(struct verbs_connect_msg, proof), key);
}

bool verbs_msg_is_genuine(const struct verbs_connect_msg *msg,
			  const uint8_t key[VERBS_KEY])
{
	return msg->magic == MAGIC && msg->version == VERSION &&
	       !msg->why[sizeof(msg->why) - 1] &&
	       !crypto_auth_verify(msg->proof, (const uint8_t *)msg,
				   offsetof(struct verbs_connect_msg, proof),
				   key);
}
