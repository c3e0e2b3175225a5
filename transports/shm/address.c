/* SPDX-License-Identifier: BSD-3-Clause */
/* The address of a rank: on which machine it is, and which descriptor of which
 * process holds its segment. */
#include "transports/shm/address.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
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

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* The machine's boot id. It is all zero if the kernel does not give it; then
 * the pid namespace decides. */
static uint8_t boot_id[16];

static void boot_id_read(void)
{
	char text[64] = "";
	ssize_t n;
	int fd, digits = 0;

	fd = descriptors_high(
		open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	for (ssize_t i = 0; i < n && digits < 32; i++) {
		int d = hex_digit(text[i]);

		if (d < 0)
			continue;
		boot_id[digits / 2] = (uint8_t)(boot_id[digits / 2] << 4 | d);
		digits++;
	}
}

void shm_host_find(struct shm_host *h)
{
	struct stat st;

	memset(h, 0, sizeof(*h));
	pthread_once(&once, boot_id_read);
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
