/* SPDX-License-Identifier: BSD-3-Clause */
/* Sets up a communicator: its ranks connect, compare what they have, and
 * agree. */
#ifndef DICOMM_COMM_SETUP_H
#define DICOMM_COMM_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "src/core/comm.h"
#include "src/core/member.h"

/* Sets up a communicator from comm_create(). Waits at most come_ms milliseconds
 * for the other ranks. Errors are logged and name the rank. */
dicomm_result_t comm_setup(struct dicomm_comm *comm,
			   const dicomm_unique_id_t *id, int come_ms);
/* Computes the key, of AUTH_KEY bytes, with which the ranks answer probes after
 * a death. */
void comm_recovery_key(const struct dicomm_comm *comm, uint8_t key[]);
/* Returns the slot_bytes that ranks on several machines use if all machines are
 * like this one. */
uint32_t comm_slot_bytes_apart(uint32_t ranks, uint32_t nodes);

/* Opens the transports that may reach device memory, for a communicator that is
 * not set up with other ranks. */
dicomm_result_t comm_open_device_transports(struct dicomm_comm *comm);
/* Returns true if communicators open a transport within this machine, unless
 * their config says otherwise. */
bool comm_uses_local_transports(void);

#endif
