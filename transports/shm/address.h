/* SPDX-License-Identifier: BSD-3-Clause */
/* The address of a rank: on which machine it is, and which descriptor of which
 * process holds its segment. */
#ifndef DICOMM_TRANSPORTS_SHM_ADDRESS_H
#define DICOMM_TRANSPORTS_SHM_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/shm/measure.h"
#include "transports/transport.h"

/* The content of a tp_blob. */
struct shm_address {
	uint32_t magic, version;
	uint64_t check; /* hash of all bytes, with 0 here */
	uint8_t boot_id[16];
	uint64_t pid_namespace;
	uint64_t host_id;  /* host_name_hash() */
	uint64_t nonce[2]; /* nonce of the segment */
	int32_t pid, fd;   /* process, and its descriptor of the segment */
	uint32_t rank, ranks;
	uint32_t slots, slot_bytes;
	struct shm_rates rates; /* the rates that the rank has measured */
};

/* The machine and the pid namespace that this process is in. */
struct shm_host {
	uint8_t boot_id[16];
	uint64_t pid_namespace;
	uint64_t host_id;
};

void shm_host_find(struct shm_host *host);
/* Add the identity of `host`, this machine, and the check, and put the address
 * into the blob. */
void shm_address_pack(struct shm_address *a, const struct shm_host *host,
		      struct tp_blob *blob);
/* Returns false if the bytes are not an address of shm; the reason is in
 * `why`. */
bool shm_address_parse(const struct tp_blob *blob, struct shm_address *a,
		       char *why, size_t len);
/* Returns true if that rank is on `host`, this machine, and in its pid
 * namespace. Otherwise `why` says what differs. */
bool shm_address_is_local(const struct shm_address *a,
			  const struct shm_host *host, char *why, size_t len);

#endif
