/* SPDX-License-Identifier: BSD-3-Clause */
/* What each rank tells all others when a communicator is set up. */
#ifndef DICOMM_CORE_MEMBER_H
#define DICOMM_CORE_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "src/accel/accel.h"
#include "src/boot/net/sock.h"
#include "src/memory/lease.h"

/* The addresses of a rank on all its transports; rank_address.h packs them. */
struct rank_address {
	uint32_t len; /* of the whole */
	uint8_t begin[508];
};

/* What each rank tells all others when they meet. */
struct member {
	uint64_t host; /* hash of the host's identity */
	int32_t pid;
	int32_t deterministic;
	uint32_t slots, slot_bytes;
	char device[32];
	/* Its buffers are host memory, or as good as that. */
	bool on_host;
	bool never_staged; /* what this rank has asked for */
	/* Bit t: its device reduces no elements of type t. */
	uint64_t lacks;
	/* Stages in the memory of its device, for devices of that kind in
	 * other processes. */
	bool exports;
	struct accel_handle exported;
	struct lease_place lease; /* of them */
	struct accel_export page; /* of what else it offers; see ipc.h */
	/* By this ranks of its process find what it lends; 0: nothing */
	uint64_t in_process;
	/* Stages in host memory, which its device writes; id 0: none */
	struct accel_export stages;
	char recovery[SOCK_TEXT]; /* where to meet if others die */
	uint64_t fresh;           /* of this meeting and no other */
	struct rank_address address;
};

#endif
