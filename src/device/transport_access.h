/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transports that reach device memory. If two ranks have one in common, all
 * data between them goes by reference: the sender's bytes are in the user's
 * buffer, or in a staging buffer in device memory (user_buffer.h), and the
 * receiver reads them into its own. Nothing passes through slots.
 */
#ifndef DICOMM_DEVICE_TRANSPORT_ACCESS_H
#define DICOMM_DEVICE_TRANSPORT_ACCESS_H

#include "src/core/comm.h"

#define TRANSPORT_ACCESS_TEXT 320

/* Register this rank's device memory with the transports, and exchange with all
 * ranks which transports reach whose memory. All ranks call it, when transports
 * are open and neighbours are mapped. */
dicomm_result_t transport_access_agree(struct dicomm_comm *comm);
void transport_access_free(struct dicomm_comm *comm);
/* Register device memory of this rank with all transports that accept it.
 * Writes to `how` which ones do, or why none does; the latter also names
 * transports that are not open. */
dicomm_result_t transport_access_register(struct dicomm_comm *comm,
					  const struct tp_region *region,
					  struct mem_handles *handles,
					  char how[TRANSPORT_ACCESS_TEXT]);
/* Returns a mask; bit i: transport i carries all data between these two
 * ranks. */
uint8_t transport_access_mask(const struct dicomm_comm *comm, int a, int b);
/* Returns which transports reach that rank's device memory, or why none
 * does. */
const char *transport_access_how(const struct dicomm_comm *comm, int rank);

#endif
