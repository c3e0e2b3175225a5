/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of a communicator meet, compare what they have, and agree. */
#ifndef DICOMM_COMM_SETUP_H
#define DICOMM_COMM_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "src/core/comm.h"
#include "src/core/member.h"

/* Set up a communicator from comm_create(). The other ranks have come_ms to
 * come. Errors are logged and name the rank. */
dicomm_result_t comm_setup(struct dicomm_comm *comm,
			   const dicomm_unique_id_t *id, int come_ms);
/* The key by which its ranks answer probes after a death; AUTH_KEY bytes */
void comm_recovery_key(const struct dicomm_comm *comm, uint8_t key[]);
/* The slot_bytes of ranks on several machines like this one */
uint32_t comm_slot_bytes_apart(uint32_t ranks, uint32_t nodes);

/* Open the transports that may reach device memory, for a communicator that
 * does not meet. */
dicomm_result_t comm_open_device_transports(struct dicomm_comm *comm);
/* Does a communicator open transports within this machine, unless its config
 * says otherwise? */
bool comm_uses_local_transports(void);

#endif
