/* SPDX-License-Identifier: BSD-3-Clause */
/* The address of a rank. */
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transports/tcp/tcp.h"

#include "src/base/descriptors.h"

#define MAGIC 0x50435444u /* "DTCP" */
#define VERSION 2

_Static_assert(sizeof(struct tcp_address) <=
		       sizeof(((struct tp_blob *)0)->data),
	       "must fit a blob");
_Static_assert(crypto_generichash_BYTES_MIN <= 16 &&
		       crypto_generichash_KEYBYTES_MIN <= TCP_KEY &&
		       TCP_KEY <= crypto_generichash_KEYBYTES_MAX,
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

uint64_t tcp_address_network(void)
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

const char *tcp_address_protection(uint32_t protection)
{
	static const char *const names[TCP_PROTECTIONS] = {
		[TCP_CLEAR] = "off",
		[TCP_SIGNED] = "sign",
		[TCP_ENCRYPTED] = "on"};

	return protection < TCP_PROTECTIONS ? names[protection] : "unknown";
}

static void prove(const struct tcp_address *a, const uint8_t key[TCP_KEY],
		  uint8_t proof[16])
{
	struct tcp_address copy = *a;

	memset(copy.proof, 0, sizeof(copy.proof));
	crypto_generichash(proof, sizeof(copy.proof), (const uint8_t *)&copy,
			   sizeof(copy), key, TCP_KEY);
}

void tcp_address_make(const struct tp_device *dev, struct tp_blob *blob)
{
	struct tcp_address a;

	memset(&a, 0, sizeof(a));
	a.magic = MAGIC;
	a.version = VERSION;
	a.token = dev->token;
	a.network = dev->network;
	a.rank = (uint32_t)dev->base.config.rank;
	a.ranks = (uint32_t)dev->base.config.ranks;
	a.slots = dev->base.config.slots;
	a.slot_bytes = dev->base.config.slot_bytes;
	a.loopback = dev->loopback;
	a.protection = dev->protection;
	memcpy(a.listen, dev->listen, sizeof(a.listen));
	prove(&a, dev->base.config.key, a.proof);
	memset(blob, 0, sizeof(*blob));
	blob->len = sizeof(a);
	memcpy(blob->data, &a, sizeof(a));
}

static bool is_proven(const struct tcp_address *a, const uint8_t key[TCP_KEY])
{
	uint8_t proof[sizeof(a->proof)];

	prove(a, key, proof);
	return !sodium_memcmp(proof, a->proof, sizeof(proof));
}

bool tcp_address_parse(const struct tp_device *dev, const struct tp_blob *blob,
		       struct tcp_address *a, char *why, size_t len)
{
	memset(a, 0, sizeof(*a));
	if (blob->len == sizeof(*a))
		memcpy(a, blob->data, sizeof(*a));
	if (a->magic != MAGIC || a->version != VERSION) {
		snprintf(why, len,
			 "its tcp address is of version %#" PRIx32 ".%" PRIu32
			 ", mine of %#x.%d",
			 a->magic, a->version, MAGIC, VERSION);
		return false;
	}
	if (!is_proven(a, dev->base.config.key) ||
	    a->listen[sizeof(a->listen) - 1]) {
		snprintf(why, len,
			 "its tcp address is damaged, or from another job");
		return false;
	}
	if (a->protection != dev->protection) {
		snprintf(why, len, "DICOMM_ENCRYPT is %s there, and %s here",
			 tcp_address_protection(a->protection),
			 tcp_address_protection(dev->protection));
		return false;
	}
	if ((a->loopback || dev->loopback) && a->network != dev->network) {
		snprintf(why, len,
			 "it is on another machine and listens at %s, this "
			 "rank at %s (see DICOMM_SOCKET_IFNAME)",
			 a->listen, dev->listen);
		return false;
	}
	return true;
}
