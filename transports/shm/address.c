/* SPDX-License-Identifier: BSD-3-Clause */
/* The address of a rank: on which machine it is, and which descriptor of which
 * process holds its segment. */
#include "transports/shm/address.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/descriptors.h"
#include "src/base/hash.h"
#include "src/base/host.h"

#define MAGIC 0x4d485344u /* "DSHM" */
#define VERSION 4

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* The machine's boot id, once it has been read */
static _Atomic uint64_t kept[2];
static _Atomic bool is_kept;

static bool boot_id_read(uint64_t id[2])
{
	uint8_t *bytes = (uint8_t *)id;
	char text[64] = "";
	ssize_t n;
	int fd, digits = 0;

	fd = descriptors_high(
		open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	for (ssize_t i = 0; i < n && digits < 32; i++) {
		int d = hex_digit(text[i]);

		if (d < 0)
			continue;
		bytes[digits / 2] = (uint8_t)(bytes[digits / 2] << 4 | d);
		digits++;
	}
	return digits == 32;
}

/* All zero if the kernel does not give it; then the pid namespace decides. A
 * process that lacked descriptors looks again the next time. */
static void boot_id_get(uint64_t id[2])
{
	id[0] = id[1] = 0;
	if (atomic_load(&is_kept)) {
		id[0] = atomic_load(&kept[0]);
		id[1] = atomic_load(&kept[1]);
	} else if (boot_id_read(id)) {
		atomic_store(&kept[0], id[0]);
		atomic_store(&kept[1], id[1]);
		atomic_store(&is_kept, true);
	}
}

void shm_host_find(struct shm_host *h)
{
	uint64_t boot_id[2];
	struct stat st;

	memset(h, 0, sizeof(*h));
	boot_id_get(boot_id);
	_Static_assert(sizeof(h->boot_id) == sizeof(boot_id), "of 16 bytes");
	memcpy(h->boot_id, boot_id, sizeof(boot_id));
	if (stat("/proc/self/ns/pid", &st) == 0)
		h->pid_namespace = st.st_ino;
	h->host_id = host_name_hash();
}

static uint64_t address_check(const struct shm_address *a)
{
	struct shm_address copy = *a;

	copy.check = 0;
	return hash_bytes(HASH_START, &copy, sizeof(copy));
}

void shm_address_pack(struct shm_address *a, const struct shm_host *host,
		      struct tp_blob *blob)
{
	_Static_assert(sizeof(*a) <= sizeof(blob->data), "must fit");
	a->magic = MAGIC;
	a->version = VERSION;
	memcpy(a->boot_id, host->boot_id, sizeof(a->boot_id));
	a->pid_namespace = host->pid_namespace;
	a->host_id = host->host_id;
	a->check = address_check(a);
	memset(blob, 0, sizeof(*blob));
	blob->len = sizeof(*a);
	memcpy(blob->data, a, sizeof(*a));
}

bool shm_address_parse(const struct tp_blob *blob, struct shm_address *a,
		       char *why, size_t len)
{
	if (blob->len != sizeof(*a)) {
		snprintf(why, len,
			 "its shm address has %" PRIu32 " bytes, not %zu",
			 blob->len, sizeof(*a));
		return false;
	}
	memcpy(a, blob->data, sizeof(*a));
	if (a->magic != MAGIC) {
		snprintf(why, len, "its address is not one of shm");
		return false;
	}
	if (a->version != VERSION) {
		snprintf(why, len,
			 "its shm address has version %" PRIu32 ", not %d",
			 a->version, VERSION);
		return false;
	}
	if (a->check != address_check(a) || a->pid <= 0 || a->fd < 0 ||
	    a->rank >= a->ranks) {
		snprintf(why, len, "its shm address is damaged");
		return false;
	}
	return true;
}

bool shm_address_is_local(const struct shm_address *a,
			  const struct shm_host *host, char *why, size_t len)
{
	if (memcmp(a->boot_id, host->boot_id, sizeof(host->boot_id)) != 0)
		snprintf(why, len, "it is on another machine");
	else if (a->host_id != host->host_id)
		snprintf(why, len,
			 "its host name or DICOMM_HOSTID is another one");
	else if (a->pid_namespace != host->pid_namespace)
		snprintf(why, len,
			 "it is in another pid namespace (container) of this "
			 "machine");
	else
		return true;
	return false;
}
