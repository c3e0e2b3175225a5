/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of a communicator meet, compare what they have, and agree. */
#ifndef DICOMM_COMM_SETUP_H
#define DICOMM_COMM_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "src/core/comm.h"
#include "src/core/member.h"

/* Of an empty communicator; the others come within so long. */
dicomm_result_t comm_setup(struct dicomm_comm *comm,
			   const dicomm_unique_id_t *id, int come_ms);
/* The key by which ranks of this communicator answer probes after a death; of
 * AUTH_KEY bytes. */
void comm_recovery_key(const struct dicomm_comm *comm, uint8_t key[]);
/* What it would be of ranks on several machines like this one. */
uint32_t comm_slot_bytes_apart(uint32_t ranks, uint32_t nodes);

/* Those that may reach the memory of devices; in a communicator that does not
 * meet. */
dicomm_result_t comm_open_device_transports(struct dicomm_comm *comm);
/* Does a communicator have wires that end at this machine, unless its config
 * says otherwise? */
bool comm_uses_local_transports(void);

#endif
