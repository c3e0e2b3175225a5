/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of a communicator meet, compare what they have, and agree. */
#ifndef DICOMM_CORE_MEET_H
#define DICOMM_CORE_MEET_H

#include <stdbool.h>
#include <stdint.h>

#include "src/accel/accel.h"
#include "src/boot/net/sock.h"
#include "src/core/card.h"
#include "src/core/lease.h"
#include "src/core/peer.h"

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
	struct accel_handle near;
	struct lease_place lease; /* of them */
	struct accel_export page; /* of what else it offers; see ipc.h */
	/* By this ranks of its process find what it lends; 0: nothing */
	uint64_t lent;
	/* Stages in host memory, which its device writes; id 0: none */
	struct accel_export stages;
	char recovery[SOCK_TEXT]; /* where to meet if others die */
	uint64_t fresh;           /* of this meeting and no other */
	struct card card;
};

/* The key by which ranks of this communicator answer probes after a death; of
 * AUTH_KEY bytes. */
void comm_recovery_key(const struct dicomm_comm *comm, uint8_t key[]);
/* Of an empty communicator; the others come within so long. */
dicomm_result_t comm_meet(struct dicomm_comm *comm,
			  const dicomm_unique_id_t *id, int come_ms);
/* The most that slot_bytes may become while the ranks meet. */
uint32_t comm_most_slot_bytes(const struct dicomm_comm *comm);
/* What it would be of ranks on several machines like this one. */
uint32_t comm_slot_bytes_apart(uint32_t ranks, uint32_t nodes);

/* Those that may reach the memory of devices; in a communicator that does not
 * meet. */
dicomm_result_t comm_open_wires_of_devices(struct dicomm_comm *comm);
/* Does a communicator have wires that end at this machine, unless its config
 * says otherwise? */
bool comm_uses_near_wires(void);
/* The list of those that it may use; is that one of them? */
const char *comm_transports(const struct dicomm_comm *comm);
bool comm_lists(const struct dicomm_comm *comm, const char *transport);

/* What control_query() asks for: a collective, or the other side's part of a
 * point-to-point pair; or whether it is done with a message from here, of
 * number * TP_CLASSES + class. */
enum { ASK_COLLECTIVE, ASK_SEND, ASK_RECV, ASK_RECEIVED };

#endif
