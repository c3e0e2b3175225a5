/* SPDX-License-Identifier: BSD-3-Clause */
/* The address of a rank: on which machine, and behind which descriptor. */
#ifndef DICOMM_TRANSPORTS_SHM_ADDRESS_H
#define DICOMM_TRANSPORTS_SHM_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/shm/measure.h"
#include "transports/transport.h"

/* What a tp_blob holds. */
struct shm_address {
	uint32_t magic, version;
	uint64_t check; /* of all bytes, with 0 here */
	uint8_t boot_id[16];
	uint64_t pid_namespace;
	uint64_t host_id;  /* host_name_hash() */
	uint64_t nonce[2]; /* of the segment */
	int32_t pid, fd;   /* that hold the segment */
	uint32_t rank, ranks;
	uint32_t slots, slot_bytes;
	struct shm_rates rates; /* as the rank has measured them */
};

/* Add what says where this process is, and the check; put it into the blob. */
void shm_address_pack(struct shm_address *a, struct tp_blob *blob);
/* False: the bytes are no address; `why` says so. */
bool shm_address_parse(const struct tp_blob *blob, struct shm_address *a,
		       char *why, size_t len);
/* Same machine, same pid namespace? If not, `why` says so. */
bool shm_address_is_local(const struct shm_address *a, char *why, size_t len);

#endif
