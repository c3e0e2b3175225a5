/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wires that reach the memory of devices. Between two ranks that have such a
 * wire in common all data goes by reference: what one sends lies in the user's
 * buffer, or in stages in the memory of its device where no wire reaches that
 * (given.h), and is read by the other into the like; nothing passes through
 * slots.
 */
#ifndef DICOMM_DEVICE_WIRE_ACCESS_H
#define DICOMM_DEVICE_WIRE_ACCESS_H

#include "src/core/comm.h"

#define WIRE_ACCESS_TEXT 320

/* Once the wires are open and neighbours are mapped: give the wires the stages
 * of this rank's device, and hear what the others have. */
dicomm_result_t wire_access_agree(struct dicomm_comm *comm);
void wire_access_free(struct dicomm_comm *comm);
/* Ask all wires to take memory of this rank's device: *held is of those that
 * do; and how, or why none does: not even those that are not open. */
dicomm_result_t wire_access_register(struct dicomm_comm *comm,
				     const struct tp_region *region,
				     struct mem_handles *handles,
				     char how[WIRE_ACCESS_TEXT]);
/* Bit i: wire i takes all that these two ranks send each other. */
uint8_t wire_access_wires(const struct dicomm_comm *comm, int a, int b);
/* How the wires reach the memory of that rank's device, or why none does. */
const char *wire_access_how(const struct dicomm_comm *comm, int rank);

#endif
