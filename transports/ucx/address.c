/* SPDX-License-Identifier: BSD-3-Clause */
/* The address of a rank, and the interface by which it is reached. */
#include "transports/ucx/address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "transports/ucx/device.h"

#define MAGIC 0x58435544u /* "DUCX" */
#define VERSION 3

_Static_assert(sizeof(struct ucx_address) <=
		       sizeof(((struct tp_blob *)0)->data),
	       "must fit a blob");
_Static_assert(crypto_generichash_BYTES_MIN <= 16 &&
		       crypto_generichash_KEYBYTES_MIN <= UCX_KEY &&
		       UCX_KEY <= crypto_generichash_KEYBYTES_MAX,
	       "sizes of key and proof");

static bool read_file(const char *path, char *text, size_t len)
{
	int fd = descriptors_high(open(path, O_RDONLY | O_CLOEXEC));
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, text, len - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

uint64_t ucx_network(void)
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

/* Is `text` the address `a`, without brackets and port? */
static bool is_address(const struct sockaddr *a, const char *text)
{
	char mine[INET6_ADDRSTRLEN];
	const void *bytes;

	if (!a || (a->sa_family != AF_INET && a->sa_family != AF_INET6))
		return false;
	bytes = a->sa_family == AF_INET
			? (const void *)&(
				  (const struct sockaddr_in *)(const void *)a)
				  ->sin_addr
			: (const void *)&(
				  (const struct sockaddr_in6 *)(const void *)a)
				  ->sin6_addr;
	return inet_ntop(a->sa_family, bytes, mine, sizeof(mine)) &&
	       !strcmp(mine, text);
}

static void interface_of(const char *address, struct ucx_interface *out)
{
	struct ifaddrs *all, *i;

	if (getifaddrs(&all) < 0)
		return;
	for (i = all; i; i = i->ifa_next)
		if (strlen(i->ifa_name) < sizeof(out->name) &&
		    is_address(i->ifa_addr, address)) {
			strcpy(out->name, i->ifa_name);
			out->loopback = i->ifa_flags & IFF_LOOPBACK;
			break;
		}
	freeifaddrs(all);
}

void ucx_interface_find(const struct tp_config *config,
			struct ucx_interface *out)
{
	char text[80] = "", *begin = text, *end;
	int fd;

	memset(out, 0, sizeof(*out));
	if (!config->listen || config->listen(&fd, text) != DICOMM_SUCCESS)
		return;
	close(fd);
	end = strrchr(text, ':');
	if (!end)
		return;
	*end = '\0';
	if (*begin == '[') {
		begin++;
		begin[strcspn(begin, "]%")] = '\0';
	}
	interface_of(begin, out);
}

static uint32_t bytes_of(const struct ucx_address *a)
{
	return (uint32_t)offsetof(struct ucx_address, worker) + a->worker_len;
}

static void prove(const struct ucx_address *a, const uint8_t key[UCX_KEY],
		  uint8_t proof[16])
{
	struct ucx_address copy = *a;

	memset(copy.proof, 0, sizeof(copy.proof));
	crypto_generichash(proof, sizeof(copy.proof), (const uint8_t *)&copy,
			   bytes_of(a), key, UCX_KEY);
}

static bool is_proven(const struct ucx_address *a, const uint8_t key[UCX_KEY],
		      uint32_t len)
{
	uint8_t proof[sizeof(a->proof)];

	if (a->worker_len > sizeof(a->worker) || len != bytes_of(a))
		return false;
	prove(a, key, proof);
	return !sodium_memcmp(proof, a->proof, sizeof(proof));
}

void ucx_address_make(const struct tp_device *dev, struct tp_blob *blob)
{
	struct ucx_address a;

	memset(&a, 0, sizeof(a));
	a.magic = MAGIC;
	a.version = VERSION;
	a.token = dev->token;
	a.network = dev->network;
	a.rank = (uint32_t)dev->base.config.rank;
	a.ranks = (uint32_t)dev->base.config.ranks;
	a.slots = dev->base.config.slots;
	a.slot_bytes = dev->base.config.slot_bytes;
	a.loopback = dev->interface.loopback;
	memcpy(a.interface, dev->interface.name, sizeof(a.interface));
	a.worker_len = dev->worker_address_len;
	memcpy(a.worker, dev->worker_address, dev->worker_address_len);
	prove(&a, dev->base.config.key, a.proof);
	memset(blob, 0, sizeof(*blob));
	blob->len = bytes_of(&a);
	memcpy(blob->data, &a, blob->len);
}

bool ucx_address_parse(const struct tp_device *dev, const struct tp_blob *blob,
		       struct ucx_address *a, char *why, size_t len)
{
	memset(a, 0, sizeof(*a));
	if (blob->len <= sizeof(*a))
		memcpy(a, blob->data, blob->len);
	if (a->magic != MAGIC || a->version != VERSION) {
		snprintf(why, len,
			 "its ucx address is of version %#" PRIx32 ".%" PRIu32
			 ", mine of %#x.%d",
			 a->magic, a->version, MAGIC, VERSION);
		return false;
	}
	if (!is_proven(a, dev->base.config.key, blob->len)) {
		snprintf(why, len,
			 "its ucx address is damaged, or from another job");
		return false;
	}
	a->interface[sizeof(a->interface) - 1] = '\0';
	if ((a->loopback || dev->interface.loopback) &&
	    a->network != dev->network) {
		snprintf(why, len,
			 "it is on another machine, its interface is %s, mine "
			 "is %s (see DICOMM_SOCKET_IFNAME)",
			 a->interface, dev->interface.name);
		return false;
	}
	return true;
}
