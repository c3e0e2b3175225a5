/* SPDX-License-Identifier: BSD-3-Clause */
/* What each rank sends to all other ranks when a communicator is set up. */
#ifndef DICOMM_CORE_MEMBER_H
#define DICOMM_CORE_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "src/accel/accel.h"
#include "src/boot/net/sock.h"
#include "src/memory/lease.h"

/* The addresses of a rank on all its transports; rank_address.h packs them. */
struct rank_address {
	uint32_t len; /* bytes of all addresses together */
	uint8_t begin[508];
};

/* Memory through which a rank with a device sends. All zero: it has none. */
struct member_memory {
	/* Staging buffers in its device memory, for devices of the same kind in
	 * other processes, if the rank `exports`. */
	struct accel_handle exported;
	struct lease_place lease; /* of these buffers */
	struct accel_export page; /* the page of its offers; see ipc.h */
	/* Staging buffers in host memory that its device writes; id 0: none. */
	struct accel_export stages;
};

/* One rank's entry, which every rank keeps for as long as the communicator
 * lives: so it is small. */
struct member {
	uint64_t host; /* hash of the host's identity */
	int32_t pid;
	int32_t deterministic;
	uint32_t slots, slot_bytes;
	char island[8]; /* the island that it wishes for */
	char device[32];
	/* Its buffers are host memory, or memory of a device that shares the
	 * host's. */
	bool on_host;
	bool never_staged; /* this rank's DICOMM_STAGING */
	bool exports;      /* see struct member_memory */
	/* Bit t: its device cannot reduce type t */
	uint64_t lacks;
	/* The number by which other ranks of its process find its memory; 0:
	 * none. */
	uint64_t in_process;
	uint64_t fresh; /* a random number that differs for each setup */
};

/* What a rank tells. The texts and addresses are kept packed. */
struct member_told {
	struct member is;
	struct member_memory memory;
	/* Where survivors connect to it if other ranks die. */
	char recovery[SOCK_TEXT];
	struct rank_address address;
};

#endif
