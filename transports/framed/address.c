/* SPDX-License-Identifier: BSD-3-Clause */
/* What the addresses of ranks begin with: of which machine, job and rank. */
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/descriptors.h"
#include "transports/framed/framed.h"

#define PROOF_BYTES sizeof(((struct framed_address *)0)->proof)
#define KEY_BYTES sizeof(((struct tp_config *)0)->key)

_Static_assert(sizeof(struct framed_address) == 56, "as docs/wire.md says");
_Static_assert(crypto_generichash_BYTES_MIN <= PROOF_BYTES &&
		       crypto_generichash_KEYBYTES_MIN <= KEY_BYTES &&
		       KEY_BYTES <= crypto_generichash_KEYBYTES_MAX,
	       "sizes of key and proof");

static void read_file(const char *path, char *text, size_t len)
{
	int fd = descriptors_high(open(path, O_RDONLY | O_CLOEXEC));
	ssize_t n;

	if (fd < 0)
		return;
	n = read(fd, text, len - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
}

uint64_t framed_address_network(void)
{
	struct {
		char boot_id[64];
		uint64_t net;
	} id;
	uint64_t hash = 0;
	struct stat st;

	memset(&id, 0, sizeof(id));
	read_file("/proc/sys/kernel/random/boot_id", id.boot_id,
		  sizeof(id.boot_id));
	if (stat("/proc/self/ns/net", &st) == 0)
		id.net = st.st_ino;
	crypto_generichash((uint8_t *)&hash, sizeof(hash), (uint8_t *)&id,
			   sizeof(id), NULL, 0);
	return hash;
}

static void prove(const struct framed *f, struct framed_address *a,
		  size_t bytes)
{
	uint8_t proof[PROOF_BYTES];

	memset(a->proof, 0, PROOF_BYTES);
	crypto_generichash(proof, PROOF_BYTES, (const uint8_t *)a, bytes,
			   f->config.key, KEY_BYTES);
	memcpy(a->proof, proof, PROOF_BYTES);
}

void framed_address_make(const struct framed *f, struct framed_address *a,
			 size_t bytes, struct tp_blob *blob)
{
	a->magic = f->ops->magic;
	a->version = f->ops->version;
	a->token = f->token;
	a->network = f->network;
	a->terms = (struct terms){.rank = (uint32_t)f->config.rank,
				  .ranks = (uint32_t)f->config.ranks,
				  .slots = f->config.slots,
				  .slot_bytes = f->config.slot_bytes};
	prove(f, a, bytes);
	memset(blob, 0, sizeof(*blob));
	blob->len = (uint32_t)bytes;
	memcpy(blob->data, a, bytes);
}

bool framed_address_damaged(const struct framed *f, char *why, size_t len)
{
	snprintf(why, len, "its %s address is damaged, or from another job",
		 f->ops->name);
	return false;
}

bool framed_address_parse(const struct framed *f, const struct tp_blob *blob,
			  struct framed_address *a, size_t bytes, char *why,
			  size_t len)
{
	uint8_t proof[PROOF_BYTES];

	memset(a, 0, bytes);
	if (blob->len <= bytes)
		memcpy(a, blob->data, blob->len);
	if (a->magic != f->ops->magic || a->version != f->ops->version) {
		snprintf(why, len,
			 "its %s address is of version %#" PRIx32 ".%" PRIu32
			 ", mine of %#" PRIx32 ".%" PRIu32,
			 f->ops->name, a->magic, a->version, f->ops->magic,
			 f->ops->version);
		return false;
	}
	memcpy(proof, a->proof, PROOF_BYTES);
	prove(f, a, blob->len);
	return !sodium_memcmp(proof, a->proof, PROOF_BYTES) ||
	       framed_address_damaged(f, why, len);
}
